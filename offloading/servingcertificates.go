// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kubelet-serving,verbs=approve

const (
	// fetchTime is how long an issued request stays for its kubelet to read the certificate.
	fetchTime = time.Minute
	// unknownTime is how long a request waits for its kubelet's pod to show its address.
	unknownTime = time.Second
	// patience is how long a request that is none of ours, or not yet, is looked at.
	patience = time.Minute
)

// servingCertificates approves the requests of virtual kubelets for serving certificates of their
// nodes, and removes them when they are done. Requests of others are left to others.
type servingCertificates struct{}

// Register adds the reconciler to mgr.
func (servingCertificates) Register(mgr manager.Manager) error {
	r := &servingCertificateReconciler{client: mgr.GetClient()}
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		csr, ok := obj.(*certificatesv1.CertificateSigningRequest)
		return ok && looksOurs(csr)
	})
	gone := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	return builder.ControllerManagedBy(mgr).Named("serving-certificates").WithOptions(ctl.Options()).
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(ours)).
		Watches(&offloadingv1beta1.VirtualNode{}, handler.EnqueueRequestsFromMapFunc(r.requestsOf), builder.WithPredicates(gone)).
		Complete(r)
}

func looksOurs(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && csr.Labels[api.LabelVirtualNode] != ""
}

// requestsOf are the requests for the node of a virtual node.
func (r *servingCertificateReconciler) requestsOf(ctx context.Context, vn client.Object) []reconcile.Request {
	var found certificatesv1.CertificateSigningRequestList
	if err := r.client.List(ctx, &found, client.MatchingLabels{api.LabelVirtualNode: vn.GetName()}); err != nil {
		log.FromContext(ctx).Error(err, "list the requests of a virtual node", "node", vn.GetName())
	}
	var requests []reconcile.Request
	for i := range found.Items {
		if looksOurs(&found.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&found.Items[i])})
		}
	}
	return requests
}

type servingCertificateReconciler struct {
	client client.Client
}

// Reconcile approves one request, or removes it once its certificate could be read or nobody is left to.
func (r *servingCertificateReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	csr, err := ctl.Optional(ctx, r.client, req.NamespacedName, &certificatesv1.CertificateSigningRequest{})
	if err != nil || csr == nil {
		return reconcile.Result{}, err
	}
	in, err := r.gather(ctx, csr)
	if err != nil {
		return reconcile.Result{}, err
	}
	if plan.ServingCertificateOrphaned(in) {
		return reconcile.Result{}, r.remove(ctx, csr)
	}
	if age := time.Since(csr.CreationTimestamp.Time); len(csr.Status.Certificate) > 0 {
		if age < fetchTime {
			return reconcile.Result{RequeueAfter: fetchTime - age}, nil
		}
		return reconcile.Result{}, r.remove(ctx, csr)
	}
	if len(csr.Status.Conditions) > 0 {
		return reconcile.Result{}, nil
	}
	if reason := plan.ServingCertificateRefusal(in); reason != "" {
		return r.again(ctx, csr, reason), nil
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "LiqoVirtualNode", Message: "requested by the virtual kubelet of this node",
	})
	if err := r.client.SubResource("approval").Update(ctx, csr); err != nil {
		return reconcile.Result{}, fmt.Errorf("approve %s: %w", csr.Name, err)
	}
	return reconcile.Result{RequeueAfter: fetchTime}, nil
}

func (r *servingCertificateReconciler) remove(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	if err := r.client.Delete(ctx, csr); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", csr.Name, err)
	}
	return nil
}

// again looks once more a little later: the request may be ahead of the caches. The reason is
// logged when that is given up.
func (r *servingCertificateReconciler) again(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, reason string) reconcile.Result {
	if time.Since(csr.CreationTimestamp.Time) < patience {
		return reconcile.Result{RequeueAfter: unknownTime}
	}
	log.FromContext(ctx).Info("serving certificate not approved", "request", csr.Name, "requester", csr.Spec.Username, "reason", reason)
	return reconcile.Result{}
}

func (r *servingCertificateReconciler) gather(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) (plan.ServingCertificateInput, error) {
	in := plan.ServingCertificateInput{Request: csr.DeepCopy()}
	var vns offloadingv1beta1.VirtualNodeList
	if err := r.client.List(ctx, &vns); err != nil {
		return in, fmt.Errorf("list virtual nodes: %w", err)
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingLabels{api.LabelOffloadingComponent: api.VirtualKubeletComponent}); err != nil {
		return in, fmt.Errorf("list pods of virtual kubelets: %w", err)
	}
	in.VirtualNodes, in.KubeletPods = vns.Items, pods.Items
	return in, nil
}
