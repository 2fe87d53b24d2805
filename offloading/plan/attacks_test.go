// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/offloading/plan"
)

func guest() *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop-milan", Name: "web", UID: "s", Generation: 1, Labels: map[string]string{api.LabelOrigin: "milan"}},
		Spec:       offloadingv1beta1.ShadowPodSpec{Pod: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}},
	}
}

func planned(root *offloadingv1beta1.ShadowPod, guests plan.GuestPods) desired.Plan {
	return plan.ShadowPod(plan.ShadowPodInput{Root: root, Guests: guests, Now: time.Unix(1000, 0)})
}

// jsonNames are the names of a struct's fields as manifests have them.
func jsonNames(of any) map[string]int {
	names := map[string]int{}
	for i := range reflect.TypeOf(of).NumField() {
		field := reflect.TypeOf(of).Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[name] = i
	}
	return names
}

// TestAttackPodAsksForMore: a consumer makes ShadowPods that ask for a field of a pod's spec, a kind of volume or a
// runtime class that gives power over the provider: its host's namespaces, a node, precedence, devices, a server to
// mount from. Webhooks were away when they were created.
//
// Outcome: only fields and volumes on a list of what workloads need are granted. A pod with another is not created,
// and the ShadowPod's condition names the field and the chart value that would allow it.
func TestAttackPodAsksForMore(t *testing.T) {
	t.Parallel()
	granted := map[string]bool{}
	for name, i := range jsonNames(corev1.PodSpec{}) {
		root := guest()
		field := reflect.ValueOf(&root.Spec.Pod).Elem().Field(i)
		if name == "containers" {
			granted[name] = len(planned(root, plan.GuestPods{}).Objects) == 1
			continue
		}
		something(field)
		for i := range root.Spec.Pod.Volumes {
			root.Spec.Pod.Volumes[i].EmptyDir = &corev1.EmptyDirVolumeSource{} // one of no kind is refused
		}
		p := planned(root, plan.GuestPods{RuntimeClasses: []string{"x"}})
		granted[name] = len(p.Objects) == 1
		if granted[name] {
			continue
		}
		if p.State != desired.Blocked || p.Reason != "PodForbidden" || !strings.Contains(p.Message, name) || !strings.Contains(p.Message, "offloading.guestPods.fields") {
			t.Errorf("%s: %+v", name, p.Verdict)
		}
		if p := planned(root, plan.GuestPods{Fields: []string{name}}); len(p.Objects) != 1 {
			t.Errorf("%s is refused though the provider allows it: %+v", name, p.Verdict)
		}
	}
	for _, name := range []string{
		"hostNetwork", "hostPID", "hostIPC", "nodeName", "priority", "priorityClassName", "preemptionPolicy", "schedulerName", "schedulingGates",
		"resourceClaims", "os", "schedulingGroup", "evictionResponders",
	} {
		if granted[name] {
			t.Errorf("%s is granted", name)
		}
	}
	for name, is := range granted {
		if !is && slices.Contains([]string{"containers", "initContainers", "volumes", "tolerations", "affinity", "dnsConfig", "hostAliases", "securityContext"}, name) {
			t.Errorf("%s is refused", name)
		}
	}
	for name, i := range jsonNames(corev1.VolumeSource{}) {
		root := guest()
		root.Spec.Pod.Volumes = make([]corev1.Volume, 1)
		something(reflect.ValueOf(&root.Spec.Pod.Volumes[0].VolumeSource).Elem().Field(i))
		allowed := slices.Contains([]string{"configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}, name)
		if p := planned(root, plan.GuestPods{}); (len(p.Objects) == 1) != allowed {
			t.Errorf("a volume of kind %s: %+v", name, p.Verdict)
		}
		if p := planned(root, plan.GuestPods{Volumes: []string{name}}); len(p.Objects) != 1 {
			t.Errorf("a volume of kind %s is refused though the provider allows it: %+v", name, p.Verdict)
		}
	}
	certificate := guest()
	certificate.Spec.Pod.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{}}},
	}}}}
	class := guest()
	class.Spec.Pod.RuntimeClassName = new("privileged")
	newer := func(volume string) *offloadingv1beta1.ShadowPod {
		root := guest()
		if err := json.Unmarshal([]byte(volume), &root.Spec.Pod.Volumes); err != nil {
			t.Fatal(err)
		}
		return root
	}
	for says, root := range map[string]*offloadingv1beta1.ShadowPod{
		"projected.podCertificate": certificate, `runtime class "privileged"`: class,
		`volume "disk" is of a kind that Liqo does not know`:  newer(`[{"name": "disk", "kindOfNextYear": {}}]`),
		`volume "" is of a kind that Liqo does not know`:      newer(`[{"kindOfNextYear": {}}]`),
		`volume "files" is of a kind that Liqo does not know`: newer(`[{"name": "files", "projected": {"sources": [{"configMap": {"name": "a"}}, {"sourceOfNextYear": {}}]}}]`),
	} {
		if p := planned(root, plan.GuestPods{}); len(p.Objects) > 0 || !strings.Contains(p.Message, says) {
			t.Errorf("%s: %+v", says, p.Verdict)
		}
	}
}

