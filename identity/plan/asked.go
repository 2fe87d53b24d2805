// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto"
	"maps"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// AskedSlice is the input for a ResourceSlice at the consumer.
type AskedSlice struct {
	Root *authv1beta1.ResourceSlice
	// ClusterID is this cluster, the consumer.
	ClusterID string
	// NamespacePeer is the peer Root's namespace belongs to; empty = not a tenant namespace.
	NamespacePeer string
	// Keys holds the private keys for NamespacePeer.
	Keys Keys
	// Slices are all ResourceSlices of the cluster, Root among them.
	Slices []authv1beta1.ResourceSlice
	// RemoteNamespace is the tenant namespace in the provider, as the control plane's identity
	// says; empty while there is none.
	RemoteNamespace string
	// ControlPlane is the control plane's Identity for the provider, nil for none.
	ControlPlane *authv1beta1.Identity
	// ControlPlaneSecrets are the Secrets with a kubeconfig of the control plane for the provider.
	ControlPlaneSecrets []corev1.Secret
	// Identity, Kubeconfig (the Identity's Secret) and VirtualNode were created from the provider's
	// answer; nil until then.
	Identity    *authv1beta1.Identity
	Kubeconfig  *corev1.Secret
	VirtualNode *offv1beta1.VirtualNode
	Now         time.Time
}

// plan fills the request and plans the Identity and VirtualNode of the provider's answer, which
// GrantedSlice.plan computes there. A deleted slice first deletes its VirtualNode, which needs the
// Identity to drain.
func (in AskedSlice) plan() desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return in.release()
	}
	if v := in.unique(); v.State != desired.Ready {
		return desired.Plan{Verdict: v}
	}
	filled, v := in.fill()
	if v.State != desired.Ready {
		return desired.Plan{Verdict: v}
	}
	if !reflect.DeepEqual(filled, root) {
		plan := desired.Wait(ReasonProviderPending, "the request is being filled in")
		plan.Fill = filled
		return plan
	}
	return in.refused(in.outdated(in.renewed(in.use())))
}

// renewed makes a plan report that the provider has not renewed the slice's certificate in time.
func (in AskedSlice) renewed(plan desired.Plan) desired.Plan {
	held := HeldFor(Held(in.Root.Status.AuthParams), in.Root.Spec.CSR)
	if held == nil {
		return plan
	}
	if plan.RequeueAfter = untilLate(held, in.Now); plan.RequeueAfter == 0 && plan.State == desired.Ready {
		plan.Degraded = notRenewed(held)
	}
	return plan
}

// outdated makes a plan report that the provider has not answered the slice's current request. The
// earlier grant stays in use meanwhile, so that no pod is disturbed.
func (in AskedSlice) outdated(plan desired.Plan) desired.Plan {
	for _, t := range answerTypes {
		if c := answer(in.Root, t); Outdated(in.Root, c) {
			return reporting(plan, desired.Wait(ReasonProviderPending,
				"the provider has not answered the changed request about %s; its answer to the former one stays: %s",
				t, c.Message).Verdict)
		}
	}
	return plan
}

// reporting replaces the verdict that a plan reports. What the plan prunes stays the same.
func reporting(plan desired.Plan, v desired.Verdict) desired.Plan {
	if plan.State == desired.Ready {
		plan.Degraded = v
	} else {
		plan.Verdict = v
	}
	return plan
}

// refused makes a plan report that the provider refuses the slice, even if it accepted it earlier.
func (in AskedSlice) refused(plan desired.Plan) desired.Plan {
	c := answer(in.Root, authv1beta1.ResourceSliceReplicated)
	if c.Status != authv1beta1.ResourceSliceFalse {
		return plan
	}
	return reporting(plan, desired.Wait(c.Reason, "%s", c.Message).Verdict)
}

// release waits until the virtual node is drained, so that the Identity stays until then.
func (in AskedSlice) release() desired.Plan {
	if in.VirtualNode == nil {
		return desired.Plan{}
	}
	plan := desired.Wait(ReasonDraining, "VirtualNode %s is being drained; look at its conditions", in.Root.Name)
	plan.Actions = desired.Deletes(in.VirtualNode)
	return plan
}

