// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// TenantInput is the input for a consumer's rights at this provider.
type TenantInput struct {
	Root *authv1beta1.Tenant
	// Namespace is the namespace of Root.
	Namespace *corev1.Namespace
	// Tenants are all Tenants of the cluster, Root among them.
	Tenants []authv1beta1.Tenant
	// Nonces are the Secrets with the challenges made in Root's namespace.
	Nonces []corev1.Secret
	// AllSlices, RoleBindings and ClusterRoleBindings come from all namespaces. They are empty
	// if Root has a certificate: then they do not matter.
	AllSlices           []authv1beta1.ResourceSlice
	RoleBindings        []rbacv1.RoleBinding
	ClusterRoleBindings []rbacv1.ClusterRoleBinding
	// ControlPlaneBinding is the RoleBinding of that name in Root's namespace, nil for none.
	ControlPlaneBinding *rbacv1.RoleBinding
	// Signing is the object named SigningName, nil for none.
	Signing *certificatesv1.CertificateSigningRequest
	// Slices, Maps and Renews are in Root's namespace, with the copies of the consumer.
	Slices []authv1beta1.ResourceSlice
	Maps   []offv1beta1.NamespaceMap
	Renews []authv1beta1.Renew
	// APIServer is handed to the consumer.
	APIServer APIServer
	// Lifetime is that of certificates, and ClientCAs are the CAs of this cluster, as in Issue.
	Lifetime  time.Duration
	ClientCAs []byte
	Now       time.Time
}

// Tenant plans a consumer's rights: its role bindings, its share of the API server and its
// certificate. A tenant that waits or is blocked keeps its rights. A drained tenant keeps its
// certificate but loses its bindings and everything it replicated here. A deleted tenant keeps
// nothing.
func Tenant(in TenantInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{Actions: desired.Deletes(append(in.replicated(), in.signed()...)...)}
	}
	if v := in.place(); v.State != desired.Ready {
		return in.counted(desired.Plan{Verdict: v})
	}
	if root.Spec.TenantCondition == authv1beta1.TenantDrained {
		return in.counted(in.drained(in.admitted()))
	}
	return in.counted(in.admitted())
}

// counted reports in the status how many objects the consumer has copied here; an admission policy
// limits them. The count continues if the consumer makes its Tenant invalid and keeps its rights.
func (in TenantInput) counted(plan desired.Plan) desired.Plan {
	status := &authv1beta1.Tenant{Status: authv1beta1.TenantStatus{
		TenantNamespace: in.Root.Status.TenantNamespace, AuthParams: in.Root.Status.AuthParams,
	}}
	switch granted, ok := plan.Status.(*authv1beta1.Tenant); {
	case ok:
		status = granted
	case in.Root.Status.TenantNamespace == "":
		return plan
	}
	status.Status.Copies = int32(len(in.replicated()))
	for i := range in.Renews {
		if Replicated(&in.Renews[i]) {
			status.Status.Copies++
		}
	}
	plan.Status = status
	return plan
}

// admitted plans the rights of a Tenant that place accepts.
func (in TenantInput) admitted() desired.Plan {
	root := in.Root
	if label := root.Labels[api.LabelRemoteClusterID]; label != "" && label != root.Spec.ClusterID {
		return desired.Block(ReasonInvalid, "label %s is %q but spec.clusterID is %q; make them equal",
			api.LabelRemoteClusterID, label, root.Spec.ClusterID)
	}
	if root.Labels[api.LabelRemoteClusterID] == "" {
		filled := root.DeepCopy()
		metav1.SetMetaDataLabel(&filled.ObjectMeta, api.LabelRemoteClusterID, root.Spec.ClusterID)
		return desired.Plan{Verdict: desired.Wait(ReasonMissingClusterID, "the label %s is being filled in",
			api.LabelRemoteClusterID).Verdict, Fill: filled}
	}
	if root.Spec.AuthzPolicy == authv1beta1.AuthzTolerateNoHandshake {
		return in.tolerated()
	}
	return in.handshake()
}

