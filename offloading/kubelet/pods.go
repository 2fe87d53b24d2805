// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// pods serves /pods. The caches of a virtual kubelet hold only a part of each pod, so it copies the
// list of the local API server, from that server's own cache (resourceVersion 0).
func (n *node) pods(w http.ResponseWriter, r *http.Request) {
	list, err := n.home.CoreV1().RESTClient().Get().Resource("pods").
		Param("fieldSelector", fields.OneTermEqualSelector("spec.nodeName", n.Flags.NodeName).String()).
		Param("resourceVersion", "0").SetHeader("Accept", "application/json").Stream(r.Context())
	if err != nil {
		http.Error(w, fmt.Sprintf("list pods: %v", err), http.StatusInternalServerError)
		return
	}
	defer list.Close()
	w.Header().Set("Content-Type", "application/json")
	if _, err := io.Copy(w, list); err != nil {
		log.FromContext(r.Context()).V(1).Info("write pods", "error", err.Error())
	}
}

// cachedPods returns the pods of the node, with their whole status and a part of their specs.
func (n *node) cachedPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := n.Pods.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", n.Flags.NodeName, err)
	}
	return list.Items, nil
}

// runningPods serves /runningpods with names, IDs and images of running containers, as a container
// runtime reports them.
func (n *node) runningPods(w http.ResponseWriter, r *http.Request) {
	pods, err := n.cachedPods(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for i := range pods {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pods[i].Name, Namespace: pods[i].Namespace,
			UID: pods[i].UID}}
		for _, c := range containerStatuses(&pods[i]) {
			if c.State.Running != nil {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		if p.Spec.Containers != nil {
			out.Items = append(out.Items, p)
		}
	}
	writeJSON(w, r, out)
}

func containerStatuses(p *corev1.Pod) []corev1.ContainerStatus {
	s := &p.Status
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

// ownMetrics serves /metrics: those of the process, and the numbers of pods and containers under
// the names that kubelets use.
func (n *node) ownMetrics(w http.ResponseWriter, r *http.Request) {
	pods, err := n.cachedPods(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	own := prometheus.NewRegistry()
	gauge := func(name, help string, value int, labels prometheus.Labels) {
		own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value) }))
	}
	gauge("kubelet_node_name", "The node's name. The count is always 1.", 1,
		prometheus.Labels{"node": n.Flags.NodeName})
	run, states := 0, map[string]int{"running": 0, "exited": 0}
	for i := range pods {
		before := states["running"]
		for _, c := range containerStatuses(&pods[i]) {
			switch {
			case c.State.Running != nil:
				states["running"]++
			case c.State.Terminated != nil:
				states["exited"]++
			}
		}
		if states["running"] > before {
			run++
		}
	}
	gauge("kubelet_running_pods", "Number of pods that have a running container", run, nil)
	for state, count := range states {
		gauge("kubelet_running_containers", "Number of containers by state", count,
			prometheus.Labels{"container_state": state})
	}
	promhttp.HandlerFor(prometheus.Gatherers{n.Metrics, own}, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}
