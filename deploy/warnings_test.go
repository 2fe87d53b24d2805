// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// warnings collects what an API server warns of.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// take gives what was said since it was last asked.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// TestStricterStrategiesWarn: whoever forbids pods where they could go before is told that those which
// run stay, by any client; whoever allows more is not.
func TestStricterStrategiesWarn(t *testing.T) {
	server, heard := apitest.Start(t), &warnings{}
	config := rest.CopyConfig(server.Config)
	config.WarningHandler = heard
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t, bases[0])
	if err != nil {
		t.Fatal(err)
	}
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: "demo"}}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}, o}
	for _, doc := range strings.Split(rendered["liqo/templates/offloading.yaml"], "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			objects = append(objects, object)
		}
	}
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	change := func(to offloadingv1beta1.PodOffloadingStrategy) []string {
		heard.take()
		o.Spec.PodOffloadingStrategy = to
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return heard.take()
	}
	stays := func(text string) bool { return strings.Contains(text, "stay there until they are deleted") }
	// The policy is in force a moment after it was made.
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		change(offloadingv1beta1.LocalAndRemoteStrategy)
		return slices.ContainsFunc(change(offloadingv1beta1.RemoteStrategy), stays), nil
	})
	if err != nil {
		t.Fatal("nobody was warned")
	}
	if said := change(offloadingv1beta1.LocalAndRemoteStrategy); len(said) > 0 {
		t.Errorf("warned without need: %v", said)
	}
	o.Labels = map[string]string{"a": "b"}
	if said := change(offloadingv1beta1.LocalAndRemoteStrategy); len(said) > 0 {
		t.Errorf("warned without need: %v", said)
	}
}
