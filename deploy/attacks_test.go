// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// TestAttackShadowPodChanged: a consumer makes a ShadowPod that is harmless and changes it after it was checked: its
// creator, its origin, or what its pod mounts and runs.
//
// Outcome: an admission policy refuses the change. Only images, resources, ephemeral containers, the deadline and
// tolerations can change, and these are checked again when the pod follows.
func TestAttackShadowPodChanged(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	kubelet := p.as(t, identities()[1].user, identities()[1].groups...)
	pod := &offv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web", Labels: map[string]string{
		api.LabelOrigin: "rome", api.LabelCreatorUser: "rome-0123",
	}}}
	pod.Spec.Pod = corev1.PodSpec{
		Volumes:        []corev1.Volume{{Name: "v"}},
		InitContainers: []corev1.Container{{Name: "init", Image: "init:1", Command: []string{"init"}}},
		Containers:     []corev1.Container{{Name: "web", Image: "web:1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}, {Name: "side", Image: "side:1"}},
	}
	p.create(t, pod)
	refused := func(change func(*offv1beta1.ShadowPod)) error {
		changed := pod.DeepCopy()
		change(changed)
		return kubelet.Update(t.Context(), changed, client.DryRunAll)
	}
	eventually(t, "the policy is in force", func() (bool, any) {
		err := refused(func(s *offv1beta1.ShadowPod) { s.Labels[api.LabelCreatorUser] = "oslo-0123" })
		return strings.Contains(fmt.Sprint(err), "creator name cannot be modified"), err
	})
	for name, change := range map[string]func(*offv1beta1.ShadowPod){
		"origin Cluster ID label cannot be modified": func(s *offv1beta1.ShadowPod) { s.Labels[api.LabelOrigin] = "oslo" },
		"creator name cannot be modified":            func(s *offv1beta1.ShadowPod) { delete(s.Labels, api.LabelCreatorUser) },
	} {
		if err := refused(change); !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("want %q, got %v", name, err)
		}
	}
	for name, change := range map[string]func(*corev1.PodSpec){
		"a field is added":   func(s *corev1.PodSpec) { s.HostNetwork = true },
		"a field is removed": func(s *corev1.PodSpec) { s.Volumes = nil },
		"a field is changed": func(s *corev1.PodSpec) { s.Volumes[0].HostPath = &corev1.HostPathVolumeSource{Path: "/"} },
		"a container is added": func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "more", Image: "web:1"})
		},
		"a container is removed":      func(s *corev1.PodSpec) { s.Containers = s.Containers[:1] },
		"a container is renamed":      func(s *corev1.PodSpec) { s.Containers[0].Name = "other" },
		"a container is another's":    func(s *corev1.PodSpec) { s.Containers[1] = s.Containers[0] },
		"an init container is added":  func(s *corev1.PodSpec) { s.InitContainers = append(s.InitContainers, corev1.Container{Name: "more"}) },
		"an init container's command": func(s *corev1.PodSpec) { s.InitContainers[0].Command = []string{"sh"} },
		"a container's variable":      func(s *corev1.PodSpec) { s.Containers[0].Env[0].Value = "2" },
		"a container's variables":     func(s *corev1.PodSpec) { s.Containers[0].Env = nil },
		"a container's security context": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		},
	} {
		if err := refused(func(s *offv1beta1.ShadowPod) { change(&s.Spec.Pod) }); !strings.Contains(fmt.Sprint(err), "only images, resources,") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*offv1beta1.ShadowPod){
		"nothing":                   func(*offv1beta1.ShadowPod) {},
		"a label":                   func(s *offv1beta1.ShadowPod) { s.Labels["app"] = "web" },
		"an image":                  func(s *offv1beta1.ShadowPod) { s.Spec.Pod.Containers[0].Image = "web:2" },
		"an init container's image": func(s *offv1beta1.ShadowPod) { s.Spec.Pod.InitContainers[0].Image = "init:2" },
		"a deadline":                func(s *offv1beta1.ShadowPod) { s.Spec.Pod.ActiveDeadlineSeconds = new(int64(5)) },
		"a toleration":              func(s *offv1beta1.ShadowPod) { s.Spec.Pod.Tolerations = []corev1.Toleration{{Key: "a"}} },
		"resources": func(s *offv1beta1.ShadowPod) {
			s.Spec.Pod.Resources = &corev1.ResourceRequirements{}
			s.Spec.Pod.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: quantity.MustParse("1")}
		},
		"an ephemeral container": func(s *offv1beta1.ShadowPod) {
			s.Spec.Pod.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
		},
	} {
		if err := refused(change); err != nil {
			t.Errorf("%s cannot be changed: %v", name, err)
		}
	}
}

