// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"crypto/ecdh"
	"encoding/base64"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	// ClusterRoleGatewayNamespaced grants a gateway its rights in its own namespace;
	// api.ClusterRoleGateway grants it reading in the whole cluster.
	ClusterRoleGatewayNamespaced = "liqo-gateway-namespaced"
	// keyVolume is the pod volume with the key Secret.
	keyVolume = "wireguard-config"
	// gatewayContainer is the name of a gateway pod's only container.
	gatewayContainer = "gateway"
	// protocolFlag is the gateway's flag for the transport.
	protocolFlag = "--protocol"
	// electionFlag is the gateway's flag for leader election among several replicas.
	electionFlag = "leader-election"
	// annotationPublicKey on a gateway pod holds the public key the pod was created with.
	annotationPublicKey = "networking.liqo.io/public-key"
	// ConditionServiceMonitorIgnored is True on gateways whose template asks for a ServiceMonitor.
	ConditionServiceMonitorIgnored = "ServiceMonitorIgnored"
	// fabricWithin and, if longer, fabricPerNode for each node is how long a gateway's pods wait for
	// the rollout of the fabric, which takes some 2 s per node.
	fabricWithin, fabricPerNode = 5 * time.Minute, 4 * time.Second
)

// WgGatewayInput holds the common input of WgGatewayServer and WgGatewayClient.
type WgGatewayInput struct {
	// Keys is the Secret with the key pair, of the user or generated, as the API server has it; nil
	// when absent.
	Keys *corev1.Secret
	// NewKey is a fresh X25519 private key, 32 bytes, for a gateway that has none.
	NewKey []byte
	// Pods are the pods of the gateway.
	Pods []corev1.Pod
	// Deployment is the gateway's current Deployment; nil when absent.
	Deployment *appsv1.Deployment
	// Fabric is the DaemonSet of the nodes' network; nil when absent.
	Fabric *appsv1.DaemonSet
	// Image replaces the gateway container's image if the template was written for three containers
	// and names another image; empty keeps the template's.
	Image string
	// Now is the transition time of conditions that change.
	Now time.Time
}

// WgServerInput holds the input of WgGatewayServer.
type WgServerInput struct {
	Root *netv1beta1.WgGatewayServer
	WgGatewayInput
	// Service is the server's current Service; nil when absent.
	Service *corev1.Service
	// Taken are the node ports of all Services, read if Service is nil.
	Taken []int32
	// Nodes are all nodes of the cluster.
	Nodes []corev1.Node
}

// WgClientInput holds the input of WgGatewayClient.
type WgClientInput struct {
	Root *netv1beta1.WgGatewayClient
	WgGatewayInput
}

// WgGatewayServer plans the workload of a server, its keys, rights and Service, and reports its
// endpoint.
func WgGatewayServer(in WgServerInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	w := wgGateway{in.WgGatewayInput, root, "server", root.Spec.Deployment, root.Spec.SecretRef, root.Spec.Metrics}
	plan, run, conditions := w.plan(root.Status.Conditions)
	service := w.service(root.Spec.Service, api.GatewayServiceName(root.Name))
	run.resolveTargets(service)
	service.Spec.PublishNotReadyAddresses = service.Spec.PublishNotReadyAddresses || w.alone()
	w.follow(service)
	former := in.keepNodePorts(service)
	plan.RequeueAfter = cmp.Or(min(plan.RequeueAfter, former), plan.RequeueAfter, former)
	if len(plan.Preserve) > 0 && in.Service != nil {
		plan.Preserve = append(plan.Preserve, service) // it leads to pods as the Deployment will have them
	} else {
		plan.Objects = append(plan.Objects, service)
	}
	internal := w.internalEndpoint()
	endpoint := serverEndpoint(in.Service, in.entries(in.entryNode(internal)))
	if last := root.Status.Endpoint; in.Service == nil && serves(service, last) {
		endpoint = last // to be known in the next pass, too, should the API server refuse it in this one
	}
	if plan.State == desired.Ready && (endpoint == nil || in.Service == nil) {
		plan.Verdict = endpointPending(root, in.Service)
	}
	plan.Status = &netv1beta1.WgGatewayServer{Status: netv1beta1.WgGatewayServerStatus{
		SecretRef: w.secretRef(), PublicKey: w.publicKey(), InternalEndpoint: internal, Endpoint: endpoint,
		Conditions: conditions,
	}}
	return plan
}

