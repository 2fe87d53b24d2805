// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// finalizerSlice keeps a slice of this cluster, and its Identity, until the virtual node is
// drained. At the provider it keeps the slice until its signing request is deleted, which has no
// owner.
const finalizerSlice = "resourceslice.liqo.io/finalizer"

// slices reconciles ResourceSlices: those of this cluster, and the copies of consumers.
func (o Options) slices() ctl.Registrar {
	all, sameNamespace := ctl.All(&authv1beta1.ResourceSliceList{}), ctl.SameNamespace(&authv1beta1.ResourceSliceList{})
	copied := ctl.All(&authv1beta1.ResourceSliceList{}, client.MatchingLabels{api.LabelReplicated: api.True})
	return ctl.Controller[*authv1beta1.ResourceSlice, plan.SliceInput]{
		Name: "resourceslice",
		Owns: []client.Object{
			&authv1beta1.Identity{}, &offv1beta1.VirtualNode{}, &offv1beta1.Quota{},
			&certificatesv1.CertificateSigningRequest{}, &corev1.Secret{},
		},
		Watches: []ctl.Watch{
			{Kind: &corev1.Namespace{}, Map: inside(&authv1beta1.ResourceSliceList{})},
			{Kind: &authv1beta1.Tenant{}, Map: sameNamespace},
			{Kind: &authv1beta1.ResourceSlice{}, Map: ctl.Where(&authv1beta1.ResourceSliceList{}, haveSameName)},
			{Kind: &corev1.Secret{}, Map: labelled(api.LabelIdentityType, sameNamespace)},
			{Kind: &corev1.Secret{}, Map: o.keyed(&authv1beta1.ResourceSliceList{})},
			{Kind: &storagev1.StorageClass{}, Map: all},
			{Kind: &corev1.Node{}, Map: copied, Relevant: ctl.Differs(plan.NodesDiffer)},
			{Kind: &corev1.ConfigMap{}, Map: ifClientCAs(all)},
		},
		Finalizer: finalizerSlice,
		Gather:    o.gatherSlice,
		Plan:      plan.Slice,
	}
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=resourceslices/finalizers,verbs=update
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes;quotas,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses,verbs=list

func (o Options) gatherSlice(ctx context.Context, r ctl.Reader,
	root *authv1beta1.ResourceSlice) (plan.SliceInput, error) {
	if plan.Replicated(root) {
		granted, err := o.gatherGranted(ctx, r, root)
		return plan.SliceInput{Granted: granted}, err
	}
	asked, err := o.gatherAsked(ctx, r, root)
	return plan.SliceInput{Asked: asked}, err
}

// gatherGranted reads the input for the provider's answer.
func (o Options) gatherGranted(ctx context.Context, r ctl.Reader,
	root *authv1beta1.ResourceSlice) (*plan.GrantedSlice, error) {
	in := &plan.GrantedSlice{Root: root, Offer: o.offer(), Lifetime: o.CertificateLifetime, Now: time.Now()}
	var err error
	if in.Tenant, err = tenantOf(ctx, r, root); err != nil {
		return nil, err
	}
	if in.Slices, _, err = copies(ctx, r, root.Namespace); err != nil {
		return nil, err
	}
	if plan.NeedsUser(root) {
		if in.Users, err = o.users(ctx, r); err != nil {
			return nil, err
		}
	}
	signingName := plan.SigningName(root.Namespace, root.Spec.CSR, plan.Held(root.Status.AuthParams))
	if in.Signing, err = signing(ctx, r, signingName); err != nil {
		return nil, err
	}
	if o.StorageEnabled {
		var classes storagev1.StorageClassList
		if err := r.List(ctx, &classes); err != nil {
			return nil, fmt.Errorf("list storage classes: %w", err)
		}
		in.StorageClasses = classes.Items
	}
	if in.ClientCAs, err = clientCAs(ctx, r); err != nil {
		return nil, err
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil { // they are only read
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	in.Nodes = nodes.Items
	if in.APIServer, err = o.apiServer(ctx, r); err != nil || !in.Changes() {
		return in, err
	}
	if err := gatherDeviceClasses(ctx, r.Live, in); err != nil {
		return nil, err
	}
	return in, gatherGrants(ctx, r, in)
}

// gatherDeviceClasses reads the DeviceClasses of this cluster. An API server that does not serve resource.k8s.io/v1,
// as before Kubernetes 1.34, counts as one without classes.
func gatherDeviceClasses(ctx context.Context, r client.Reader, in *plan.GrantedSlice) error {
	var classes resourcev1.DeviceClassList
	if err := r.List(ctx, &classes); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list device classes: %w", err)
	}
	in.DeviceClasses = classes.Items
	return nil
}

// gatherGrants reads the slices to check a grant against. The cache may not show the last grant yet,
// so it asks the API server before a new one. Refusals need no such request.
func gatherGrants(ctx context.Context, r ctl.Reader, in *plan.GrantedSlice) error {
	for _, from := range []client.Reader{r, r.Live} {
		var all authv1beta1.ResourceSliceList
		if len(in.Offer.Ceilings.Consumer)+len(in.Offer.Ceilings.Total) == 0 || in.Exceeded() != "" {
			break
		}
		if err := from.List(ctx, &all); err != nil {
			return fmt.Errorf("list resource slices: %w", err)
		}
		in.All = all.Items
	}
	return nil
}

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=list
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings;clusterrolebindings,verbs=list

// users reads the holders of user names in this cluster.
func (o Options) users(ctx context.Context, r ctl.Reader) (plan.Users, error) {
	var namespaces corev1.NamespaceList
	var tenants authv1beta1.TenantList
	var all authv1beta1.ResourceSliceList
	var bindings rbacv1.RoleBindingList
	var clusterBindings rbacv1.ClusterRoleBindingList
	for _, list := range []client.ObjectList{&namespaces, &tenants, &all, &bindings, &clusterBindings} {
		if err := r.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // they are only read
			return plan.Users{}, fmt.Errorf("list %T: %w", list, err)
		}
	}
	users := plan.Users{
		ClusterIDs: []string{o.ClusterID}, Tenants: tenants.Items, Slices: all.Items,
		RoleBindings: bindings.Items, ClusterRoleBindings: clusterBindings.Items,
	}
	for _, namespace := range namespaces.Items {
		if namespace.Labels[api.LabelTenantNamespace] == api.True {
			users.ClusterIDs = append(users.ClusterIDs, namespace.Labels[api.LabelRemoteClusterID])
		}
	}
	return users, nil
}

// gatherAsked reads the input for the consumer's side.
func (o Options) gatherAsked(ctx context.Context, r ctl.Reader,
	root *authv1beta1.ResourceSlice) (*plan.AskedSlice, error) {
	in := &plan.AskedSlice{Root: root, ClusterID: o.ClusterID, Now: time.Now()}
	var err error
	if in.NamespacePeer, err = namespacePeer(ctx, r, root); err != nil {
		return nil, err
	}
	if in.Keys, err = o.keys(ctx, r, root.Namespace); err != nil {
		return nil, err
	}
	if in.ControlPlane, err = identityNamed(ctx, r, root.Namespace,
		api.ControlPlaneIdentityName(in.NamespacePeer)); err != nil {
		return nil, err
	}
	if in.ControlPlaneSecrets, err = controlPlaneSecrets(ctx, r, root.Namespace); err != nil {
		return nil, err
	}
	var all authv1beta1.ResourceSliceList
	if err := r.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list resource slices: %w", err)
	}
	in.Slices = all.Items
	in.RemoteNamespace = remoteNamespace(in.ControlPlaneSecrets)
	identity := api.ResourceSliceIdentityName(root.Name)
	if in.Identity, err = identityNamed(ctx, r, root.Namespace, identity); err != nil {
		return nil, err
	}
	if in.Kubeconfig, err = kubeconfigOf(ctx, r, root.Namespace, identity); err != nil {
		return nil, err
	}
	in.VirtualNode, err = ownVirtualNode(ctx, r, root)
	return in, err
}