// TestAttackIngressClass: a consumer makes an Ingress of a class that leads to a controller the provider keeps for
// itself, in the field or in the former annotation.
//
// Outcome: an admission policy refuses classes that are not on offer, and names the chart value that would offer one.
func TestAttackIngressClass(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	kubelet := p.as(t, identities()[1].user, identities()[1].groups...)
	of := func(class *string, annotation string) error {
		ingress := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web", Annotations: map[string]string{}}}
		ingress.Spec.IngressClassName = class
		ingress.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
		if annotation != "" {
			ingress.Annotations["kubernetes.io/ingress.class"] = annotation
		}
		return kubelet.Create(t.Context(), ingress, client.DryRunAll)
	}
	const says = "offloading.reflection.ingress.ingressClasses"
	eventually(t, "the policy is in force", func() (bool, any) {
		err := of(new("internal"), "")
		return strings.Contains(fmt.Sprint(err), says), err
	})
	if err := of(nil, "internal"); !strings.Contains(fmt.Sprint(err), says) {
		t.Errorf("by annotation: %v", err)
	}
	if err := of(nil, ""); err != nil {
		t.Errorf("without a class: %v", err)
	}
}

// TestAttackNamespaceOfADearName: a consumer asks for a namespace called like one that an administrator, or a tool of
// the provider, is about to use, and waits for keys to be put into it.
//
// Outcome: in namespaces of consumers only Kubernetes, Liqo, accounts of the namespace, the consumer and those listed in
// the chart create pods, Secrets, accounts, roles, claims and workloads. The refusal says whose the namespace is.
func TestAttackNamespaceOfADearName(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	objects := map[string]client.Object{
		"secrets": &corev1.Secret{}, "serviceaccounts": &corev1.ServiceAccount{}, "roles": &rbacv1.Role{},
		"rolebindings": &rbacv1.RoleBinding{RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}},
		"pods":         &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}},
		"persistentvolumeclaims": &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse("1Gi")}},
		}},
		"deployments": &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		}},
		"jobs": &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}}},
		"configmaps": &corev1.ConfigMap{},
	}
	p.create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "everybody"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:authenticated"}},
	})
	create := func(as client.Client, namespace, kind string) error {
		object := objects[kind].DeepCopyObject().(client.Object)
		object.SetNamespace(namespace)
		object.SetName("x")
		return as.Create(t.Context(), object, client.DryRunAll)
	}
	admin := p.as(t, "somebody", "system:masters")
	const says = "namespace shop-rome was made for the consumer rome"
	eventually(t, "the policy is in force", func() (bool, any) {
		err := create(admin, "shop-rome", "secrets")
		return strings.Contains(fmt.Sprint(err), says), err
	})
	account := func(namespace string) client.Client {
		return p.as(t, "system:serviceaccount:"+namespace+":a", "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	refused := map[string]client.Client{"an administrator": admin, "a tool": account("cert-manager"), "another consumer": p.as(t, "oslo-0123", "oslo")}
	granted := map[string]client.Client{
		"the consumer": p.as(t, identities()[1].user, identities()[1].groups...), "Liqo": account("liqo"), "kube-system": account("kube-system"),
		"the namespace": account("shop-rome"), "the controller manager": p.as(t, "system:kube-controller-manager"),
		"the API server": p.as(t, "system:apiserver", "system:masters"), "a node": p.as(t, "system:node:n1", "system:nodes"),
		"a managed control plane": p.as(t, "aksService", "system:masters"),
	}
	for kind := range objects {
		for who, as := range refused {
			if err := create(as, "shop-rome", kind); (kind == "configmaps") != (err == nil) || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%s of %s: %v", kind, who, err)
			}
			if err := create(as, "liqo", kind); err != nil {
				t.Errorf("%s of %s elsewhere: %v", kind, who, err)
			}
		}
		for who, as := range granted {
			if err := create(as, "shop-rome", kind); err != nil && !strings.Contains(err.Error(), "liqo-peer-secrets") {
				t.Errorf("%s of %s: %v", kind, who, err)
			}
		}
	}
}

