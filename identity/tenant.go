// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// tenants admits consumers. The finalizer deletes the ClusterRoleBinding and the FlowSchema, which
// have no owner reference.
func (o Options) tenants() ctl.Registrar {
	sameNamespace := ctl.SameNamespace(&authv1beta1.TenantList{})
	return ctl.Controller[*authv1beta1.Tenant, plan.TenantInput]{
		Name: "tenant",
		Owns: []client.Object{
			&rbacv1.RoleBinding{}, &rbacv1.ClusterRoleBinding{}, &flowcontrolv1.FlowSchema{},
			&certificatesv1.CertificateSigningRequest{}, &corev1.Secret{},
		},
		Watches: []ctl.Watch{
			{Kind: &corev1.Namespace{}, Map: inside(&authv1beta1.TenantList{})},
			{Kind: &corev1.Secret{}, Map: labelled(api.LabelNonce, sameNamespace)},
			{Kind: &authv1beta1.Tenant{}, Map: ctl.Where(&authv1beta1.TenantList{}, rivals)},
			{Kind: &rbacv1.RoleBinding{}, Map: ctl.Where(&authv1beta1.TenantList{}, bound)},
			{Kind: &rbacv1.ClusterRoleBinding{}, Map: ctl.Where(&authv1beta1.TenantList{}, bound)},
			{Kind: &authv1beta1.ResourceSlice{}, Map: labelled(api.LabelReplicated, sameNamespace)},
			{Kind: &offv1beta1.NamespaceMap{}, Map: labelled(api.LabelReplicated, sameNamespace)},
			{Kind: &authv1beta1.Renew{}, Map: labelled(api.LabelReplicated, sameNamespace), Relevant: ctl.Comings},
			{Kind: &corev1.Node{}, Map: ifControlPlane(ctl.All(&authv1beta1.TenantList{}))},
			{Kind: &corev1.ConfigMap{}, Map: ifClientCAs(ctl.All(&authv1beta1.TenantList{}))},
		},
		Finalizer: api.FinalizerTenant,
		Gather:    o.gatherTenant,
		Plan:      plan.Tenant,
	}
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants/finalizers,verbs=update
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=renews,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings;clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,verbs=bind,resourceNames=liqo-remote-controlplane;liqo-virtual-kubelet-remote-clusterwide
// +kubebuilder:rbac:groups=flowcontrol.apiserver.k8s.io,resources=flowschemas,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch;create;patch;delete

func (o Options) gatherTenant(ctx context.Context, r ctl.Reader, root *authv1beta1.Tenant) (plan.TenantInput, error) {
	in := plan.TenantInput{Root: root, Lifetime: o.CertificateLifetime, Now: time.Now()}
	var err error
	if in.Namespace, err = namespaceOf(ctx, r, root); err != nil {
		return in, err
	}
	var tenants authv1beta1.TenantList
	if err := r.List(ctx, &tenants); err != nil {
		return in, fmt.Errorf("list tenants: %w", err)
	}
	in.Tenants = tenants.Items
	reader := r
	if root.DeletionTimestamp != nil {
		reader.Reader = r.Live // a cache may lack the last copy, and no later reconcile would delete it
	}
	if in.Slices, in.Maps, err = copies(ctx, reader, root.Namespace); err != nil {
		return in, err
	}
	var renews authv1beta1.RenewList
	if err := r.List(ctx, &renews, client.InNamespace(root.Namespace)); err != nil {
		return in, fmt.Errorf("list renews: %w", err)
	}
	in.Renews = renews.Items
	binding := client.ObjectKey{Namespace: root.Namespace, Name: api.BindingRemoteControlPlane}
	if in.ControlPlaneBinding, err = ctl.Optional(ctx, r, binding, &rbacv1.RoleBinding{}); err != nil {
		return in, err
	}
	var nonces corev1.SecretList
	if err := r.List(ctx, &nonces, client.InNamespace(root.Namespace),
		client.MatchingLabels{api.LabelNonce: "true"}); err != nil {
		return in, fmt.Errorf("list nonces: %w", err)
	}
	in.Nonces = slices.DeleteFunc(nonces.Items, func(s corev1.Secret) bool { return len(s.Data[api.NonceField]) == 0 })
	if !plan.Issued(root) {
		if err := gatherBindings(ctx, r, &in); err != nil {
			return in, err
		}
	}
	signingName := plan.SigningName(root.Namespace, root.Spec.CSR, plan.Held(root.Status.AuthParams))
	if in.Signing, err = signing(ctx, r, signingName); err != nil {
		return in, err
	}
	if in.ClientCAs, err = clientCAs(ctx, r); err != nil {
		return in, err
	}
	in.APIServer, err = o.apiServer(ctx, r)
	return in, err
}

// gatherBindings reads all bindings and slices from the API server. They matter until a certificate
// is issued.
func gatherBindings(ctx context.Context, r ctl.Reader, in *plan.TenantInput) error {
	var bindings rbacv1.RoleBindingList
	var clusterBindings rbacv1.ClusterRoleBindingList
	var all authv1beta1.ResourceSliceList
	for _, list := range []client.ObjectList{&bindings, &clusterBindings, &all} {
		if err := r.Live.List(ctx, list); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	in.RoleBindings, in.ClusterRoleBindings, in.AllSlices = bindings.Items, clusterBindings.Items, all.Items
	return nil
}

// copies reads what the consumer replicated into a namespace.
func copies(
	ctx context.Context, r ctl.Reader, namespace string,
) ([]authv1beta1.ResourceSlice, []offv1beta1.NamespaceMap, error) {
	var slices authv1beta1.ResourceSliceList
	var maps offv1beta1.NamespaceMapList
	for _, list := range []client.ObjectList{&slices, &maps} {
		if err := r.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	return slices.Items, maps.Items, nil
}

func signing(ctx context.Context, r ctl.Reader, name string) (*certificatesv1.CertificateSigningRequest, error) {
	return ctl.Optional(ctx, r, client.ObjectKey{Name: name}, &certificatesv1.CertificateSigningRequest{})
}

// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=get;list;watch

// CachedConfigMaps returns the ConfigMaps that the controllers of this room may read.
func CachedConfigMaps() cache.ByObject {
	return cache.ByObject{Namespaces: map[string]cache.Config{
		plan.ClientCAsNamespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", plan.ClientCAsConfigMap)},
	}}
}

// clientCAs returns the client CAs (PEM) that the API server trusts; empty if it publishes none.
func clientCAs(ctx context.Context, r ctl.Reader) ([]byte, error) {
	key := client.ObjectKey{Namespace: plan.ClientCAsNamespace, Name: plan.ClientCAsConfigMap}
	published, err := ctl.Optional(ctx, r, key, &corev1.ConfigMap{})
	if published == nil {
		return nil, err
	}
	return []byte(published.Data[plan.ClientCAsField]), nil
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// apiServer returns the address and CA by which peers reach the API server.
func (o Options) apiServer(ctx context.Context, r ctl.Reader) (plan.APIServer, error) {
	server := plan.APIServer{Address: o.APIServerAddress}
	if !o.TrustedCA {
		server.CA = o.CA
	}
	if server.Address != "" {
		return server, nil
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return server, fmt.Errorf("list nodes: %w", err)
	}
	server.Address = plan.NodeAPIServer(nodes.Items)
	return server, nil
}
