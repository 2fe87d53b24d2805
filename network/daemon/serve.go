// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/internal/metrics"
	"github.com/liqo-go/liqo/network/plan"
)

// socket returns the name of a role's socket in the abstract namespace. It belongs to the network
// namespace whose state it shows, needs no file, and vanishes with the process.
func socket(role string) string { return "@liqo-" + role }

// serveShow serves the show command of the same role.
func (d *Daemon) serveShow(ctx context.Context) error {
	l, err := net.Listen("unix", socket(d.Name))
	if err != nil {
		// Another process of the role is still ending. Traffic must not stop for that.
		klog.FromContext(ctx).Info("The show command will find no answer", "error", err.Error())
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{what}", func(w http.ResponseWriter, r *http.Request) {
		text, err := d.show(r.Context(), r.PathValue("what"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		io.WriteString(w, text)
	})
	return serve(ctx, l, mux)
}

// show returns the desired state, the observed state, or their difference.
func (d *Daemon) show(ctx context.Context, what string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if what == "desired" {
		return d.desired.String(), nil
	}
	have, err := d.plane.Observe(ctx, devices(d.desired)...)
	if err != nil {
		return "", err
	}
	if what == "diff" {
		return plan.Diff(have, d.desired).String(), nil
	}
	return have.String(), nil
}

// serveHealth answers the kubelet's probes. The process is live while it answers, and ready once
// the kernel has been in the desired state.
func (d *Daemon) serveHealth(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := d.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		io.WriteString(w, "ok")
	})
	return serveAt(ctx, d.HealthAddress, mux)
}

// serveMetrics serves /metrics.
func (d *Daemon) serveMetrics(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		all := d.counts.metrics()
		if d.Metrics != nil {
			all = append(all, d.Metrics()...)
		}
		w.Header().Set("Content-Type", metrics.ContentType)
		io.WriteString(w, page(all))
	})
	return serveAt(ctx, d.MetricsAddress, mux)
}

func serveAt(ctx context.Context, address string, h http.Handler) error {
	if address == "" || address == "0" {
		return nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	return serve(ctx, l, h)
}

func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	// 10 s suffice, because no response is larger than a few KiB.
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ShowCommand returns a command that prints the state of a role running in this network namespace,
// for use with kubectl exec.
func ShowCommand(role string) *cobra.Command {
	return &cobra.Command{
		Use:       "show [desired|observed|diff]",
		Short:     "Prints what is wanted in the kernel, what is found there, or how they differ",
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"desired", "observed", "diff"},
		RunE: func(cmd *cobra.Command, args []string) error {
			what := "observed"
			if len(args) > 0 {
				what = args[0]
			}
			return ask(cmd.Context(), role, what, cmd.OutOrStdout())
		},
	}
}

func ask(ctx context.Context, role, what string, out io.Writer) error {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket(role))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://liqo/"+what, nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DialContext: dial}}).Do(req)
	if err != nil {
		return fmt.Errorf("ask the running %s: %w", role, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("ask the running %s: %s", role, text)
	}
	_, err = io.Copy(out, resp.Body)
	return err
}
