// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// TestCheck: a Deployment without ready pods fails, and so does an admission server that is away; once both are there
// all checks pass.
func TestCheck(t *testing.T) {
	known := scheme.New()
	if err := apiextensionsv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(apitest.Start(t).Config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": api.ControllerManagerName}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: api.Namespace, Name: api.ControllerManagerName},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.Namespace}}, d} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewTLSServer(nil)
	address := server.Listener.Addr().String()
	server.Close()
	checked := func(webhook string) (string, error) {
		var out bytes.Buffer
		check := checker{Client: c, namespace: api.Namespace, deployments: []string{d.Name}, webhook: webhook, out: &out}
		err := check.run(t.Context())
		return out.String(), err
	}
	out, err := checked(address)
	if err == nil || strings.Count(out, "FAIL") != 2 || !strings.Contains(out, "0 of 1 pods are ready") {
		t.Errorf("%v:\n%s", err, out)
	}

	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1}
	if err := c.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	server = httptest.NewTLSServer(nil)
	defer server.Close()
	if out, err := checked(server.Listener.Addr().String()); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