// place checks that no other Tenant is for the same peer or namespace.
func (in TenantInput) place() desired.Verdict {
	id, namespace := in.Root.Spec.ClusterID, in.Namespace
	switch {
	case id == "":
		return desired.Block(ReasonMissingClusterID,
			"spec.clusterID is empty; set it to the ID of the consumer").Verdict
	case namespace == nil || namespace.Labels[api.LabelTenantNamespace] != "true":
		return desired.Block(ReasonWrongNamespace,
			"this is not a tenant namespace; label it %s=true and %s=%s or move the Tenant",
			api.LabelTenantNamespace, api.LabelRemoteClusterID, id).Verdict
	case namespace.Labels[api.LabelRemoteClusterID] != id:
		return desired.Block(ReasonWrongNamespace,
			"this tenant namespace belongs to %q, not %q; move the Tenant to the namespace of its peer",
			namespace.Labels[api.LabelRemoteClusterID], id).Verdict
	}
	for i := range in.Tenants {
		if other := &in.Tenants[i]; other.UID != in.Root.UID && older(other, in.Root) &&
			(other.Namespace == in.Root.Namespace || other.Spec.ClusterID == id) {
			return desired.Block(ReasonInvalid,
				"Tenant %s/%s already stands for this namespace or for %q; delete one of the two",
				other.Namespace, other.Name, id).Verdict
		}
	}
	return desired.Verdict{}
}

// tolerated admits a consumer whose credentials the user made: no certificate, no role binding. Its
// slices still get certificates, whose group is the consumer's ID.
func (in TenantInput) tolerated() desired.Plan {
	if in.Root.Status.TenantNamespace == "" {
		if refused := in.unbound(); refused.State != desired.Ready {
			return refused
		}
	}
	binding := in.clusterBinding()
	return desired.Plan{
		Status:  &authv1beta1.Tenant{Status: authv1beta1.TenantStatus{TenantNamespace: in.Root.Namespace}},
		Objects: []desired.Object{binding, in.flowSchema()},
		Events:  []desired.Event{in.admission(binding)},
	}
}

// admission returns the event that the consumer got the rights of a binding.
func (in TenantInput) admission(binding desired.Object) desired.Event {
	return desired.Event{Object: binding, Reason: "TenantAdmitted", Message: fmt.Sprintf(
		"cluster %q is admitted in namespace %s, until this Tenant is drained or deleted", in.Root.Spec.ClusterID,
		in.Root.Namespace)}
}

// drained removes the consumer's rights from a plan, even if the Tenant is invalid. A consumer may
// write most of its Tenant, and must not keep its rights by making it invalid.
func (in TenantInput) drained(plan desired.Plan) desired.Plan {
	for i := range in.RoleBindings {
		if b := &in.RoleBindings[i]; !ours(b) && in.byHand(b) {
			return desired.Block(ReasonDraining,
				"RoleBinding %s was made by hand and lets the consumer put back what is drained; delete it", b.Name)
		}
	}
	plan.Objects = slices.DeleteFunc(plan.Objects, func(obj desired.Object) bool {
		switch obj.(type) {
		case *rbacv1.RoleBinding, *rbacv1.ClusterRoleBinding:
			return true
		}
		return false
	})
	plan.Events = slices.DeleteFunc(plan.Events, func(e desired.Event) bool { return e.Object != nil })
	plan.Actions = desired.Deletes(in.replicated()...)
	plan.Degraded = desired.Verdict{} // the consumer needs no certificate, and draining waits for Ready
	if plan.State != desired.Ready {  // which prunes nothing
		plan.Actions = append(plan.Actions, desired.Deletes(in.clusterBinding())...)
		if in.ControlPlaneBinding != nil && ours(in.ControlPlaneBinding) {
			plan.Actions = append(plan.Actions, desired.Deletes(in.ControlPlaneBinding)...)
		}
	}
	return plan
}

// handshake admits a consumer that proves possession of its key.
func (in TenantInput) handshake() desired.Plan {
	root := in.Root
	key, err := CheckRequest(root.Spec.CSR, ControlPlaneSubject(root.Spec.ClusterID))
	if err != nil {
		return desired.Block(ReasonInvalidCSR,
			"%v; create the Tenant again with 'liqoctl generate tenant' on the consumer", err)
	}
	public, err := ParsePublicKey(root.Spec.PublicKey)
	if err != nil || !sameKey(public, key) {
		return desired.Block(ReasonInvalidCSR,
			"spec.publicKey is not the key of spec.csr; create the Tenant again with 'liqoctl generate tenant' on "+
				"the consumer")
	}
	if !in.issued() {
		if refused := in.prove(); refused.State != desired.Ready {
			return refused
		}
	}
	if in.APIServer.Address == "" {
		return desired.Wait(ReasonAuthParamsFailed,
			"no control-plane node with an internal address; set the value apiServer.address "+
				"(--api-server-address-override)")
	}
	return in.grant()
}

