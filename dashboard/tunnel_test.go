// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// TestPeerReach: what a peer may reach follows the modules, the gateway's technology, the IP objects and the Tenant.
func TestPeerReach(t *testing.T) {
	s := recorded(t)
	has(t, page(t, s, "/peers/turin"), "Pods in 10.10.0.0/16", "no connection to 1 protected pod in liqo", "office/printer",
		"batch-turin</th><td>batch</td><td>Accepted", "in namespace liqo-tenant-turin")
	has(t, page(t, s, "/peers/milan"), "office/printer", "Nothing by a Tenant: it has none here", "!batch-turin",
		"peering users and bindings by hand allow is not shown", "kubectl get rolebindings,clusterrolebindings -A -o wide")

	s.IPs.Items[0].Annotations = map[string]string{api.AnnotationPeers: "milan,naples"}
	has(t, page(t, s, "/peers/turin"), "No IP object", "!office/printer")
	has(t, page(t, s, "/peers/naples"), "office/printer")
	for i := range 60 {
		s.Add(&ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "many", Name: fmt.Sprint("ip-", i)},
			Status: ipamv1alpha1.IPStatus{IP: fmt.Sprint("10.70.1.", i)}})
	}
	has(t, page(t, s, "/peers/turin"), "many/ip-49", "!many/ip-50", "And 10 more.")

	s.Tenants.Items[0].Spec.TenantCondition = authv1beta1.TenantCordoned
	has(t, page(t, s, "/peers/turin"), "its Tenant is cordoned", "batch-turin")
	s.Tenants.Items[0].Spec.TenantCondition = authv1beta1.TenantDrained
	has(t, page(t, s, "/peers/turin"), "Nothing by a Tenant: its own is drained", "!batch-turin")

	for _, kind := range []string{"GatewayServer", "GatewayClient"} {
		has(t, page(t, hide(s, kind), "/peers/turin"), "Not known, as a gateway may be one of somebody else: may not list",
			"!protected pod")
	}
	s.Servers.Items[0].Status.ServerRef = &corev1.ObjectReference{APIVersion: "example.com/v1", Kind: "IPsec"}
	has(t, page(t, s, "/peers/turin"), "IPsec is not a gateway of Liqo", "!protected pod")
	has(t, page(t, hide(s, "GatewayClient"), "/peers/turin"), "IPsec is not a gateway of Liqo")
	s.ForeignClusters.Items[2].Status.Modules.Networking.Enabled = false
	has(t, page(t, s, "/peers/turin"), "Nothing: the network module is off")
}

// TestPeerTunnel: the page shows both ends of the tunnel, the age of the peer's key and how addresses are mapped.
func TestPeerTunnel(t *testing.T) {
	s := recorded(t)
	has(t, page(t, s, "/peers/milan"), "client, which dials the peer", "203.0.113.9", "32701 UDP", "10.10.0.31 on node rome-1",
		"2 of 2", "since <time", "2026-01-01 09:00:03", "10.71.0.0/16</td>", "as milan decides")
	has(t, page(t, s, "/peers/turin"), "server, which the peer dials", "10.30.0.0/16, the same")

	key := &s.PublicKeys.Items[0]
	key.ManagedFields = append(key.ManagedFields, metav1.ManagedFieldsEntry{Manager: "kubectl-edit",
		Time:     &metav1.Time{Time: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)},
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)})
	has(t, page(t, s, "/peers/milan"), "2026-01-01 09:00:03") // that was a label
	key.ManagedFields[1].FieldsV1.SetRawString(`{"f:spec":{"f:publicKey":{}}}`)
	has(t, page(t, s, "/peers/milan"), "2026-03-01")
	key.ManagedFields = nil
	has(t, page(t, s, "/peers/milan"), "Key of the peer", "!since <time datetime=\"2026-03")

	s.Configurations.Items[0].Status = netv1beta1.ConfigurationStatus{}
	has(t, page(t, s, "/peers/milan"), "none granted yet")
	has(t, page(t, hide(s, "Configuration", "Deployment", "PublicKey", "InternalNode", "IP", "Tenant"), "/peers/milan"),
		"How addresses are mapped is not known: may not list", "Replicas ready</dt><dd>not known",
		"Key of the peer</dt><dd>may not list", "is not known: may not list", "Not known: may not list")
}

// TestPeerCertificates: the page says when each certificate ends, which is not issued, and which cannot be read.
func TestPeerCertificates(t *testing.T) {
	s := recorded(t)
	has(t, page(t, s, "/peers/milan"), `<dt>controlplane-milan</dt><dd>ends <time datetime="2026-01-31T09:00:00Z">`)
	for name, params := range map[string]*authv1beta1.AuthParams{"later": nil, "odd": {SignedCRT: []byte("none")}} {
		identity := s.Identities.Items[0].DeepCopy()
		identity.Name, identity.Spec.AuthParams = name, params
		s.Add(identity)
	}
	has(t, page(t, s, "/peers/milan"), "<dt>later</dt><dd>not issued</dd>", "<dt>odd</dt><dd>not readable</dd>")
}
