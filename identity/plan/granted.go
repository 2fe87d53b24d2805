// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// Reasons of the conditions on a ResourceSlice; the peer's controllers and users read them.
const (
	sliceAuthenticationAccepted = "ResourceSliceAuthenticationAccepted"
	sliceAuthenticationDenied   = "ResourceSliceAuthenticationDenied"
	sliceResourcesAccepted      = "ResourceSliceResourcesAccepted"
	sliceResourcesDenied        = "ResourceSliceResourcesDenied"
	sliceDefaultClassDisabled   = "DefaultResourceSliceClassDisabled"
	reasonTooMany               = "TooManyResourceSlices"
	// reasonCeilingExceeded: request less, or have the provider raise the ceiling that the message
	// names.
	reasonCeilingExceeded = "ResourceSliceCeilingExceeded"
	// reasonGrantAboveCapacity is the reason of a warning event at the provider: more was granted
	// than its nodes have.
	reasonGrantAboveCapacity = "GrantAboveCapacity"

	annotationDefaultStorageClass = "storageclass.kubernetes.io/is-default-class"
)

// Offer holds the resources and classes that this cluster offers to every consumer of the default
// class.
type Offer struct {
	// Defaults are granted for the resources a slice does not name.
	Defaults corev1.ResourceList
	// DefaultClass off denies every slice of the default class.
	DefaultClass        bool
	IngressClasses      []authv1beta1.IngressType
	LoadBalancerClasses []authv1beta1.LoadBalancerType
	// NodeLabels are this cluster's labels; they go onto the consumer's virtual node.
	NodeLabels map[string]string
	// Tell says what consumers are told about this cluster's nodes.
	Tell Tell
	// StorageClass is the class of volumes that name none; empty = the cluster's default.
	StorageClass string
	// Enforcement is how Quotas are enforced.
	Enforcement offv1beta1.LimitsEnforcement
	Ceilings    Ceilings
}

// GrantedSlice is the input for the copy of a consumer's ResourceSlice at the provider.
type GrantedSlice struct {
	Root *authv1beta1.ResourceSlice
	// Tenant is the one of Root's namespace, nil for none.
	Tenant *authv1beta1.Tenant
	// Slices are all of Root's namespace, Root among them.
	Slices []authv1beta1.ResourceSlice
	// Users holds the user names in this cluster. It is empty if Root has credentials: then they do
	// not matter.
	Users Users
	// Signing is the object named SigningName, nil for none.
	Signing *certificatesv1.CertificateSigningRequest
	// StorageClasses are those of this cluster; empty when storage is not offered.
	StorageClasses []storagev1.StorageClass
	// All holds the slices of all consumers; it is read only if Changes returns true.
	All []authv1beta1.ResourceSlice
	// Nodes holds the nodes of this cluster.
	Nodes []corev1.Node
	// DeviceClasses holds those of this cluster; it is read only if Changes returns true.
	DeviceClasses []resourcev1.DeviceClass
	Offer         Offer
	// APIServer is handed to the consumer.
	APIServer APIServer
	// Lifetime is that of certificates, and ClientCAs are the CAs of this cluster, as in Issue.
	Lifetime  time.Duration
	ClientCAs []byte
	Now       time.Time
}

// plan sets the two conditions of a slice, authentication and resources, and bounds its user by a
// Quota. What was accepted once stays accepted. A cordon refuses only resources that were not
// granted before: a user without a Quota runs nothing, while the consumer's liqoctl takes a refused
// authentication for an error. The consumer reads the answer in AskedSlice.plan.
func (in GrantedSlice) plan() desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	if in.Tenant == nil || in.Tenant.Status.TenantNamespace == "" {
		return desired.Wait(ReasonTenantNotFound,
			"no admitted Tenant in this namespace; create one or look at its conditions")
	}
	plan, err := in.authenticate()
	if in.many() {
		err = fmt.Errorf("this cluster serves %d slices of a consumer, and there are as many older ones; ask for "+
			"more in one of them", slicesPerTenant)
		plan = in.denied(reasonTooMany, err.Error())
	}
	in.provide(&plan, err)
	if filled := in.markCordon(); filled != nil {
		plan.Fill = filled
	}
	if lacks := in.lacks(plan.Status.(*authv1beta1.ResourceSlice)); plan.State == desired.Ready &&
		lacks.State != desired.Ready {
		plan.Degraded = lacks
	}
	return plan
}

