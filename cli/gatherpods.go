// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/bundle"
	"github.com/liqo-go/liqo/view"
)

const (
	// podsAtOnce bounds the requests to pods at the same time.
	podsAtOnce = 8
	// podTimeout bounds one request to a pod.
	podTimeout = 15 * time.Second
	// maxResponse bounds what is read of one response, in bytes.
	maxResponse = 16 << 20
	// maxLog bounds what is kept of one log, in bytes.
	maxLog = 1 << 20
	// logLines bounds the lines that are read of one log, from its end.
	logLines = "10000"
)

// fetch is one request to a pod, and the file for its response.
type fetch struct {
	path string
	do   func(context.Context) ([]byte, error)
}

// response is the result of a fetch. text can hold a part if err is set.
type response struct {
	text []byte
	err  error
}

// restClient returns a client for requests by path.
func restClient(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return client, nil
}

// get returns the response to a request, at most maxResponse bytes of it.
func (c *contribution) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	request := c.raw.Get().AbsPath(path)
	for key, values := range query {
		request.Param(key, values[0])
	}
	stream, err := request.Stream(ctx)
	if err != nil {
		return nil, timeOver(ctx, err)
	}
	defer stream.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(stream, maxResponse))
	if err != nil {
		return text, timeOver(ctx, err)
	}
	return text, nil
}

// pods returns the pods of Liqo that were gathered.
func (c *contribution) pods() (out []corev1.Pod) {
	for _, g := range c.found {
		if g.resource != "pods" {
			continue
		}
		for _, o := range g.objects {
			pod := corev1.Pod{}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &pod)
			if err == nil && (slices.Contains(c.own, pod.Namespace) || c.isGateway(&pod)) {
				out = append(out, pod)
			}
		}
	}
	return out
}

// podPath returns the path of a pod at the API server.
func podPath(pod *corev1.Pod) string {
	return "/api/v1/namespaces/" + pod.Namespace + "/pods/" + pod.Name
}

// gatherRules adds what gateways and the fabric want in the kernel, find there, and what differs, and the metrics of
// all pods that serve them. It returns the number of answers.
func (c *contribution) gatherRules(ctx context.Context) int {
	var all []fetch
	gateways, metered := 0, 0
	for _, pod := range c.pods() {
		if networkRole(&pod) == "gateway" {
			gateways, metered = gateways+1, metered+min(1, int(view.MetricsPort(&pod)))
		}
		if role := networkRole(&pod); role != "" && pod.Status.Phase == corev1.PodRunning {
			for _, what := range []string{"desired", "observed", "diff"} {
				all = append(all, fetch{bundle.Path("rules", pod.Namespace, pod.Name, what+".txt"),
					func(ctx context.Context) ([]byte, error) {
						text, err := c.exec(ctx, pod.Namespace, pod.Name, "liqo", role, "show", what)
						if err == nil && len(text) == 0 {
							return []byte("nothing\n"), nil // as diff prints mostly
						}
						return text, err
					}})
			}
		}
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				if port.Name == "metrics" || port.Name == "gw-metrics" {
					path := fmt.Sprintf("%s:%d/proxy/metrics", podPath(&pod), port.ContainerPort)
					all = append(all, fetch{bundle.Path("metrics", pod.Namespace, pod.Name+".txt"),
						func(ctx context.Context) ([]byte, error) { return c.get(ctx, path, nil) }})
				}
			}
		}
	}
	if gateways > 0 && metered == 0 {
		c.part.Miss("metrics of gateways", errors.New(view.MetricsOff(c.env.name)))
	}
	return c.fetchAll(ctx, all, c.part.AddText)
}

// networkRole returns the role of a pod of the network; empty for all others.
func networkRole(pod *corev1.Pod) string {
	switch {
	case pod.Labels[api.LabelNetworkingComponent] == api.GatewayComponent:
		return "gateway"
	case pod.Labels[api.LabelAppName] == "fabric":
		return "fabric"
	}
	return ""
}

// gatherLogs adds the ends of the logs of all containers of Liqo, and of those before their last restart. Each gets an
// equal share of the room that is left. It returns their number.
func (c *contribution) gatherLogs(ctx context.Context) int {
	var all []fetch
	for _, pod := range c.pods() {
		for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
			query := url.Values{"container": {status.Name}, "timestamps": {"true"}, "tailLines": {logLines},
				"limitBytes": {fmt.Sprint(maxResponse)}}
			add := func(suffix string, query url.Values) {
				all = append(all, fetch{bundle.Path("logs", pod.Namespace, pod.Name, status.Name+suffix),
					func(ctx context.Context) ([]byte, error) { return c.get(ctx, podPath(&pod)+"/log", query) }})
			}
			add(".log", query)
			if status.RestartCount > 0 {
				previous := url.Values{"previous": {"true"}}
				for key, values := range query {
					previous[key] = values
				}
				add(".previous.log", previous)
			}
		}
	}
	left := len(all)
	return c.fetchAll(ctx, all, func(path string, text []byte) {
		c.part.AddLog(path, text, min(maxLog, c.part.Left()/int64(left)))
		left--
	})
}

// fetchAll sends all requests, podsAtOnce at a time, and calls add for each response in their order. What fails is
// missing; after the time is over, all that is left. It returns the number of requests that did not fail.
func (c *contribution) fetchAll(ctx context.Context, all []fetch, add func(path string, text []byte)) (answers int) {
	for len(all) > 0 {
		if ctx.Err() != nil {
			var paths []string
			for _, f := range all {
				paths = append(paths, f.path)
			}
			c.part.Miss(someNames(paths), context.Cause(ctx))
			break
		}
		some := all[:min(podsAtOnce, len(all))]
		responses, _ := collect(some, func(f fetch) (response, error) { // responses hold the errors
			show(ctx, f.path)
			ctx, cancel := context.WithTimeoutCause(ctx, podTimeout, fmt.Errorf("no answer in %s", podTimeout))
			defer cancel()
			text, err := f.do(ctx)
			return response{text, err}, nil
		})
		for i, r := range responses {
			if r.err != nil {
				c.part.Miss(some[i].path, r.err)
			} else {
				answers++
			}
			add(some[i].path, r.text)
		}
		all = all[len(some):]
	}
	return answers
}