// ownVirtualNode returns the VirtualNode made for a slice. While the slice is being deleted it
// reads from the API server, because the cache may be stale.
func ownVirtualNode(
	ctx context.Context, r ctl.Reader, root *authv1beta1.ResourceSlice,
) (*offv1beta1.VirtualNode, error) {
	var reader client.Reader = r
	if root.DeletionTimestamp != nil {
		reader = r.Live
	}
	node, err := ctl.Optional(ctx, reader, client.ObjectKeyFromObject(root), &offv1beta1.VirtualNode{})
	if node != nil && node.Labels[api.LabelResourceSliceName] != root.Name {
		return nil, err
	}
	return node, err
}

// remoteNamespace returns the tenant namespace at the provider, from the control plane's kubeconfig
// Secrets; empty if there is none.
func remoteNamespace(controlPlaneSecrets []corev1.Secret) string {
	for _, secret := range controlPlaneSecrets {
		if remote := secret.Annotations[api.AnnotationRemoteTenantNamespace]; remote != "" {
			return remote
		}
	}
	return ""
}

// controlPlaneSecrets reads the Secrets with a kubeconfig of the control plane in a namespace.
func controlPlaneSecrets(ctx context.Context, r client.Reader, namespace string) ([]corev1.Secret, error) {
	var secrets corev1.SecretList
	if err := r.List(ctx, &secrets, client.InNamespace(namespace),
		client.MatchingLabels{api.LabelIdentityType: string(authv1beta1.IdentityControlPlane)}); err != nil {
		return nil, fmt.Errorf("list identity secrets in %s: %w", namespace, err)
	}
	return secrets.Items, nil
}

// haveSameName reports whether slices in two namespaces have the same name: one of them may replace
// the changed one, if that was deleted.
func haveSameName(changed client.Object, other *authv1beta1.ResourceSlice) bool {
	return !plan.Replicated(changed) && changed.GetName() == other.Name && changed.GetNamespace() != other.Namespace
}
