// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// NodeUser returns the common name in the certificate of a node's kubelet, as for real nodes.
func NodeUser(node string) string { return "system:node:" + node }

// NodesGroup is the organization in the certificates of kubelets.
const NodesGroup = "system:nodes"

// ServingCertificateInput holds a request for a kubelet's serving certificate.
type ServingCertificateInput struct {
	Root *certificatesv1.CertificateSigningRequest
	// VirtualNodes are all virtual nodes of the cluster.
	VirtualNodes []offloadingv1beta1.VirtualNode
	// KubeletPods are the pods of virtual kubelets.
	KubeletPods []corev1.Pod
	Now         time.Time
}

const (
	// fetchTime is how long an issued request stays for its kubelet to read the certificate.
	fetchTime = time.Minute
	// unknownTime is how long a request waits for its kubelet's pod to show its address.
	unknownTime = time.Second
	// patience is how long a request is retried that does not look like one of a virtual kubelet.
	patience = time.Minute
)

// ServingCertificate approves the request of a virtual kubelet for the serving certificate of its
// node. It deletes the request once the kubelet had time to read the certificate, or the virtual
// node is gone. Other requests stay.
func ServingCertificate(in ServingCertificateInput) desired.Plan {
	age := in.Now.Sub(in.Root.CreationTimestamp.Time)
	issued, decided := len(in.Root.Status.Certificate) > 0, len(in.Root.Status.Conditions) > 0
	switch {
	case in.orphaned(), issued && age >= fetchTime:
		return desired.Plan{Actions: desired.Deletes(in.Root)}
	case issued:
		return desired.Plan{RequeueAfter: fetchTime - age}
	case decided:
		return desired.Plan{}
	}
	switch why := in.refusal(); {
	case why == "":
	case age < patience: // the caches may be stale
		return desired.Plan{RequeueAfter: unknownTime}
	default:
		return desired.Block("ServingCertificateNotApproved", "%s", why)
	}
	approved := in.Root.DeepCopy()
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "LiqoVirtualNode", Message: "requested by the virtual kubelet of this node",
	}}
	return desired.Plan{
		Actions:      []desired.Action{{Verb: desired.Update, Subresource: "approval", Object: approved}},
		RequeueAfter: fetchTime,
	}
}

// refusal returns why a request is not that of a virtual kubelet, or empty. It must come from the
// service account of a virtual node, for exactly the name of its node and for addresses of its
// kubelet's pods.
func (in ServingCertificateInput) refusal() string {
	vn := requester(in)
	if vn == nil {
		return "the requester is not the service account of a virtual node"
	}
	csr, err := parseRequest(in.Root.Spec.Request)
	if err != nil {
		return err.Error()
	}
	if csr.Subject.CommonName != NodeUser(vn.Name) || !slices.Equal(csr.Subject.Organization, []string{NodesGroup}) {
		return "the subject is not that of the requester's node"
	}
	if len(csr.DNSNames)+len(csr.EmailAddresses)+len(csr.URIs) > 0 || len(csr.IPAddresses) == 0 {
		return "other names than addresses are asked for"
	}
	addresses := kubeletAddresses(in.KubeletPods, vn)
	for _, ip := range csr.IPAddresses {
		if !slices.ContainsFunc(addresses, ip.Equal) {
			return fmt.Sprintf("no pod of the virtual kubelet has address %s", ip)
		}
	}
	return ""
}

// orphaned reports whether the virtual node whose kubelet created a request is gone. It is false
// for requests of others, even if they have the label.
func (in ServingCertificateInput) orphaned() bool {
	kubelet := ":" + api.VirtualKubeletName(in.Root.Labels[api.LabelVirtualNode])
	user := in.Root.Spec.Username
	return strings.HasPrefix(user, "system:serviceaccount:") && strings.HasSuffix(user, kubelet) && requester(in) == nil
}

// requester returns the virtual node whose kubelet created the request; nil if there is none.
func requester(in ServingCertificateInput) *offloadingv1beta1.VirtualNode {
	i := slices.IndexFunc(in.VirtualNodes, func(vn offloadingv1beta1.VirtualNode) bool {
		return in.Root.Spec.Username == "system:serviceaccount:"+vn.Namespace+":"+api.VirtualKubeletName(vn.Name)
	})
	if i < 0 {
		return nil
	}
	return &in.VirtualNodes[i]
}

// kubeletAddresses returns the addresses of the pods of a virtual node's kubelet.
func kubeletAddresses(pods []corev1.Pod, vn *offloadingv1beta1.VirtualNode) []net.IP {
	var out []net.IP
	for _, pod := range pods {
		if pod.Namespace != vn.Namespace || pod.Spec.ServiceAccountName != api.VirtualKubeletName(vn.Name) {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			out = append(out, net.ParseIP(ip.IP))
		}
	}
	return out
}

func parseRequest(text []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("the request is not PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the request: %w", err)
	}
	return csr, nil
}