// TestAttackVirtualKubeletTakenOver: a provider takes over the virtual kubelet that reads its answers, and uses its
// account: to read Secrets of namespaces that are not offloaded, to write other nodes, their pods and their leases.
//
// Outcome: it reads Secrets and ConfigMaps where its provider has a namespace offloaded to it, and has tokens and
// certificates of pods there. It writes its own Node, the lease of that, and the pods on it; a policy refuses the rest.
func TestAttackVirtualKubeletTakenOver(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	const user = "system:serviceaccount:liqo-tenant-oslo:vk-oslo"
	p.bind(t, "", "ClusterRole", api.ClusterRoleVirtualKubeletLocal, rbacv1.UserKind, user)
	p.bind(t, "shop-oslo", "ClusterRole", api.ClusterRoleVirtualKubeletOffloaded, rbacv1.UserKind, user)
	kubelet := p.as(t, user)
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelType: api.TypeVirtualNode}}
	}
	p.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, &corev1.Node{ObjectMeta: named("turin")})
	for node, name := range map[string]string{"oslo": "mine", "turin": "theirs"} {
		p.create(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-oslo", Name: name},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}}}})
	}
	status := client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Running"}}`))
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-oslo", Name: name}}
	}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`))
	lease := func(namespace, name string) error {
		return kubelet.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, client.DryRunAll)
	}
	certificate := func(namespace, node string) error {
		return kubelet.Create(t.Context(), &certificatesv1.PodCertificateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "req-"},
			Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: "example.com/pods", PodName: "mine", PodUID: "1", ServiceAccountName: "default", ServiceAccountUID: "1",
				NodeName: types.NodeName(node), NodeUID: "1", StubPKCS10Request: apitest.CertificateRequest(t),
			},
		}, client.DryRunAll)
	}
	const node, pods, leases = "only write its own node", "only write pods on its own node", "only write leases of its own node"
	eventually(t, "the policy is in force", func() (bool, any) {
		err := kubelet.Create(t.Context(), &corev1.Node{ObjectMeta: named("another")}, client.DryRunAll)
		return strings.Contains(fmt.Sprint(err), node), err
	})
	if err := kubelet.Create(t.Context(), &corev1.Node{ObjectMeta: named("oslo")}); err != nil {
		t.Fatalf("its own node: %v", err)
	}
	for name, c := range map[string]struct {
		says string
		err  error
	}{
		"a node":                {node, kubelet.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, label)},
		"another virtual node":  {node, kubelet.Patch(t.Context(), &corev1.Node{ObjectMeta: named("turin")}, label)},
		"its status":            {node, kubelet.Status().Patch(t.Context(), &corev1.Node{ObjectMeta: named("turin")}, client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Running"}}`)))},
		"a pod elsewhere":       {pods, kubelet.Status().Patch(t.Context(), pod("theirs"), status)},
		"its deletion":          {pods, kubelet.Delete(t.Context(), pod("theirs"))},
		"the lease of a node":   {leases, lease("kube-node-lease", "n1")},
		"a controller's lease":  {leases, lease("kube-system", "kube-controller-manager")},
		"a gateway's lease":     {leases, lease("liqo-tenant-oslo", "gw-oslo")},
		"another tenant's":      {leases, lease("liqo-tenant-rome", "oslo")},
		"Secrets everywhere":    {"forbidden", kubelet.List(t.Context(), &corev1.SecretList{})},
		"Secrets elsewhere":     {"forbidden", kubelet.List(t.Context(), &corev1.SecretList{}, client.InNamespace("shop-rome"))},
		"ConfigMaps everywhere": {"forbidden", kubelet.List(t.Context(), &corev1.ConfigMapList{})},
		"a token elsewhere": {"forbidden", kubelet.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "default"}},
			&authenticationv1.TokenRequest{})},
		"a certificate elsewhere": {"forbidden", certificate("shop-rome", "oslo")},
		"a certificate of theirs": {"only request certificates for its own node", certificate("shop-oslo", "turin")},
	} {
		if !strings.Contains(fmt.Sprint(c.err), c.says) {
			t.Errorf("%s: want %q, got %v", name, c.says, c.err)
		}
	}
	for name, err := range map[string]error{
		"its node":        kubelet.Patch(t.Context(), &corev1.Node{ObjectMeta: named("oslo")}, label),
		"its pod":         kubelet.Status().Patch(t.Context(), pod("mine"), status),
		"its lease":       lease("kube-node-lease", "oslo"),
		"its election":    lease("liqo-tenant-oslo", "oslo"),
		"the reflector's": lease("liqo-tenant-oslo", api.VirtualKubeletLeaderLease),
		"Secrets":         kubelet.List(t.Context(), &corev1.SecretList{}, client.InNamespace("shop-oslo")),
		"ConfigMaps":      kubelet.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace("shop-oslo")),
		"its certificate": certificate("shop-oslo", "oslo"),
		"its pod's end":   kubelet.Delete(t.Context(), pod("mine")),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	without, err := render(t, strings.TrimSuffix(bases[0], "}")+", offloading: {podCertificates: false}}")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(without["liqo/templates/peer-policies.yaml"], "\n---\n") {
		policy := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &policy.Object); err != nil {
			t.Fatal(err)
		}
		if policy.GetName() != "liqo-virtual-kubelet-tokens" || policy.GetKind() != "ValidatingAdmissionPolicy" {
			continue
		}
		if err := p.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(policy), client.FieldOwner("test"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "this cluster keeps certificates from pods at providers", func() (bool, any) {
		err := certificate("shop-oslo", "oslo")
		return strings.Contains(fmt.Sprint(err), "by the chart's value offloading.podCertificates"), err
	})
}

