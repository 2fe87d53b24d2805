// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/offloading/plan"
)

// FuzzShadowPod checks that the pod of any ShadowPod uses nothing of the host, and that its
// requests are never negative.
func FuzzShadowPod(f *testing.F) {
	f.Add([]byte(`{"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}]}`))
	f.Add([]byte(`{"hostNetwork": true, "initContainers": [{"restartPolicy": "Always", "resources": {"requests": {"cpu": "-1"}}}], "overhead": {"cpu": "1e-9"}}`))
	f.Add([]byte(`{"resources": {"requests": {"cpu": "9223372036854775807"}}, "hostAliases": [{"ip": "x", "hostnames": ["kubernetes.default"]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-milan", Name: "web"}}
		if json.Unmarshal(data, &root.Spec.Pod) != nil {
			return
		}
		root.Labels = map[string]string{api.LabelOrigin: "milan", api.LabelCreatorUser: "milan-4f"}
		refused := plan.ShadowPodRefusal(root, "milan", plan.GuestPods{})
		p := plan.ShadowPod(plan.ShadowPodInput{Root: root, Configuration: &networkingv1beta1.Configuration{}})
		for _, obj := range p.Objects {
			spec := obj.(*corev1.Pod).Spec
			if refused != "" || spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.NodeName != "" || spec.PriorityClassName != "" {
				t.Errorf("made a pod of %s", data)
			}
		}
		quota := offloadingv1beta1.QuotaSpec{Resources: plan.Demand(&root.Spec.Pod)}
		if plan.Refusal(&plan.QuotaInput{Quota: &quota, Pod: root.Spec.Pod}) != "" {
			return
		}
		for name, amount := range plan.Demand(&root.Spec.Pod) {
			if amount.Sign() < 0 {
				t.Errorf("%s counts %s", name, amount.String())
			}
		}
	})
}

// FuzzNamespaceMap checks that a consumer gets only new namespaces, bound to itself.
func FuzzNamespaceMap(f *testing.F) {
	f.Add([]byte(`{"shop": "shop-milan", "a": "kube-system", "b": "liqo", "c": "theirs", "d": "liqo-tenant-oslo", "e": ""}`))
	f.Add([]byte(`{"a": "same", "b": "same", "": "x/y"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := &offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "rome"}}
		if json.Unmarshal(data, &root.Spec.DesiredMapping) != nil {
			return
		}
		p := plan.RemoteNamespaces(plan.RemoteNamespacesInput{
			Root: root, LiqoNamespace: "liqo",
			Tenant: corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: map[string]string{api.LabelRemoteClusterID: "milan"}}},
			Namespaces: map[string]corev1.Namespace{
				"theirs": {ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, "kube-system": {ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}},
			},
		})
		for _, obj := range p.Objects {
			name := obj.GetName()
			if binding, ok := obj.(*rbacv1.RoleBinding); ok {
				if name = binding.Namespace; binding.Subjects[0].Name != "milan" {
					t.Errorf("bound %q", binding.Subjects[0].Name)
				}
			}
			switch {
			case name == "theirs", name == "kube-system", name == "liqo", len(validation.IsDNS1123Label(name)) > 0:
				t.Errorf("gave away %q", name)
			}
		}
		if deleted := story.Deleted(p); len(deleted) > 0 {
			t.Errorf("deletes %v", deleted)
		}
	})
}

// FuzzShadowEndpointSlice plans for endpoints that are no addresses, of consumers and of third
// clusters.
func FuzzShadowEndpointSlice(f *testing.F) {
	f.Add([]byte(`{"metadata": {"name": "web"}, "spec": {"template": {"endpoints": [{"addresses": ["10.10.0.5", "", "::1%eth0"]}]}}}`), "10.10.0.0/16", "10.71.0.0/16")
	f.Add([]byte(`{"spec": {"template": {"addressType": "FQDN", "endpoints": [{}]}}}`), "0.0.0.0/0", "10.71.0.0/33")
	f.Fuzz(func(_ *testing.T, data []byte, from, to string) {
		root := &offloadingv1beta1.ShadowEndpointSlice{}
		if json.Unmarshal(data, root) != nil {
			return
		}
		c := networkingv1beta1.Configuration{}
		c.Spec.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: []string{from}}}
		c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: []string{to}}}
		_ = plan.ShadowEndpointSlice(plan.ShadowEndpointSliceInput{
			Root: root, Origin: "milan", Configurations: map[string]networkingv1beta1.Configuration{"milan": c, "turin": c},
		}) // must not panic
	})
}
