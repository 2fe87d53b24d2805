// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

const sameNames = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: gw, namespace: default, labels: {liqo.io/remote-cluster-id: milan}}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: gw, namespace: default, labels: {liqo.io/remote-cluster-id: oslo}}
spec: {endpoint: {addresses: [172.31.20.11], port: 30742, protocol: UDP}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: gw, namespace: liqo-tenant-turin-2, labels: {liqo.io/remote-cluster-id: turin-2}}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: 2-gw, namespace: liqo-tenant-turin, labels: {liqo.io/remote-cluster-id: turin}}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
`

// TestAttackNamesOfGateways: a peer names its GatewayClient as the GatewayServer of another peer in the same namespace,
// so that both have one Deployment, one key and one ServiceAccount. Peer turin names its gateway 2-gw, so that its rights
// are called like those of gateway gw of peer turin-2.
//
// Outcome: the GatewayClient is refused while the older GatewayServer is there, and its condition names that. The
// rights of the gateways of turin and turin-2 have different names, and both gateways have them.
func TestAttackNamesOfGateways(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	objects := parsed(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: liqo-tenant-turin}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: liqo-tenant-turin-2}\n---"+installed)
	for _, template := range chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}")) {
		objects = append(objects, template)
	}
	for _, obj := range append(objects, parsed(t, sameNames)...) {
		create(t, c, obj)
	}
	key := client.ObjectKey{Namespace: "default", Name: "gw"}
	dialer, server, deployment := &netv1beta1.GatewayClient{}, &netv1beta1.GatewayServer{}, &appsv1.Deployment{}
	eventually(t, func() error {
		return errors.Join(c.Get(t.Context(), key, dialer),
			equal("DuplicateName: GatewayServer default/gw has the same name, after which Deployment, keys and rights of a gateway are called; create one of the two with another name",
				message(dialer.Status.Conditions)),
			c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "gw-gw"}, deployment))
	})
	if err := errors.Join(equal("milan", deployment.Labels["liqo.io/remote-cluster-id"]), c.Get(t.Context(), key, server)); err != nil {
		t.Error(err)
	}
	eventually(t, func() error {
		var bindings rbacv1.ClusterRoleBindingList
		err := c.List(t.Context(), &bindings, client.HasLabels{"networking.liqo.io/gateway-name"})
		var bound []string
		for _, b := range bindings.Items {
			for _, s := range b.Subjects {
				bound = append(bound, s.Namespace+"/"+s.Name)
			}
		}
		slices.Sort(bound)
		return errors.Join(err, equal([]string{"default/gw", "liqo-tenant-turin-2/gw", "liqo-tenant-turin/2-gw"}, bound))
	})

	must(t, c.Delete(t.Context(), server))
	eventually(t, func() error {
		return c.Get(t.Context(), key, &netv1beta1.WgGatewayClient{}) // the name is free
	})
}