// TestAttackFabricOfAnotherNode: who has taken over a node uses the ServiceAccount of its fabric to change where the overlay
// finds this or another node, or which addresses another node depends on.
//
// Outcome: the API server refuses it. A fabric may only set status.localAddresses of its own node.
func TestAttackFabricOfAnotherNode(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	rendered, err := render(t, bases[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(rendered["liqo/templates/fabric.yaml"], "\n---\n")[1:] {
		policy := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &policy.Object); err != nil {
			t.Fatal(err)
		}
		p.create(t, policy)
	}
	const account = "system:serviceaccount:liqo:liqo-fabric"
	p.bind(t, "", "ClusterRole", "liqo-fabric", rbacv1.UserKind, account)
	config := p.ConfigFor(account, "system:authenticated")
	config.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"rome-1"}}
	fabric, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	write := func(node, status string) error {
		n := &netv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return fabric.Status().Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"status": `+status+`}`)), client.DryRunAll)
	}
	for _, name := range []string{"rome-1", "rome-2"} {
		n := &netv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Spec.Interface = netv1beta1.InternalNodeInterface{
			Gateway: netv1beta1.InternalNodeGatewayInterface{Name: "liqo.ovl"}, Node: netv1beta1.InternalNodeNodeInterface{IP: "10.80.0.1"},
		}
		p.create(t, n)
		n.Status.NodeIP = netv1beta1.NodeIP{Local: "172.31.10.11", Remote: "172.31.10.11"}
		if err := p.Status().Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	const addresses = `{"localAddresses": ["172.31.10.11/16"]}`
	eventually(t, "the policy is in force", func() (bool, any) {
		err := write("rome-2", addresses)
		return strings.Contains(fmt.Sprint(err), "of its own node"), err
	})
	if err := write("rome-1", `{"nodeIP": {"remote": "172.31.66.6"}}`); !strings.Contains(fmt.Sprint(err), "of its own node") {
		t.Errorf("a fabric changes where the overlay finds its node: %v", err)
	}
	if err := write("rome-1", addresses); err != nil {
		t.Errorf("a fabric does not publish the addresses of its node: %v", err)
	}
}

// TestAttackLargeObjects: a consumer makes objects as large as the API server takes, so that few of them fill etcd.
//
// Outcome: where the chart says how large an object may be, an admission policy refuses larger ones and names the value,
// be they made or grown, in data or in annotations.
func TestAttackLargeObjects(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	kubelet := p.as(t, identities()[1].user, identities()[1].groups...)
	// The chart of this test allows 62.5 KiB.
	fits, exceeds := strings.Repeat("x", 60<<10), strings.Repeat("x", 65<<10)
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name}}
	}
	config := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name}}
	}
	refused := func(err error) bool {
		return strings.Contains(fmt.Sprint(err), "takes 62.5Ki") && strings.Contains(fmt.Sprint(err), "offloading.namespaceBounds.objectSize")
	}
	large := secret("large")
	large.StringData = map[string]string{"a": exceeds}
	eventually(t, "a large Secret is refused", func() (bool, any) {
		err := kubelet.Create(t.Context(), large.DeepCopy(), client.DryRunAll)
		return refused(err), err
	})
	for what, change := range map[string]func(*corev1.ConfigMap){
		"data":                 func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": exceeds} },
		"many small entries":   func(c *corev1.ConfigMap) { c.Data = entries(1100, 60) },
		"letters of two bytes": func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": strings.Repeat("ü", 33<<10)} },
		"binary data":          func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{"a": []byte(exceeds)} },
		"annotations":          func(c *corev1.ConfigMap) { c.Annotations = map[string]string{"a": exceeds} },
		"all together": func(c *corev1.ConfigMap) {
			c.Data, c.Annotations = map[string]string{"a": fits[:40<<10]}, map[string]string{"a": fits[:40<<10]}
		},
	} {
		made := config("made")
		change(made)
		if err := kubelet.Create(t.Context(), made, client.DryRunAll); !refused(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	ordinary := config("ordinary")
	ordinary.Data = map[string]string{"a": fits}
	if err := kubelet.Create(t.Context(), ordinary); err != nil {
		t.Errorf("60 KiB: %v", err)
	}
	if err := merge(t, kubelet, ordinary, `{"data":{"b":"`+fits+`"}}`); !refused(err) {
		t.Errorf("a ConfigMap that grows: %v", err)
	}
	own := secret("administrator")
	own.StringData = large.StringData
	if err := p.Create(t.Context(), own); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}

// entries returns many values, each of a size in bytes.
func entries(many, size int) map[string]string {
	all := map[string]string{}
	for i := range many {
		all[fmt.Sprint("key-", i)] = strings.Repeat("x", size)
	}
	return all
}

// TestAttackSecretsWithoutBound: a consumer goes on creating Secrets in a namespace that has as many as it may have.
//
// Outcome: an admission policy refuses them and names the bound and the chart value. The consumer changes and deletes
// the Secrets it has, and the provider's own controllers go on.
func TestAttackSecretsWithoutBound(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	kubelet := p.as(t, identities()[1].user, identities()[1].groups...)
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name}}
	}
	held := secret("held")
	eventually(t, "a consumer makes a Secret while there is room", func() (bool, any) {
		err := kubelet.Create(t.Context(), held)
		return err == nil, err
	})
	full := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}}
	if err := merge(t, p.Client, full, `{"metadata":{"labels":{"`+api.LabelTooManySecrets+`":"true"}}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "further Secrets are refused", func() (bool, any) {
		err := kubelet.Create(t.Context(), secret("further"), client.DryRunAll)
		says := fmt.Sprint(err)
		return strings.Contains(says, "takes 4000 Secrets") && strings.Contains(says, "offloading.namespaceBounds.secrets"), err
	})
	if err := kubelet.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", GenerateName: "further-"}}); err == nil {
		t.Error("a Secret whose name the API server makes is accepted")
	}
	if err := merge(t, kubelet, full, `{"metadata":{"labels":{"`+api.LabelTooManySecrets+`":null}}}`); err == nil {
		t.Error("the consumer takes the label away")
	}
	if err := p.Create(t.Context(), secret("administrator")); err != nil {
		t.Errorf("an administrator: %v", err)
	}
	if err := merge(t, kubelet, held, `{"stringData":{"a":"b"}}`); err != nil {
		t.Errorf("a change: %v", err)
	}
	if err := kubelet.Delete(t.Context(), held); err != nil {
		t.Errorf("a deletion: %v", err)
	}
}