// lacks returns the reason why the slice is not ready. Both conditions must be accepted, as at the
// consumer. For a class other than the default, Root has the condition of that class's controller.
func (in GrantedSlice) lacks(answered *authv1beta1.ResourceSlice) desired.Verdict {
	answered = answered.DeepCopy()
	answered.Spec, answered.Generation = in.Root.Spec, in.Root.Generation
	if !defaultClass(in.Root) {
		answered.Status.Conditions = append(answered.Status.Conditions,
			answer(in.Root, authv1beta1.ResourceSliceResources))
	}
	for _, t := range answerTypes {
		switch c := answer(answered, t); c.Status {
		case authv1beta1.ResourceSliceAccepted:
			if Outdated(answered, c) {
				return desired.Wait(ReasonProviderPending,
					"the changed request about %s has no answer; that to the former one stays: %s", t,
					c.Message).Verdict
			}
		case authv1beta1.ResourceSliceDenied:
			return desired.Wait(cmp.Or(c.Reason, sliceResourcesDenied), "%s", c.Message).Verdict
		default:
			return desired.Wait(ReasonProviderPending,
				"nobody here has answered about class %q; run the controller that serves it",
				in.Root.Spec.Class).Verdict
		}
	}
	return desired.Verdict{}
}

// slicesPerTenant bounds the certificates, Secrets and Quotas that a consumer can cause here. Each
// slice is a node at the consumer. A hub with a slice for each of its teams has some tens.
const slicesPerTenant = 100

// many reports whether the consumer already has slicesPerTenant older slices.
func (in GrantedSlice) many() bool {
	before := 0
	for i := range in.Slices {
		if s := &in.Slices[i]; s.UID != in.Root.UID && Replicated(s) && older(s, in.Root) {
			before++
		}
	}
	return before >= slicesPerTenant
}

// authenticate issues the certificate of the slice's user; it returns an error if it must not.
func (in GrantedSlice) authenticate() (desired.Plan, error) {
	root := in.Root
	if len(root.Spec.CSR) == 0 {
		return in.status(desired.Wait(ReasonInvalidCSR,
			"spec.csr is empty; the consumer's controller fills it in")), nil
	}
	if err := in.check(); err != nil {
		return in.denied(ReasonInvalidCSR, err.Error()), err
	}
	if err := in.unique(); err != nil {
		plan := in.denied(ReasonUserTaken, err.Error())
		plan.RequeueAfter = takenInterval
		return plan, err
	}
	if in.APIServer.Address == "" {
		return in.status(desired.Wait(ReasonAuthParamsFailed,
			"no control-plane node with an internal address; set the value apiServer.address "+
				"(--api-server-address-override)")), nil
	}
	return in.issue(), nil
}

// check returns an error unless the slice and its signing request belong to the namespace's tenant.
func (in GrantedSlice) check() error {
	root, consumer := in.Root, in.Tenant.Spec.ClusterID
	_, err := CheckRequest(root.Spec.CSR, SliceSubject(root.Name, consumer))
	if root.Spec.ConsumerClusterID != consumer {
		err = fmt.Errorf("the slice names consumer %q in the namespace of %q", root.Spec.ConsumerClusterID, consumer)
	}
	if err != nil {
		return fmt.Errorf("%w; delete the ResourceSlice on the consumer and create it again", err)
	}
	return nil
}

// unique checks that nobody else has the slice's user name, which follows from the slice's name and
// the consumer's ID. A slice that has credentials keeps them.
func (in GrantedSlice) unique() error {
	user := api.ResourceSliceUserName(in.Root.Name, in.Tenant.Spec.ClusterID)
	if other := in.Users.Holder(user); other != "" && NeedsUser(in.Root) {
		return fmt.Errorf("%s has the user name %q of this slice already; create the slice under another name",
			other, user)
	}
	return nil
}

func (in GrantedSlice) issue() desired.Plan {
	root := in.Root
	issue := Issue{
		Namespace: root.Namespace, Secret: api.RemoteCertificateSecretName(root.Name), Peer: in.Tenant.Spec.ClusterID,
		Request: root.Spec.CSR, Held: Held(root.Status.AuthParams), Signing: in.Signing,
		Lifetime: in.Lifetime, ClientCAs: in.ClientCAs, Now: in.Now,
	}
	certificate, plan := issue.plan()
	if len(certificate) == 0 {
		return in.status(plan)
	}
	answer := &authv1beta1.ResourceSlice{}
	answer.Status.AuthParams = in.APIServer.params(certificate, in.Tenant.Spec.ProxyURL)
	answer.Status.Conditions = append(answer.Status.Conditions, in.condition(authv1beta1.ResourceSliceAuthentication,
		authv1beta1.ResourceSliceAccepted, sliceAuthenticationAccepted, "ResourceSlice authentication accepted"))
	plan.Status = answer
	return plan
}