// WgGatewayClient plans the workload of a client, its keys and rights.
func WgGatewayClient(in WgClientInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	w := wgGateway{in.WgGatewayInput, root, "client", root.Spec.Deployment, root.Spec.SecretRef, root.Spec.Metrics}
	plan, _, conditions := w.plan(root.Status.Conditions)
	plan.Status = &netv1beta1.WgGatewayClient{Status: netv1beta1.WgGatewayClientStatus{
		SecretRef: w.secretRef(), PublicKey: w.publicKey(), InternalEndpoint: w.internalEndpoint(),
		Conditions: conditions,
	}}
	return plan
}

// wgGateway is the common part of a server and a client.
type wgGateway struct {
	WgGatewayInput
	root desired.Object
	// mode is server or client.
	mode       string
	deployment netv1beta1.DeploymentTemplate
	userKeys   *corev1.LocalObjectReference
	metrics    *netv1beta1.Metrics
}

func (w wgGateway) name() string { return api.GatewayResourceName(w.root.GetName()) }

// plan returns the objects that servers and clients have in common, what became of the template's
// pod, and the conditions other than the verdict.
func (w wgGateway) plan(before []metav1.Condition) (desired.Plan, adaptation, []metav1.Condition) {
	keys, public, verdict := w.keys()
	deployment, run, err := w.workload(public)
	rolling, left := w.fabricRolls(before)
	plan := desired.Plan{Verdict: verdict, Objects: w.rights()}
	switch {
	case public == nil: // without a valid pair the running Deployment stays
	case err != nil: // so it does if another would end at its start
		plan.Verdict = desired.Block("TemplateInvalid", "container %s of the gateway's template would not start: %v; "+
			"correct the template", gatewayContainer, err).Verdict
	case rolling != nil && left > 0:
		plan.Preserve, plan.RequeueAfter = []desired.Object{deployment}, left
	default:
		plan.Objects = append(plan.Objects, deployment)
	}
	var conditions []metav1.Condition
	report := func(condition, reason, message string) {
		conditions = append(conditions, stamped(before, metav1.Condition{
			Type: condition, Status: metav1.ConditionTrue, Reason: reason, Message: message,
			ObservedGeneration: w.root.GetGeneration(),
		}, w.Now))
	}
	if rolling != nil {
		conditions = append(conditions, *rolling)
	}
	if reason, message := run.summary(); reason != "" {
		report(netv1beta1.ConditionTemplateReduced, reason, message)
	}
	if w.metrics != nil && w.metrics.Enabled && w.metrics.Service != nil {
		service := w.service(*w.metrics.Service, api.GatewayMetricsName(w.root.GetName()))
		run.dropTargets(service)
		plan.Objects = append(plan.Objects, service)
	}
	if w.metrics != nil && w.metrics.Enabled && w.metrics.ServiceMonitor != nil {
		report(ConditionServiceMonitorIgnored, "NotMade", "no ServiceMonitor is made for spec.metrics; make one for "+
			"Service "+api.GatewayMetricsName(w.root.GetName())+", or one for all gateways by the Service's labels")
	}
	if keys != nil {
		plan.Objects = append(plan.Objects, keys)
	}
	if plan.State == desired.Ready && w.internalEndpoint() == nil {
		plan.Verdict = podPending(w.Pods, w.root.GetNamespace(), w.root.GetName())
	}
	return plan, run, conditions
}

// fabricRolls returns the condition FabricRolling while the pods of the fabric are being replaced, else
// nil, and for how long the pods of the gateway wait for that. A node without a fabric does not learn
// that a gateway has moved, and loses the packets to it until it has one again. Each rollout has a
// condition of its own, so one that a dead node holds up does not use up the time of the next.
func (w wgGateway) fabricRolls(before []metav1.Condition) (rolling *metav1.Condition, left time.Duration) {
	if w.Fabric == nil || len(w.Pods) == 0 {
		return nil, 0
	}
	left = max(fabricWithin, time.Duration(w.Fabric.Status.DesiredNumberScheduled)*fabricPerNode)
	now := metav1.Condition{
		Type: netv1beta1.ConditionFabricRolling, Status: metav1.ConditionTrue, Reason: netv1beta1.ReasonRolling,
		Message: fmt.Sprintf("while DaemonSet %s replaces its pods (generation %d), those of the gateway are not "+
			"replaced, for at most %v", api.FabricName, w.Fabric.Generation, left),
		ObservedGeneration: w.root.GetGeneration(), LastTransitionTime: metav1.NewTime(w.Now),
	}
	c := meta.FindStatusCondition(before, now.Type)
	same := c != nil && c.Message == now.Message
	if same {
		now.LastTransitionTime = c.LastTransitionTime
		left -= w.Now.Sub(c.LastTransitionTime.Time)
	}
	if rolls, lacks := Rollout(w.Fabric); rolls || lacks && same && left > 0 {
		return &now, left
	}
	return nil, 0
}

