// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// memoryPerNamespace is in MB. A thousand namespaces, offloading.maxNamespaces of the chart, leave a tenth of a virtual
// kubelet's memory limit there, 2 GiB, to pods.
const memoryPerNamespace = 1.85

// TestManyNamespaces has one virtual kubelet reflect a thousand namespaces; fifty unless -soak. One
// API server is consumer and provider, so the figures are of both.
func TestManyNamespaces(t *testing.T) {
	many := 50
	if *soak {
		many = 1000
	}
	w := newStage(t)
	stop := w.replica("vk-1", "127.0.0.1")
	defer stop()
	w.nodeHas("127.0.0.1")
	before, watches := anonymous(t), w.watches()

	m := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: virtualNode}}
	m.Spec.DesiredMapping = map[string]string{}
	status := map[string]offloadingv1beta1.RemoteNamespaceStatus{}
	for i := range many {
		home := fmt.Sprintf("shop-%04d", i)
		remote := home + "-rome"
		for _, name := range []string{home, remote} {
			w.must("create namespace", w.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		}
		w.settings(home)
		m.Spec.DesiredMapping[home] = remote
		status[home] = offloadingv1beta1.RemoteNamespaceStatus{RemoteNamespace: remote, Phase: offloadingv1beta1.NamespaceAccepted}
	}
	w.must("create map", w.Create(t.Context(), m))
	m.Status.CurrentMapping = status
	began := time.Now()
	w.must("write status of the map", w.Status().Update(t.Context(), m))
	w.eventually("the objects of all namespaces", func(ctx context.Context) error {
		var all corev1.ConfigMapList
		if err := w.List(ctx, &all); err != nil {
			return err
		}
		there := 0
		for _, c := range all.Items {
			if c.Name == settings && strings.HasSuffix(c.Namespace, "-rome") {
				there++
			}
		}
		if there < many {
			return fmt.Errorf("%d of %d are there", there, many)
		}
		return nil
	})
	took := time.Since(began)
	each := (anonymous(t) - before) / float64(many)
	t.Logf("%d namespaces after %v; a namespace takes %.2f MB and %.1f watches", many, took, each, float64(w.watches()-watches)/float64(many))
	// Garbage of the start hides what fifty take.
	if *soak && each > memoryPerNamespace {
		t.Errorf("a namespace takes %.2f MB, more than %.2f", each, memoryPerNamespace)
	}
}

const settings = "settings"

func (w *stage) settings(namespace string) {
	w.Helper()
	w.must("create ConfigMap", w.Create(w.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: settings}, Data: map[string]string{"color": "green"},
	}))
}

// watches counts those that are open at the API server.
func (w *stage) watches() (total int) {
	w.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.kubeconfig)
	w.must("read kubeconfig", err)
	clients, err := kubernetes.NewForConfig(config)
	w.must("make client", err)
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(w.Context())
	w.must("read metrics", err)
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `verb="WATCH"`) {
			var n int
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &n); err == nil {
				total += n
			}
		}
	}
	return total
}