// something sets a field to a value that is not its zero value.
func something(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString("x")
	case reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if kind := v.Elem().Kind(); kind != reflect.Struct {
			something(v.Elem())
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if v.Index(0).Kind() == reflect.Struct && v.Index(0).Type() == reflect.TypeFor[corev1.Toleration]() {
			v.Index(0).Field(0).SetString("a")
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a").Convert(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	}
}

// TestAttackPodTakesAnIdentity: a consumer labels or annotates a pod so that a controller of the provider's cloud, CNI
// or vault gives it an identity, a network or secrets, when it is created or later.
//
// Outcome: the pod does not get the key, and the condition names it. Controllers of home may have acted on the key, so
// the pod itself runs.
func TestAttackPodTakesAnIdentity(t *testing.T) {
	t.Parallel()
	for _, key := range []string{
		"eks.amazonaws.com/role-arn", "azure.workload.identity/use", "iam.gke.io/gcp-service-account", "aadpodidbinding",
		"k8s.v1.cni.cncf.io/networks", "cni.projectcalico.org/ipAddrs", "vault.hashicorp.com/agent-inject",
	} {
		for _, set := range []func(*offloadingv1beta1.ShadowPod){
			func(root *offloadingv1beta1.ShadowPod) { root.Labels[key] = "x" },
			func(root *offloadingv1beta1.ShadowPod) { root.Annotations = map[string]string{key: "x"} },
		} {
			root := guest()
			made := planned(root, plan.GuestPods{}).Objects[0].(*corev1.Pod)
			set(root)
			p := planned(root, plan.GuestPods{})
			if pod := p.Objects[0].(*corev1.Pod); pod.Labels[key]+pod.Annotations[key] != "" || !tells(p, key) {
				t.Errorf("%s: %v %v, %+v", key, pod.Labels, pod.Annotations, p.Degraded)
			}
			p = planned(root, plan.GuestPods{Annotations: []string{key}})
			if pod := p.Objects[0].(*corev1.Pod); pod.Labels[key]+pod.Annotations[key] != "x" || tells(p, key) {
				t.Errorf("%s is left out though the provider allows it: %+v", key, p.Degraded)
			}
			made.UID, made.OwnerReferences = "p", []metav1.OwnerReference{{UID: "s", Controller: new(true)}}
			p = plan.ShadowPod(plan.ShadowPodInput{Root: root, Pod: made, Now: time.Unix(1000, 0)})
			if !tells(p, key) {
				t.Errorf("%s later: %+v", key, p.Degraded)
			}
			for _, action := range p.Actions {
				if pod := action.Object.(*corev1.Pod); pod.Labels[key]+pod.Annotations[key] != "" {
					t.Errorf("%s follows", key)
				}
			}
		}
	}
}

// TestAttackPodTakesOverAKey: a consumer copies an annotation that a controller of the provider has set on its pod to the
// ShadowPod, to have it removed from the pod together with that of the ShadowPod.
//
// Outcome: the annotation stays that of the controller.
func TestAttackPodTakesOverAKey(t *testing.T) {
	t.Parallel()
	const key, value = "k8s.ovn.org/pod-networks", "set by the network"
	root := guest()
	pod := planned(root, plan.GuestPods{}).Objects[0].(*corev1.Pod)
	pod.UID, pod.OwnerReferences = "p", []metav1.OwnerReference{{UID: "s", Controller: new(true)}}
	pod.Annotations[key] = value
	for _, annotations := range []map[string]string{{key: value}, {key: "mine"}, nil} {
		root.Annotations = annotations
		p := plan.ShadowPod(plan.ShadowPodInput{Root: root, Pod: pod, Now: time.Unix(1000, 0)})
		for _, action := range p.Actions {
			pod = action.Object.(*corev1.Pod)
		}
		if pod.Annotations[key] != value {
			t.Errorf("with %v the pod has %q", annotations, pod.Annotations[key])
		}
	}
}

// tells reports whether a plan reports that the pod lacks a label or annotation.
func tells(p desired.Plan, key string) bool {
	return p.Degraded.Reason == api.ReasonMetadataLeftOut && strings.Contains(p.Degraded.Message, "["+key+"]")
}

// TestAttackPodToleratesEverything: a consumer's pod tolerates every taint, or a taint of control planes, to run where
// the provider runs its own: on control planes and nodes set aside. It says so when it is created or later.
//
// Outcome: a toleration without a key covers only taints node.kubernetes.io/*, and an event says so once. A pod that
// names a taint of control planes is not created; one that runs does not get the toleration.
func TestAttackPodToleratesEverything(t *testing.T) {
	t.Parallel()
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	root := guest()
	before := planned(root, plan.GuestPods{}).Objects[0].(*corev1.Pod)
	root.Spec.Pod.Tolerations = []corev1.Toleration{everything, {Key: "own", Operator: corev1.TolerationOpExists}}
	p := planned(root, plan.GuestPods{Tolerations: []string{"gpu"}})
	if len(p.Events) != 1 || p.Events[0].Reason != "TolerationsNarrowed" || p.Events[0].Object != p.Objects[0] {
		t.Errorf("no event: %+v", p)
	}
	covers := func(spec corev1.PodSpec, key string) bool {
		taint := &corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
		return slices.ContainsFunc(spec.Tolerations, func(tol corev1.Toleration) bool { return tol.Key == "" || tol.Key == taint.Key })
	}
	for key, want := range map[string]bool{
		"own": true, "gpu": true, "node.kubernetes.io/not-ready": true, "node.kubernetes.io/unreachable": true,
		"node-role.kubernetes.io/control-plane": false, "node-role.kubernetes.io/master": false, "dedicated": false, api.VirtualNodeTaintKey: false,
	} {
		if covers(p.Objects[0].(*corev1.Pod).Spec, key) != want {
			t.Errorf("taint %s is tolerated: %v", key, !want)
		}
	}
	before.UID, before.OwnerReferences = "p", []metav1.OwnerReference{{UID: "s", Controller: new(true)}}
	for _, key := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		root := guest()
		root.Spec.Pod.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
		if p := planned(root, plan.GuestPods{}); len(p.Objects) > 0 || !strings.Contains(p.Message, key) {
			t.Errorf("%s: %+v", key, p.Verdict)
		}
		root.Generation = 2
		root.Spec.Pod.Tolerations = append(root.Spec.Pod.Tolerations, everything)
		root.Spec.Pod.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		p := plan.ShadowPod(plan.ShadowPodInput{Root: root, Pod: before.DeepCopy(), Now: time.Unix(1000, 0)})
		if p.Reason != "PodForbidden" || !strings.Contains(p.Message, key) {
			t.Errorf("%s later: %+v", key, p.Verdict)
		}
		for _, action := range p.Actions {
			if covers(action.Object.(*corev1.Pod).Spec, key) || covers(action.Object.(*corev1.Pod).Spec, "dedicated") {
				t.Errorf("tolerations follow: %v", action.Object.(*corev1.Pod).Spec.Tolerations)
			}
		}
	}
}

// TestAttackNamespaceOfAnotherConsumer: a consumer asks for the namespace that another one gets by default, before that
// one asks, or for one that somebody creates in the same moment.
//
// Outcome: a name that ends in the ID of another consumer is refused, and the condition names that consumer. Namespaces
// are created, never taken over, and a consumer is bound only where the namespace was made for it.
func TestAttackNamespaceOfAnotherConsumer(t *testing.T) {
	t.Parallel()
	wishes := func(names ...string) plan.RemoteNamespacesInput {
		root := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "rome"}}
		root.Spec.DesiredMapping = map[string]string{}
		for i, name := range names {
			root.Spec.DesiredMapping[string(rune('a'+i))] = name
		}
		return plan.RemoteNamespacesInput{
			Root: root, LiqoNamespace: "liqo", Tenants: []string{"milan", "turin", "new-milan", "milan-turin"},
			Tenant:     corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: map[string]string{api.LabelRemoteClusterID: "milan"}}},
			Namespaces: map[string]corev1.Namespace{},
		}
	}
	for name, other := range map[string]string{
		"demo-turin": `consumer "turin"`, "demo-milan-turin": `consumer "turin"`, "demo-milan": "", "demo-new-milan": "", "demo": "", "turin": "",
	} {
		p := plan.RemoteNamespaces(wishes(name))
		if refused := len(p.Objects) == 0; refused != (other != "") || !strings.Contains(p.Message, other) {
			t.Errorf("%s: %+v", name, p.Verdict)
		}
	}
	in := wishes("free")
	if p := plan.RemoteNamespaces(in); len(p.Objects) != 1 || p.Objects[0].GetName() != "free" {
		t.Errorf("beside a new namespace there is %v", p.Objects)
	}
	in.Namespaces["free"] = corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "free"}} // by somebody else
	if p := plan.RemoteNamespaces(in); len(p.Objects)+len(p.Actions) > 0 {
		t.Errorf("a namespace is taken over: %v, %v", p.Objects, p.Actions)
	}
	in.Names.Allowed = []string{"team-*"}
	for name, granted := range map[string]bool{"team-a": true, "other": false, "other-milan": false} {
		in.Root.Spec.DesiredMapping = map[string]string{"a": name}
		if p := plan.RemoteNamespaces(in); (len(p.Objects) == 1) != granted {
			t.Errorf("%s: %+v", name, p.Verdict)
		}
	}
}