// Rollout reports whether a DaemonSet has pods to replace, and whether a node lacks a ready pod.
func Rollout(d *appsv1.DaemonSet) (rolls, lacks bool) {
	s := d.Status
	rolls = s.ObservedGeneration < d.Generation || s.UpdatedNumberScheduled < s.DesiredNumberScheduled
	return rolls, s.NumberUnavailable > 0
}

// KeySecretName returns the name of the Secret with a gateway's key pair: the user's, else the
// generated one.
func KeySecretName(gateway string, user *corev1.LocalObjectReference) string {
	if user != nil && user.Name != "" {
		return user.Name
	}
	return api.GatewayResourceName(gateway)
}

// keys returns the generated Secret, nil if the user provides one; the public key, nil while there
// is no valid pair; and the verdict on the pair.
func (w wgGateway) keys() (*corev1.Secret, []byte, desired.Verdict) {
	name, generated := KeySecretName(w.root.GetName(), w.userKeys), w.userKeys == nil || w.userKeys.Name == ""
	private := w.NewKey
	switch {
	case w.Keys != nil:
		private = keyBytes(w.Keys.Data[api.PrivateKeyField])
	case !generated:
		return nil, nil, desired.Wait("KeysMissing", "there is no Secret %s; create it with %s and %s, %d bytes each",
			name, api.PrivateKeyField, api.PublicKeyField, keyLength).Verdict
	}
	key, err := ecdh.X25519().NewPrivateKey(private)
	if err != nil {
		return nil, nil, desired.Block("KeysInvalid",
			"%s in Secret %s is not an X25519 key of %d bytes; correct the Secret or delete it", api.PrivateKeyField,
			name, keyLength).Verdict
	}
	public := key.PublicKey().Bytes()
	if !generated {
		if !bytes.Equal(keyBytes(w.Keys.Data[api.PublicKeyField]), public) {
			return nil, nil, desired.Block("KeysInvalid",
				"%s in Secret %s does not belong to its %s; correct the Secret", api.PublicKeyField, name,
				api.PrivateKeyField).Verdict
		}
		return nil, public, desired.Verdict{}
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: w.root.GetNamespace(),
			Labels: w.labels(map[string]string{api.LabelGatewayResource: api.True}),
		},
		Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{api.PrivateKeyField: private, api.PublicKeyField: public},
	}, public, desired.Verdict{}
}

// keyLength is the length of a WireGuard key, which is an X25519 key (RFC 7748), in bytes.
const keyLength = 32

// keyBytes returns a key, which may be raw or in the base64 form that wg prints: gateways read
// both.
func keyBytes(field []byte) []byte {
	if decoded, err := base64.StdEncoding.AppendDecode(nil, bytes.TrimSpace(field)); err == nil &&
		len(decoded) == keyLength {
		return decoded
	}
	return field
}

// secretRef refers to the Secret with the keys; nil while there is none.
func (w wgGateway) secretRef() *corev1.ObjectReference {
	if w.Keys == nil {
		return nil
	}
	return &corev1.ObjectReference{Name: w.Keys.Name, Namespace: w.root.GetNamespace()}
}

// publicKey returns the key to announce to the peer. It is the Secret's key once a pod that has it
// is scheduled. Until then it is the key of the running pod, which would not be accepted by a peer
// that knows only the new one. It is nil while there is no Secret with a valid pair.
func (w wgGateway) publicKey() []byte {
	if w.Keys == nil {
		return nil
	}
	_, public, _ := w.keys()
	announced := public
	for i := range w.Pods {
		p := &w.Pods[i]
		key, err := base64.StdEncoding.DecodeString(p.Annotations[annotationPublicKey])
		switch {
		case err != nil || len(key) != keyLength || public == nil || api.Finished(p.Status.Phase):
		case p.Spec.NodeName != "" && bytes.Equal(key, public):
			return public
		case p.Status.Phase == corev1.PodRunning:
			announced = key
		}
	}
	return announced
}

