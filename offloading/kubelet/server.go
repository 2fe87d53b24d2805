// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

const (
	// headerTime limits how long a client may take to send its request line and headers.
	headerTime = 30 * time.Second
	// endTime is how long running responses may take when the process ends.
	endTime = 2 * time.Second
)

// serve serves the kubelet API until ctx ends.
func (n *node) serve(ctx context.Context) error {
	server := &http.Server{
		Handler:           newGate(n.home, n.Flags.NodeName).guard(n.routes()),
		ReadHeaderTimeout: headerTime,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: n.certificates.get,
			ClientAuth:     tls.RequestClientCert, // verified by the gate, which also accepts tokens
		},
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(n.Flags.ListenPort))))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
		defer cancel()
		if err := server.Shutdown(end); err != nil {
			server.Close()
		}
	})
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// routes returns the handler for the paths of the kubelet API. Requests about a pod are forwarded
// to the provider's API server, which uses the same protocols with its own kubelets.
func (n *node) routes() http.Handler {
	mux := http.NewServeMux()
	logs := n.passOn("log", func(in url.Values, container string) url.Values {
		in.Set("container", container)
		return in
	})
	exec, attach := n.passOn("exec", streamOptions), n.passOn("attach", streamOptions)
	forward := n.passOn("portforward", func(in url.Values, _ string) url.Values {
		return url.Values{"ports": in["port"]}
	})
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", exec)
	mux.HandleFunc("/exec/{namespace}/{pod}/{uid}/{container}", exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", attach)
	mux.HandleFunc("/attach/{namespace}/{pod}/{uid}/{container}", attach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", forward)
	mux.HandleFunc("/portForward/{namespace}/{pod}/{uid}", forward)
	for path, answer := range map[string]http.HandlerFunc{
		"/pods": n.pods, "/runningpods": n.runningPods, "/configz": n.configz, "/stats/summary": n.summary,
		"/metrics": n.ownMetrics, "/metrics/cadvisor": n.cadvisorMetrics, "/metrics/resource": n.resourceMetrics,
		"/metrics/probes": probeMetrics, "/metrics/slis": checkMetrics, "/healthz": healthy,
	} {
		mux.HandleFunc("GET "+path, answer)
		mux.HandleFunc("GET "+path+"/{$}", answer)
	}
	for _, check := range healthChecks {
		mux.HandleFunc("GET /healthz/"+check, healthy)
	}
	for path, why := range map[string]string{
		"/run/":         "commands are run by /exec",
		"/checkpoint/":  "API servers offer no checkpoints of pods, and the provider's nodes are not asked",
		"/logs/":        "the log of the node is that of the pod of its virtual kubelet",
		"/debug/flags/": "the verbosity of the log does not change",
		"/debug/pprof/": "profiling is disabled; see the flag --enable-profiling",
	} {
		if path == "/debug/pprof/" && n.Flags.EnableProfiling {
			mux.HandleFunc(path, pprof.Index)
			continue
		}
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			// Kubelets return the same code for a disabled path.
			http.Error(w, "not offered by a virtual node: "+why, http.StatusMethodNotAllowed)
		})
	}
	return mux
}

// healthChecks are the names of a kubelet's checks under /healthz.
var healthChecks = []string{"ping", "log", "syncloop"}

func healthy(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }

// configz serves /configz with those settings of a kubelet that apply to a virtual one.
func (n *node) configz(w http.ResponseWriter, r *http.Request) {
	type object = map[string]any
	config := object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"enableServer": true, "port": n.Flags.ListenPort,
		"serverTLSBootstrap": n.Flags.CertificateType != CertificateSelfSigned,
		"authentication": object{
			"anonymous": object{"enabled": false}, "webhook": object{"enabled": true, "cacheTTL": allowedTime.String()},
		},
		"authorization": object{"mode": "Webhook", "webhook": object{
			"cacheAuthorizedTTL": allowedTime.String(), "cacheUnauthorizedTTL": deniedTime.String(),
		}},
		"nodeLeaseDurationSeconds":  int(n.Flags.NodeLeaseDuration.Seconds()),
		"nodeStatusReportFrequency": plan.Heartbeat.String(),
		"enableDebuggingHandlers":   true, "enableProfilingHandler": n.Flags.EnableProfiling,
		"enableSystemLogHandler": false, "enableDebugFlagsHandler": false,
	}
	live, err := ctl.Optional(r.Context(), n.cache, types.NamespacedName{Name: n.Flags.NodeName}, &corev1.Node{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if live != nil && live.Status.Capacity.Pods().Value() > 0 {
		config["maxPods"] = live.Status.Capacity.Pods().Value()
	}
	writeJSON(w, r, object{"kubeletconfig": config})
}

// streamOptions returns the options of exec and attach under the API server's names, which differ
// from those of kubelets.
func streamOptions(in url.Values, container string) url.Values {
	out := url.Values{"container": {container}, "command": in[corev1.ExecCommandParam]}
	for kubelet, apiserver := range map[string]string{
		corev1.ExecStdinParam: "stdin", corev1.ExecStdoutParam: "stdout", corev1.ExecStderrParam: "stderr",
		corev1.ExecTTYParam: "tty",
	} {
		if on := in.Get(kubelet); on == "1" || on == "true" {
			out.Set(apiserver, "true")
		}
	}
	return out
}

// passOn forwards requests about a pod to the provider's API server, for the remote pod.
func (n *node) passOn(subresource string, options func(url.Values, string) url.Values) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		local := r.PathValue("namespace")
		namespace, ok := n.remoteNamespace(r.Context(), local)
		if !ok {
			http.Error(w, fmt.Sprintf("namespace %q is not offloaded to this node", local), http.StatusNotFound)
			return
		}
		server, transport := n.Peer.Streams()
		target := server.JoinPath("api/v1/namespaces", namespace, "pods", r.PathValue("pod"), subresource)
		target.RawQuery = options(r.URL.Query(), r.PathValue("container")).Encode()
		proxy := &httputil.ReverseProxy{
			Transport:     transport,
			FlushInterval: -1, // logs are followed line by line
			Rewrite: func(p *httputil.ProxyRequest) {
				p.Out.URL, p.Out.Host, p.Out.Header = target, "", passedHeaders(p.Out.Header)
			},
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				if r.Context().Err() == nil {
					log.FromContext(r.Context()).Error(err, "pass on", "path", r.URL.Path)
				}
				http.Error(w, fmt.Sprintf("the provider's API server does not answer: %v", err), http.StatusBadGateway)
			},
		}
		proxy.ServeHTTP(w, r)
	}
}

// passedHeaders returns the headers that a provider gets: those of the streaming protocols.
// Credentials and impersonation headers stay in this cluster, where alone they mean something.
func passedHeaders(in http.Header) http.Header {
	out := http.Header{}
	for _, key := range []string{
		"Accept", "Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Upgrade",
		"X-Stream-Protocol-Version",
		"Sec-Websocket-Extensions", "Sec-Websocket-Key", "Sec-Websocket-Protocol", "Sec-Websocket-Version",
	} {
		if values := in.Values(key); len(values) > 0 {
			out[http.CanonicalHeaderKey(key)] = values
		}
	}
	return out
}