// denied refuses the authentication and keeps credentials handed out earlier.
func (in GrantedSlice) denied(reason, message string) desired.Plan {
	message = api.Printable(message) // the consumer writes parts of it
	plan := desired.Block(reason, "%s", message)
	plan.Status = &authv1beta1.ResourceSlice{Status: authv1beta1.ResourceSliceStatus{
		AuthParams: in.Root.Status.AuthParams,
		Conditions: []authv1beta1.ResourceSliceCondition{in.condition(authv1beta1.ResourceSliceAuthentication,
			authv1beta1.ResourceSliceDenied, sliceAuthenticationDenied, message)},
	}}
	return plan
}

// status keeps the answer about authentication as it is, while a plan waits.
func (in GrantedSlice) status(plan desired.Plan) desired.Plan {
	kept := &authv1beta1.ResourceSlice{Status: authv1beta1.ResourceSliceStatus{AuthParams: in.Root.Status.AuthParams}}
	if c := answer(in.Root, authv1beta1.ResourceSliceAuthentication); c.Type != "" {
		kept.Status.Conditions = []authv1beta1.ResourceSliceCondition{c}
	}
	plan.Status = kept
	return plan
}

// provide adds the granted resources and their Quota to the plan; invalid is the reason why nothing
// is granted. For a class other than the default, the administrator's own controller decides.
func (in GrantedSlice) provide(plan *desired.Plan, invalid error) {
	root, answer := in.Root, &plan.Status.(*authv1beta1.ResourceSlice).Status
	if !defaultClass(root) {
		if accepted(root, authv1beta1.ResourceSliceResources) && invalid == nil {
			quota := in.quota(root.Status.Resources)
			plan.Objects = append(plan.Objects, quota)
			plan.Events = append(plan.Events, in.granting(quota, root.Status.Resources))
		}
		return
	}
	reason, message := in.refusal(invalid)
	before := accepted(root, authv1beta1.ResourceSliceResources)
	if reason == reasonCeilingExceeded && (plan.RequeueAfter == 0 || plan.RequeueAfter > ceilingInterval) {
		plan.RequeueAfter = ceilingInterval
	}
	if reason != "" && !before {
		answer.Conditions = append(answer.Conditions,
			in.condition(authv1beta1.ResourceSliceResources, authv1beta1.ResourceSliceDenied, reason, message))
		return
	}
	in.grant(answer)
	if reason != "" {
		in.keep(answer, message)
	} else {
		plan.Events = append(plan.Events, in.aboveCapacity()...)
	}
	plan.Objects = append(plan.Objects, in.quota(answer.Resources))
	if !before || !equality.Semantic.DeepEqual(answer.Resources, root.Status.Resources) {
		plan.Events = append(plan.Events, in.granting(nil, answer.Resources))
	}
}

// granting returns the event that reports a grant: about a new Quota or, if quota is nil, about the
// status.
func (in GrantedSlice) granting(quota desired.Object, amounts corev1.ResourceList) desired.Event {
	consumer, list := in.Tenant.Spec.ClusterID, make([]string, 0, len(amounts))
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		amount := amounts[name]
		list = append(list, string(name)+"="+amount.String())
	}
	return desired.Event{Object: quota, Reason: "ResourcesGranted",
		Message: fmt.Sprintf("cluster %q may run pods as user %q until this ResourceSlice is deleted, with %s",
			consumer, api.ResourceSliceUserName(in.Root.Name, consumer), strings.Join(list, ", "))}
}

// grant sets the requested amounts and the classes that this cluster offers.
func (in GrantedSlice) grant(answer *authv1beta1.ResourceSliceStatus) {
	answer.Resources = in.amounts()
	answer.StorageClasses = in.storageClasses()
	answer.IngressClasses = in.Offer.IngressClasses
	answer.LoadBalancerClasses = in.Offer.LoadBalancerClasses
	answer.NodeLabels = in.Offer.NodeLabels
	answer.Node = NodeFacts(in.Nodes, in.Root.Status.NodeSelector, in.Offer.Tell)
	reason, message := sliceResourcesAccepted, "ResourceSlice resources accepted"
	if in.cordoned() {
		reason, message = authv1beta1.ReasonSliceCordoned, "what runs stays, nothing new is taken: "+in.cordonText()
	}
	answer.Conditions = append(answer.Conditions, in.condition(authv1beta1.ResourceSliceResources,
		authv1beta1.ResourceSliceAccepted, reason, message))
}

// keep retains the grant of an earlier request. The condition keeps that request's generation, and
// its message says why the current one is refused.
func (in GrantedSlice) keep(given *authv1beta1.ResourceSliceStatus, refusal string) {
	given.Resources = in.Root.Status.Resources
	c := &given.Conditions[len(given.Conditions)-1]
	c.ObservedGeneration = answer(in.Root, c.Type).ObservedGeneration
	if !in.cordoned() && !equality.Semantic.DeepEqual(in.amounts(), given.Resources) {
		c.Message = "what was granted stays, the change is refused: " + refusal
	}
}