// unique refuses a second slice of the same name, and names that are too long for
// labels: slice, VirtualNode and Node share one name.
func (in AskedSlice) unique() desired.Verdict {
	if longest := validation.LabelValueMaxLength; len(in.Root.Name) > longest {
		return desired.Block(ReasonInvalid, "the name has %d characters, but labels allow at most %d; "+
			"delete this one and choose a shorter name", len(in.Root.Name), longest).Verdict
	}
	for i := range in.Slices {
		other := &in.Slices[i]
		if other.UID != in.Root.UID && other.Name == in.Root.Name && !Replicated(other) && older(other, in.Root) {
			return desired.Block(ReasonInvalid,
				"a resourceslice with the same name already exists in the cluster, in namespace %s; delete this one "+
					"and choose another name",
				other.Namespace).Verdict
		}
	}
	return desired.Verdict{}
}

// fill sets the fields that the user left out: consumer, provider and the signing request.
func (in AskedSlice) fill() (*authv1beta1.ResourceSlice, desired.Verdict) {
	filled := in.Root.DeepCopy()
	peer := cmp.Or(in.Root.Spec.ProviderClusterID, in.Root.Labels[api.LabelRemoteClusterID], in.NamespacePeer)
	switch {
	case in.NamespacePeer == "":
		return nil, desired.Block(ReasonWrongNamespace,
			"this is not a tenant namespace; create the ResourceSlice in that of its provider").Verdict
	case peer != in.NamespacePeer:
		return nil, desired.Block(ReasonWrongNamespace,
			"this tenant namespace belongs to %q, not %q; create the ResourceSlice in that of its provider",
			in.NamespacePeer, peer).Verdict
	case len(in.Keys.Own) == 0:
		return nil, withoutKey().Verdict
	}
	for label, value := range replicationLabels(peer) {
		metav1.SetMetaDataLabel(&filled.ObjectMeta, label, value)
	}
	filled.Spec.ConsumerClusterID, filled.Spec.ProviderClusterID = in.ClusterID, peer
	key, err := in.key()
	if err == nil && !in.requestedWith(key) {
		filled.Spec.CSR, err = NewRequest(key, SliceSubject(in.Root.Name, in.ClusterID))
	}
	if err != nil {
		return nil, unreadable(err, in.Root.Namespace).Verdict
	}
	return filled, desired.Verdict{}
}

// key returns the private key for the slice's request. It is the control plane's key, because a
// provider may compare the two: the shared key until the control plane authenticates with the
// peer's own. If the control plane's credentials do not show which key it uses, the slice keeps its
// current key.
func (in AskedSlice) key() (crypto.Signer, error) {
	own, err := ParsePrivateKey(in.Keys.Own)
	if err != nil {
		return nil, err
	}
	shared, err := ParsePrivateKey(in.Keys.Shared)
	if err != nil { // a new installation may have none
		return own, nil
	}
	if in.ControlPlane != nil && in.Keys.usesShared(in.ControlPlane.Spec.AuthParams, in.ControlPlaneSecrets) {
		return shared, nil
	}
	usesOwn := in.ControlPlane != nil && certificateFor(in.ControlPlane.Spec.AuthParams, own) != nil
	if !usesOwn && in.requestedWith(shared) && hold(appendSecret(nil, in.Kubeconfig), shared) {
		return shared, nil
	}
	return own, nil
}

// requestedWith reports whether spec.csr is a valid request for this key.
func (in AskedSlice) requestedWith(key crypto.Signer) bool {
	asked, err := CheckRequest(in.Root.Spec.CSR, SliceSubject(in.Root.Name, in.ClusterID))
	return err == nil && sameKey(asked, key.Public())
}

// use plans the objects for the provider's answer. Unless that is an acceptance, it neither adds
// nor removes any.
func (in AskedSlice) use() desired.Plan {
	root := in.Root
	for _, t := range answerTypes {
		switch c := answer(root, t); c.Status {
		case authv1beta1.ResourceSliceAccepted:
		case authv1beta1.ResourceSliceDenied:
			return desired.Wait(ReasonProviderDenied, "the provider denied %s (%s: %s); ask its administrator", t,
				c.Reason, c.Message)
		default:
			return in.pending(t)
		}
	}
	if root.Status.AuthParams == nil || in.RemoteNamespace == "" {
		return desired.Wait(ReasonProviderPending,
			"no control-plane identity for %s in this namespace; run 'liqoctl authenticate'",
			root.Spec.ProviderClusterID)
	}
	plan := desired.Plan{Objects: []desired.Object{in.identity()}}
	if in.wantsNode() {
		if in.Identity == nil || in.Identity.Status.KubeconfigSecretRef == nil {
			plan.Verdict = desired.Wait(ReasonProviderPending,
				"Identity %s has no kubeconfig yet; look at its conditions",
				api.ResourceSliceIdentityName(root.Name)).Verdict
			return plan
		}
		plan.Objects = append(plan.Objects, in.virtualNode())
		plan.Verdict = in.nodeReady()
	}
	return plan
}

