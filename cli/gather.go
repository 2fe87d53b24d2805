// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/bundle"
)

const (
	// gatherTimeout and gatherSize are the default bounds of gather.
	gatherTimeout = 2 * time.Minute
	gatherSize    = "50M"
	// writeTimeout bounds the writing of the archive after the time to gather is over.
	writeTimeout = 30 * time.Second
)

// gatherOptions holds the flags of gather.
type gatherOptions struct {
	*pair
	file string
	size resource.QuantityValue
}

func (e *env) gatherCommand() *cobra.Command {
	o := &gatherOptions{size: resource.QuantityValue{Quantity: resource.MustParse(gatherSize)}}
	cmd := &cobra.Command{Use: "gather", Short: "Write the state of Liqo to an archive for a bug report",
		Long: "Write the state of Liqo to an archive for a bug report: objects, conditions, Events, logs, rules and " +
			"metrics, without the content of Secrets and without credentials. What the user may not read is listed " +
			"in the archive as missing.",
		Example: `  liqoctl gather
  liqoctl gather --remote-kubeconfig milan.yaml -o report.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.gather(cmd, o) }}
	o.pair = addPairFlags(cmd, gatherTimeout)
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "output-file", "o", "", "File to write (default: liqo-gather-<time>.tar.gz)")
	flags.Var(&o.size, "max-size", "Size of the archive's content at most, uncompressed")
	return cmd
}

// gathering is one run of gather.
type gathering struct {
	*script
	// deadline is when the time to gather is over.
	deadline time.Time
	// bound is the size of the archive's content at most, in bytes.
	bound int64
}

// contribution collects what one cluster contributes.
type contribution struct {
	*cluster
	// part is nil until the objects have been read.
	part *bundle.Part
	// raw sends the requests for which there is no typed client, such as those for logs.
	raw rest.Interface
	// found holds the objects, by resource, in the order in which they enter the archive.
	found []gathered
	// own holds the namespaces of Liqo and of its peerings.
	own []string
	// gateways holds the namespaces of gateways elsewhere. Of their pods, only the gateways are Liqo's.
	gateways []string
}

func (e *env) gather(cmd *cobra.Command, o *gatherOptions) (err error) {
	if bound := o.size.Value(); bound <= 0 || bound > bundle.MaxBound {
		return fmt.Errorf("--max-size: use at most %s", megabytes(bundle.MaxBound))
	}
	timeout, err := cmd.Flags().GetDuration("timeout")
	if err != nil {
		return err
	}
	chart, err := embeddedChart()
	if err != nil {
		return err
	}
	s, stop := e.newScript(cmd.Context(), timeout+writeTimeout)
	defer stop()
	g := &gathering{script: s, deadline: s.began.Add(timeout), bound: o.size.Value()}
	clusters, err := g.connect(cmd, o.pair)
	if err != nil {
		return err
	}
	index := bundle.Index{Time: s.began, Client: chart.Metadata.AppVersion}
	if o.file == "" {
		o.file = "liqo-gather-" + index.Time.UTC().Format("20060102-150405") + ".tar.gz"
	}
	// A file that is there is kept, and one that others may read is not used.
	file, err := os.OpenFile(o.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return hint(fmt.Errorf("write the archive: %w", err), "name another file with --output-file")
	}
	size := ""
	if err = g.run(g.steps(clusters)...); err == nil {
		size, err = writeBundle(file, index, clusters)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(o.file))
	}
	for _, c := range clusters {
		if n := len(c.part.Missing); n > 0 {
			s.warn(c.side, "Not gathered: %d; %s in the archive says what and why", n, bundle.Readme)
		}
	}
	s.info(noCluster, "Archive written to %s: %s, in %s of %s at most; read it before you make it public", o.file,
		size, time.Since(s.began).Round(time.Second), timeout)
	return nil
}

// connect returns the clusters that answer. It fails if none does.
func (g *gathering) connect(cmd *cobra.Command, p *pair) ([]*contribution, error) {
	liqo := []*pflag.Flag{liqoFlag(cmd), remoteLiqoFlag(cmd)}
	of, err := g.env.cluster(g.env.local, noCluster, liqo[0].Value.String())
	if err != nil {
		return nil, err
	}
	clusters := []*cluster{of}
	if hasRemote(cmd) {
		of.side = local
		other, err := g.env.cluster(p.remote, remote, liqo[1].Value.String())
		if err != nil {
			return nil, err
		}
		of.other, other.other = other, of
		clusters = append(clusters, other)
	}
	g.busy(noCluster, "Contacting the clusters")
	errs := make([]error, len(clusters))
	_ = onEach([]int{0, 1}[:len(clusters)], func(i int) error { // each error is kept
		errs[i] = clusters[i].identify(g.ctx, liqo[i])
		return nil
	})
	var out []*contribution
	for i, c := range clusters {
		var silent *noAnswer
		if errors.As(errs[i], &silent) {
			if len(clusters) > 1 {
				g.warn(c.side, "%s", errs[i])
			}
			continue
		}
		if errs[i] != nil {
			g.warn(c.side, "%s", errs[i]) // what there is can show why
		}
		raw, err := restClient(c.config)
		if err != nil {
			return nil, err
		}
		out = append(out, &contribution{cluster: c, raw: raw})
	}
	if len(out) == 0 {
		return nil, errs[0]
	}
	return out, nil
}

// hasRemote reports whether a flag selects a second cluster.
func hasRemote(cmd *cobra.Command) (given bool) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		given = given || strings.HasPrefix(f.Name, remotePrefix) && f != remoteLiqoFlag(cmd)
	})
	return given
}

// steps returns the steps for all clusters. They fail only when the user interrupts them; whatever else fails is
// recorded as missing.
func (g *gathering) steps(clusters []*contribution) []step {
	var out []step
	for _, c := range clusters {
		add := func(name, after, doing string, report func() string, do func(context.Context, *contribution)) {
			out = append(out, step{name: string(c.side) + name, after: []string{string(c.side) + after}, at: &c.cluster,
				doing: doing, report: func(took string) { g.info(c.side, "%s%s", report(), took) },
				do: func(ctx context.Context) error {
					limited, cancel := context.WithDeadlineCause(ctx, g.deadline, errTimeout)
					defer cancel()
					do(limited, c)
					return context.Cause(ctx)
				}})
		}
		rules, logs := 0, 0
		add("objects", "", "Gathering objects",
			func() string { return fmt.Sprintf("%d objects of %d kinds gathered", c.count(), len(c.found)) },
			func(ctx context.Context, c *contribution) { c.gatherObjects(ctx, g.bound/int64(len(clusters))) })
		add("rules", "objects", "Gathering rules and metrics",
			func() string { return fmt.Sprintf("%d files of rules and metrics gathered", rules) },
			func(ctx context.Context, c *contribution) { rules = c.gatherRules(ctx) })
		add("logs", "rules", "Gathering logs",
			func() string { return fmt.Sprintf("%d logs gathered", logs) },
			func(ctx context.Context, c *contribution) { logs = c.gatherLogs(ctx) })
	}
	return out
}

// writeBundle writes the archive to a file and returns its sizes as a text.
func writeBundle(file *os.File, index bundle.Index, clusters []*contribution) (size string, err error) {
	var parts []*bundle.Part
	for _, c := range clusters {
		parts = append(parts, c.part)
	}
	index, err = bundle.Write(file, index, parts...)
	if err != nil {
		return "", err
	}
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("read the size of the archive: %w", err)
	}
	content := int64(0)
	for _, f := range index.Files {
		content += f.Size
	}
	return fmt.Sprintf("%s, %s uncompressed", megabytes(info.Size()), megabytes(content)), nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
