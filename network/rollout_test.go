// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

const rolling = `
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: liqo-fabric, namespace: liqo}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: fabric, image: "liqo:1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gw-milan-1, namespace: liqo-tenant-milan, labels: {networking.liqo.io/gateway-name: milan}}
spec: {containers: [{name: gateway, image: "liqo:1"}]}
---
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayClient
metadata: {name: milan, namespace: liqo-tenant-milan}
spec:
  deployment:
    metadata: {}
    spec:
      replicas: 1
      selector: {matchLabels: {a: b}}
      template:
        metadata: {labels: {a: b}}
        spec:
          containers:
          - name: gateway
            image: liqo:1
            args: [--mode=client, --name=milan, --namespace=liqo-tenant-milan, --remote-cluster-id=milan, --endpoint-address=172.31.20.11, --endpoint-ports=30001]
`

// TestGatewaysFollowTheFabric: a change of a gateway, as to another template, is carried out when the
// fabric has been rolled out.
func TestGatewaysFollowTheFabric(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	for _, obj := range parsed(t, rolling) {
		create(t, c, obj)
	}
	fabric := &appsv1.DaemonSet{}
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "liqo-fabric"}, fabric))
	rolled := func(updated int32) {
		t.Helper()
		fabric.Status = appsv1.DaemonSetStatus{ObservedGeneration: fabric.Generation, DesiredNumberScheduled: 2, UpdatedNumberScheduled: updated}
		must(t, c.Status().Update(t.Context(), fabric))
	}
	key := client.ObjectKey{Namespace: "liqo-tenant-milan", Name: "milan"}
	gateway := func() (g netv1beta1.WgGatewayClient, waits bool) {
		must(t, c.Get(t.Context(), key, &g))
		return g, meta.IsStatusConditionTrue(g.Status.Conditions, netv1beta1.ConditionFabricRolling)
	}
	replicas := func() (n int32, err error) {
		var d appsv1.Deployment
		err = c.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "gw-milan"}, &d)
		return ptr.Deref(d.Spec.Replicas, 0), err
	}
	expect := func(wantWaits bool, want int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d replicas", want), func() error {
			_, waits := gateway()
			n, err := replicas()
			if err != nil {
				return err
			}
			if err := equal(wantWaits, waits); err != nil {
				return err
			}
			return equal(want, n)
		})
	}
	rolled(2)
	expect(false, 1)
	rolled(1)
	expect(true, 1)
	g, _ := gateway()
	g.Spec.Deployment.Spec.Replicas = ptr.To[int32](2)
	// As of another template. The Deployment keeps its selector, and its new pods have both labels.
	g.Spec.Deployment.Spec.Selector.MatchLabels = map[string]string{"c": "d"}
	g.Spec.Deployment.Spec.Template.Labels = map[string]string{"c": "d"}
	must(t, c.Update(t.Context(), &g))
	eventually(t, "the condition of the last generation", func() error { // the change was considered
		g, _ := gateway()
		return equal(g.Generation, meta.FindStatusCondition(g.Status.Conditions, netv1beta1.ConditionFabricRolling).ObservedGeneration)
	})
	expect(true, 1)
	rolled(2)
	expect(false, 2)
}