// issued reports whether the consumer has proved possession of its key before. It reads the status,
// which only Liqo writes; peering users may write Secrets in the namespace.
func (in TenantInput) issued() bool {
	return HeldFor(Held(in.Root.Status.AuthParams), in.Root.Spec.CSR) != nil
}

// Issued reports whether the certificate is issued, so that Gather need not read bindings and
// nonces.
func Issued(t *authv1beta1.Tenant) bool { return TenantInput{Root: t}.issued() }

// prove checks the signature, and that nobody else uses the consumer's ID here. The ID becomes a
// user and group name, and would inherit rights bound to them.
func (in TenantInput) prove() desired.Plan {
	if len(in.Nonces) == 0 {
		return desired.Wait(ReasonNonceNotFound,
			"run 'liqoctl create nonce --remote-cluster-id %s' here and sign it on the consumer",
			in.Root.Spec.ClusterID)
	}
	if len(in.signed()) > 0 {
		return in.unbound()
	}
	return desired.Block(ReasonSignatureVerificationFailed,
		"spec.signature does not match the nonce of this namespace, which serves once; create the Tenant again with "+
			"'liqoctl generate tenant' on the consumer")
}

// signed returns the challenges that the Tenant's signature answers: at most one, unless somebody
// created equal ones.
func (in TenantInput) signed() []desired.Object {
	var out []desired.Object
	for i := range in.Nonces {
		if answers(in.Root, in.Nonces[i].Data[api.NonceField]) {
			out = append(out, &in.Nonces[i])
		}
	}
	return out
}

// answers reports whether a Tenant holds the signature of a challenge.
func answers(t *authv1beta1.Tenant, nonce []byte) bool {
	public, err := ParsePublicKey(t.Spec.PublicKey)
	return err == nil && len(nonce) > 0 && Verify(public, nonce, t.Spec.Signature) == nil
}

// unbound checks that nobody else has the consumer's name: no slice, and no subject of foreign
// bindings. A binding that a user made by hand for the consumer's control plane is allowed.
func (in TenantInput) unbound() desired.Plan {
	id := in.Root.Spec.ClusterID
	if other := (Users{Slices: in.AllSlices}).Holder(id); other != "" {
		plan := desired.Block(ReasonUserTaken,
			"%s has the user name %q and would share the rights of the consumer; delete it or rename the consumer",
			other, id)
		plan.RequeueAfter = takenInterval
		return plan
	}
	bound := Users{RoleBindings: in.RoleBindings, ClusterRoleBindings: in.ClusterRoleBindings}
	if b := bound.binding(in.names, in.byHand); b != "" {
		return desired.Block(ReasonForeignBinding,
			"%s already gives rights to %q, which the consumer would inherit; remove it or rename the consumer",
			b, id)
	}
	return desired.Plan{}
}

// byHand reports whether a user made the binding for declarative peering; it replaces Liqo's own.
func (in TenantInput) byHand(b *rbacv1.RoleBinding) bool {
	return in.Root.Spec.AuthzPolicy == authv1beta1.AuthzTolerateNoHandshake && b.Namespace == in.Root.Namespace &&
		b.RoleRef.Kind == "ClusterRole" && b.RoleRef.Name == api.ClusterRoleRemoteControlPlane
}

// names reports whether a subject is the consumer's user or group.
func (in TenantInput) names(s rbacv1.Subject) bool {
	return (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) && s.Name == in.Root.Spec.ClusterID
}

// grant issues the certificate and binds the roles.
func (in TenantInput) grant() desired.Plan {
	root := in.Root
	issue := Issue{
		Namespace: root.Namespace, Secret: api.RemoteCertificateSecret, Peer: root.Spec.ClusterID,
		Request: root.Spec.CSR, Held: Held(root.Status.AuthParams), Signing: in.Signing,
		Lifetime: in.Lifetime, ClientCAs: in.ClientCAs, Now: in.Now,
	}
	certificate, plan := issue.plan()
	if len(certificate) == 0 {
		return plan
	}
	plan.Status = &authv1beta1.Tenant{Status: authv1beta1.TenantStatus{
		TenantNamespace: root.Namespace, AuthParams: in.APIServer.params(certificate, root.Spec.ProxyURL),
	}}
	binding := in.controlPlaneBinding()
	plan.Objects = append(plan.Objects, binding, in.clusterBinding(), in.flowSchema())
	plan.Events = append(plan.Events, in.admission(binding))
	return plan
}