// rights lets the gateway read its objects in the whole cluster, and write in its own namespace
// only.
func (w wgGateway) rights() []desired.Object {
	name, namespace := w.root.GetName(), w.root.GetNamespace()
	labels := w.labels(map[string]string{api.LabelAppManagedBy: api.ManagedByLiqo})
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}}
	role := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	return []desired.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: w.labels(nil)}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: api.GatewayBindingName(namespace, name), Labels: labels},
			RoleRef:    role(api.ClusterRoleGateway), Subjects: subjects,
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "liqo-gateway-" + name, Namespace: namespace, Labels: labels},
			RoleRef:    role(ClusterRoleGatewayNamespaced), Subjects: subjects,
		},
	}
}

// labels returns the labels of all objects of the gateway, and further ones.
func (w wgGateway) labels(more map[string]string) map[string]string {
	own := map[string]string{api.LabelGatewayName: w.root.GetName(), api.LabelGatewayNamespace: w.root.GetNamespace()}
	if peer := w.root.GetLabels()[api.LabelRemoteClusterID]; peer != "" {
		own[api.LabelRemoteClusterID] = peer
	}
	return labels.Merge(own, more)
}

// workload returns the Deployment, what became of the template's pod, and why that would not start.
// The pod template includes the key, because a gateway reads it only at its start: another key
// recreates the pods.
func (w wgGateway) workload(public []byte) (*appsv1.Deployment, adaptation, error) {
	spec := w.deployment.Spec.DeepCopy()
	pod := &spec.Template
	run, err := w.adapt(spec)
	pod.Labels = labels.Merge(pod.Labels, w.labels(map[string]string{
		api.LabelManaged: api.True, api.LabelNetworkingComponent: api.GatewayComponent,
	}))
	if !elects(pod.Spec) {
		pod.Labels[api.LabelGatewayActive] = api.True
	}
	pod.Annotations = labels.Merge(pod.Annotations, map[string]string{
		annotationPublicKey: base64.StdEncoding.EncodeToString(public),
	})
	switch {
	case w.Deployment != nil && w.Deployment.Spec.Selector != nil:
		// A selector never changes, and another template may have another one.
		spec.Selector = w.Deployment.Spec.Selector
		pod.Labels = labels.Merge(pod.Labels, spec.Selector.MatchLabels)
	case spec.Selector == nil:
		spec.Selector = &metav1.LabelSelector{MatchLabels: w.labels(nil)}
	}
	pod.Spec.ServiceAccountName = w.root.GetName()
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Name == keyVolume {
			if v.Secret == nil {
				v.VolumeSource = corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}
			}
			v.Secret.SecretName = KeySecretName(w.root.GetName(), w.userKeys)
		}
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name(), Namespace: w.root.GetNamespace(), Annotations: w.deployment.Annotations,
			Labels: labels.Merge(w.deployment.Labels, w.labels(map[string]string{
				api.LabelNetworkingComponent: api.GatewayComponent,
			})),
		},
		Spec: *spec,
	}, run, err
}

// service returns a Service from the template, under a name that Liqo chooses.
func (w wgGateway) service(t netv1beta1.ServiceTemplate, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: w.root.GetNamespace(),
			Labels: labels.Merge(t.Labels, w.labels(nil)), Annotations: t.Annotations,
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// follow makes a Service select the pods by the labels that the Deployment's kept selector gives them.
func (w wgGateway) follow(service *corev1.Service) {
	if w.Deployment == nil || w.Deployment.Spec.Selector == nil {
		return
	}
	for key, value := range w.Deployment.Spec.Selector.MatchLabels {
		if _, ok := service.Spec.Selector[key]; ok {
			service.Spec.Selector[key] = value
		}
	}
}

// alone reports whether at most one pod can hold the tunnel. Then the Service routes to it even if
// it is not reported ready. A pod counts as not ready while the kubelet of its node hangs, and for
// some seconds after the API server was unreachable. A client that redials would find no endpoint
// then. With two pods, the ready one is right.
func (w wgGateway) alone() bool {
	marked := 0
	for i := range w.Pods {
		if p := &w.Pods[i]; p.Labels[api.LabelGatewayActive] == api.True && !api.Finished(p.Status.Phase) {
			marked++
		}
	}
	return marked <= 1
}