// nodeReady returns the readiness of the VirtualNode: a slice is ready when its node is.
func (in AskedSlice) nodeReady() desired.Verdict {
	if in.VirtualNode != nil {
		for _, c := range in.VirtualNode.Status.Conditions {
			switch {
			case c.Type != desired.ConditionReady:
			case c.Status == offv1beta1.VirtualNodeConditionStatus(metav1.ConditionTrue):
				return desired.Verdict{}
			default:
				return desired.Wait(c.Reason, "%s", c.Message).Verdict
			}
		}
	}
	return desired.Wait(ReasonNodePending, "VirtualNode %s is being made; look at its conditions", in.Root.Name).Verdict
}

// pending waits for the second answer, but creates the Identity as soon as the first is accepted.
func (in AskedSlice) pending(t authv1beta1.ResourceSliceConditionType) desired.Plan {
	plan := desired.Wait(ReasonProviderPending,
		"the provider has not answered about %s; look at 'liqoctl info peer', and ask its administrator whether this "+
			"cluster is drained there", t)
	if t == authv1beta1.ResourceSliceResources && !defaultClass(in.Root) {
		plan = desired.Wait(ReasonProviderPending,
			"nobody at the provider has answered about class %q; ask its administrator for one that is served",
			in.Root.Spec.Class)
	}
	if t == authv1beta1.ResourceSliceResources && in.Root.Status.AuthParams != nil && in.RemoteNamespace != "" {
		plan.Objects = []desired.Object{in.identity()}
	}
	return plan
}

// wantsNode reports whether the user asks for a virtual node: the annotation exists and is not
// false.
func (in AskedSlice) wantsNode() bool {
	value, ok := in.Root.Annotations[api.AnnotationCreateVirtualNode]
	return ok && value != "false"
}

// harmless returns the labels that a provider may set on a node of this cluster. It drops labels
// that mark a node as trusted (KEP-279, node restriction) and those that name its machine.
func harmless(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	maps.DeleteFunc(out, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "node-role.kubernetes.io" || strings.HasSuffix(domain, "node-restriction.kubernetes.io") ||
			key == corev1.LabelHostname || key == "kubernetes.io/role"
	})
	return out
}

func (in AskedSlice) labels() map[string]string {
	return map[string]string{
		api.LabelRemoteClusterID: in.Root.Spec.ProviderClusterID, api.LabelResourceSliceName: in.Root.Name,
	}
}

func (in AskedSlice) identity() *authv1beta1.Identity {
	root := in.Root
	return &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: root.Namespace, Name: api.ResourceSliceIdentityName(root.Name),
			Labels: in.labels()},
		Spec: authv1beta1.IdentitySpec{
			ClusterID: root.Spec.ProviderClusterID, Type: authv1beta1.IdentityResourceSlice,
			AuthParams: root.Status.AuthParams.DeepCopy(), Namespace: in.RemoteNamespace,
		},
	}
}

// virtualNode returns the VirtualNode for the granted resources. Admission sets the fields it
// leaves out.
func (in AskedSlice) virtualNode() *offv1beta1.VirtualNode {
	root, granted := in.Root, in.Root.Status
	spec := offv1beta1.VirtualNodeSpec{
		ClusterID: root.Spec.ProviderClusterID,
		KubeconfigSecretRef: &corev1.LocalObjectReference{
			Name: api.KubeconfigSecretName(api.ResourceSliceIdentityName(root.Name))},
		ResourceQuota:       corev1.ResourceQuotaSpec{Hard: granted.Resources.DeepCopy()},
		Labels:              harmless(granted.NodeLabels),
		Node:                granted.Node.DeepCopy(),
		StorageClasses:      granted.StorageClasses,
		IngressClasses:      granted.IngressClasses,
		LoadBalancerClasses: granted.LoadBalancerClasses,
	}
	if len(granted.NodeSelector) > 0 {
		spec.OffloadingPatch = &offv1beta1.OffloadingPatch{NodeSelector: granted.NodeSelector}
	}
	return &offv1beta1.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: root.Namespace, Name: root.Name, Labels: in.labels()},
		Spec:       spec,
	}
}