// controlPlaneBinding lets the consumer's control plane replicate into its tenant namespace.
func (in TenantInput) controlPlaneBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Root.Namespace, Name: api.BindingRemoteControlPlane,
			Labels: bindingLabels(in.Root.Spec.ClusterID)},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: api.ClusterRoleRemoteControlPlane},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: in.Root.Spec.ClusterID}},
	}
}

// clusterBinding lets the consumer's virtual kubelets read what is not in any namespace.
func (in TenantInput) clusterBinding() *rbacv1.ClusterRoleBinding {
	role, id := api.ClusterRoleVirtualKubeletRemoteClusterWide, in.Root.Spec.ClusterID
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: api.ClusterWideBindingName(role, id), Labels: bindingLabels(id)},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: id}},
	}
}

// flowPrecedence is between those of Kubernetes' own FlowSchemas: nodes, leaders and kube-system
// have at most 900, ServiceAccounts and all other users 9000 and 9900.
const flowPrecedence = 1000

// flowSchema assigns the consumer's requests to the priority level of peers: those of its control
// plane, of its slices, and of users and ServiceAccounts in a binding made by hand. A drained
// consumer keeps it, as it keeps its certificates. Without a distinguisher, all these requests are
// one flow, so more slices give a consumer no larger share.
func (in TenantInput) flowSchema() *flowcontrolv1.FlowSchema {
	id, all := in.Root.Spec.ClusterID, []string{"*"}
	subjects := []flowcontrolv1.Subject{
		{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: id}},
		{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: id}},
	}
	for i := range in.RoleBindings {
		if b := &in.RoleBindings[i]; !ours(b) && in.byHand(b) {
			subjects = append(subjects, in.flowSubjects(b.Subjects)...)
		}
	}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: api.TenantFlowSchemaName(id), Labels: bindingLabels(id)},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: api.PeersPriorityLevel},
			MatchingPrecedence:         flowPrecedence,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: subjects,
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all,
					Namespaces: all, ClusterScope: true}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
			}},
		},
	}
}

// flowSubjects returns the other users and ServiceAccounts among a binding's subjects. Groups are
// left out, because they may have members that are no peers.
func (in TenantInput) flowSubjects(subjects []rbacv1.Subject) []flowcontrolv1.Subject {
	var out []flowcontrolv1.Subject
	for _, s := range subjects {
		switch {
		case s.Kind == rbacv1.UserKind && s.Name != in.Root.Spec.ClusterID:
			out = append(out, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser,
				User: &flowcontrolv1.UserSubject{Name: s.Name}})
		case s.Kind == rbacv1.ServiceAccountKind:
			out = append(out, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount,
				ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: s.Namespace, Name: s.Name}})
		}
	}
	return out
}

func bindingLabels(id string) map[string]string {
	return map[string]string{
		api.LabelRemoteClusterID: id, api.LabelAppManagedBy: api.ManagedByLiqo, api.LabelAppPartOf: api.PartOf,
	}
}

// replicated returns the objects that the consumer replicated into the tenant namespace.
func (in TenantInput) replicated() []desired.Object {
	var objects []desired.Object
	for i := range in.Slices {
		if Replicated(&in.Slices[i]) {
			objects = append(objects, &in.Slices[i])
		}
	}
	for i := range in.Maps {
		if Replicated(&in.Maps[i]) {
			objects = append(objects, &in.Maps[i])
		}
	}
	return objects
}

// Replicated reports whether an object is a copy made by the peer.
func Replicated(obj desired.Object) bool {
	return obj.GetLabels()[api.LabelReplicated] == "true"
}

// ours reports whether Liqo made a binding.
func ours(obj desired.Object) bool {
	labels := obj.GetLabels()
	return labels[api.LabelManaged] == "true" || labels[api.LabelAppManagedBy] == api.ManagedByLiqo
}

// older orders objects of one kind: if two exclude each other, the older one wins.
func older(a, b desired.Object) bool {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !at.Equal(&bt) {
		return at.Before(&bt)
	}
	return a.GetUID() < b.GetUID()
}