// refusal returns why nothing new is granted; empty if there is no reason.
func (in GrantedSlice) refusal(invalid error) (reason, message string) {
	switch {
	case invalid != nil:
		return sliceResourcesDenied, invalid.Error()
	case in.cordoned():
		return sliceResourcesDenied, in.cordonText()
	case !in.Offer.DefaultClass:
		return sliceDefaultClassDisabled, "this cluster does not serve the default class; set spec.class to one it " +
			"serves"
	}
	for _, name := range slices.Sorted(maps.Keys(in.Root.Spec.Resources)) {
		if amount := in.Root.Spec.Resources[name]; amount.Sign() < 0 {
			return sliceResourcesDenied, fmt.Sprintf("the slice asks for %s of %s, less than nothing; set "+
				"spec.resources to what it needs", amount.String(), name)
		}
	}
	if exceeded := in.Exceeded(); exceeded != "" {
		return reasonCeilingExceeded, exceeded
	}
	return "", ""
}

// amounts returns the defaults overlaid by the amounts the slice asks for.
func (in GrantedSlice) amounts() corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for _, list := range []corev1.ResourceList{in.Offer.Defaults, in.Root.Spec.Resources} {
		for name, quantity := range list {
			amounts[name] = quantity.DeepCopy()
		}
	}
	return amounts
}

// storageClasses returns the classes of this cluster by name, without Liqo's own class.
func (in GrantedSlice) storageClasses() []authv1beta1.StorageType {
	var types []authv1beta1.StorageType
	for _, class := range in.StorageClasses {
		if class.Provisioner == api.StorageProvisioner {
			continue
		}
		byDefault := class.Annotations[annotationDefaultStorageClass] == "true"
		if in.Offer.StorageClass != "" {
			byDefault = class.Name == in.Offer.StorageClass
		}
		types = append(types, authv1beta1.StorageType{StorageClassName: class.Name, Default: byDefault})
	}
	slices.SortFunc(types, func(a, b authv1beta1.StorageType) int {
		return cmp.Compare(a.StorageClassName, b.StorageClassName)
	})
	return types
}

// quota returns the Quota of the slice's user.
func (in GrantedSlice) quota(amounts corev1.ResourceList) desired.Object {
	root := in.Root
	user := api.ResourceSliceUserName(root.Name, in.Tenant.Spec.ClusterID)
	return &offv1beta1.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: root.Namespace, Name: user, Labels: map[string]string{
			api.LabelRemoteClusterID: in.Tenant.Spec.ClusterID, api.LabelResourceSliceName: root.Name,
		}},
		Spec: offv1beta1.QuotaSpec{
			User: user, LimitsEnforcement: in.Offer.Enforcement, Resources: amounts, Cordoned: in.cordoned(),
		},
	}
}

func (in GrantedSlice) tenantCordoned() bool {
	c := in.Tenant.Spec.TenantCondition
	return c == authv1beta1.TenantCordoned || c == authv1beta1.TenantDrained
}

func (in GrantedSlice) cordoned() bool {
	value, ok := in.Root.Annotations[api.AnnotationCordon]
	return in.tenantCordoned() || ok && value != "false"
}

func (in GrantedSlice) cordonText() string {
	if in.tenantCordoned() {
		return "the tenant is " + strings.ToLower(string(in.Tenant.Spec.TenantCondition)) +
			"; ask the provider to run 'liqoctl activate tenant'"
	}
	return "the resource slice is cordoned; ask the provider to run 'liqoctl uncordon resourceslice'"
}

// markCordon returns Root with its tenant's cordon annotation; nil if Root is up to date.
func (in GrantedSlice) markCordon() desired.Object {
	_, marked := in.Root.Annotations[api.AnnotationCordonTenant]
	if marked == in.tenantCordoned() {
		return nil
	}
	filled := in.Root.DeepCopy()
	if marked {
		delete(filled.Annotations, api.AnnotationCordonTenant)
	} else {
		metav1.SetMetaDataAnnotation(&filled.ObjectMeta, api.AnnotationCordonTenant, "true")
	}
	return filled
}

// condition returns an answer to the current request; its time changes only with its status. The
// schema of other consumers may lack its generation.
func (in GrantedSlice) condition(t authv1beta1.ResourceSliceConditionType,
	status authv1beta1.ResourceSliceConditionStatus, reason, message string) authv1beta1.ResourceSliceCondition {
	c := authv1beta1.ResourceSliceCondition{Type: t, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.NewTime(in.Now)}
	if old := answer(in.Root, t); old.Status == status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	if in.Root.HasStandardConditions() {
		c.ObservedGeneration = in.Root.Generation
	}
	return c
}

func defaultClass(s *authv1beta1.ResourceSlice) bool {
	return s.Spec.Class == "" || s.Spec.Class == api.DefaultResourceSliceClass
}
