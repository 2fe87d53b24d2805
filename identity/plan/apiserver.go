// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// apiServerPort is the port of the API server on control-plane nodes: the default of kubeadm and
// others.
const apiServerPort = "6443"

// APIServer holds the address and CA by which peers reach this cluster's API server.
type APIServer struct {
	// Address is a URL; empty while it is not known.
	Address string
	// CA is a PEM bundle; empty = the certificate is trusted by everyone.
	CA []byte
}

// params returns the credentials made of a certificate.
func (a APIServer) params(certificate []byte, proxy string) *authv1beta1.AuthParams {
	return &authv1beta1.AuthParams{CA: a.CA, APIServer: a.Address, SignedCRT: certificate, ProxyURL: proxy}
}

// ControlPlaneNode reports whether a node is labelled as one that runs the API server. A virtual
// node never counts, because its labels come from a provider.
func ControlPlaneNode(node desired.Object) bool {
	if node.GetLabels()[api.LabelType] == api.TypeVirtualNode {
		return false
	}
	for _, role := range []string{"control-plane", "master", "controlplane"} {
		if _, ok := node.GetLabels()["node-role.kubernetes.io/"+role]; ok {
			return true
		}
	}
	return false
}

// NodeAPIServer returns the URL of the API server on a control-plane node: the first by name that
// has an internal address. It returns an empty string if there is none.
func NodeAPIServer(nodes []corev1.Node) string {
	sorted := slices.SortedFunc(slices.Values(nodes), func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, node := range sorted {
		if !ControlPlaneNode(&node) {
			continue
		}
		for _, address := range node.Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				return "https://" + net.JoinHostPort(address.Address, apiServerPort)
			}
		}
	}
	return ""
}
