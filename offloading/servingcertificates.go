// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kubelet-serving,verbs=approve

// servingCertificates approves the requests of virtual kubelets for serving certificates of their
// nodes, and removes them when they are done.
func servingCertificates() ctl.Registrar {
	ofNode := func(vn client.Object, root *certificatesv1.CertificateSigningRequest) bool {
		return root.Labels[api.LabelVirtualNode] == vn.GetName() && looksLikeOurs(root)
	}
	gone := func(_, after client.Object) bool { return after == nil }
	return ctl.Controller[*certificatesv1.CertificateSigningRequest, plan.ServingCertificateInput]{
		Name: "serving-certificates", Quiet: true, Only: looksLikeOurs,
		Watches: []ctl.Watch{{
			Kind: &offloadingv1beta1.VirtualNode{}, Relevant: gone,
			Map: ctl.Where(&certificatesv1.CertificateSigningRequestList{}, ofNode),
		}},
		Gather: gatherServingCertificate,
		Plan:   plan.ServingCertificate,
	}
}

// looksLikeOurs reports whether a request claims to be of a virtual kubelet; anybody can set the
// label.
func looksLikeOurs(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && csr.Labels[api.LabelVirtualNode] != ""
}

func gatherServingCertificate(ctx context.Context, r ctl.Reader,
	root *certificatesv1.CertificateSigningRequest) (plan.ServingCertificateInput, error) {
	in := plan.ServingCertificateInput{Root: root, Now: time.Now()}
	var vns offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &vns); err != nil {
		return in, fmt.Errorf("list virtual nodes: %w", err)
	}
	var pods corev1.PodList
	if err := r.List(ctx, &pods,
		client.MatchingLabels{api.LabelOffloadingComponent: api.VirtualKubeletComponent}); err != nil {
		return in, fmt.Errorf("list pods of virtual kubelets: %w", err)
	}
	in.VirtualNodes, in.KubeletPods = vns.Items, pods.Items
	return in, nil
}
