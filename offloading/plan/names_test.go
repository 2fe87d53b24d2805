// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestNamesOfVirtualNodesAreLegal tries the longest names of virtual nodes and peers: all objects
// that are planned for them have legal names and labels.
func TestNamesOfVirtualNodesAreLegal(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("a", 63), strings.Repeat("a.", 31) + "a"} {
		vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "liqo-tenant-" + strings.Repeat("b", 51)}}
		vn.Spec.ClusterID = strings.Repeat("b", 51)
		vn.Spec.KubeconfigSecretRef = &corev1.LocalObjectReference{Name: "kubeconfig"}
		p := plan.VirtualNode(plan.VirtualNodeInput{Root: vn, Options: &offloadingv1beta1.VkOptionsTemplate{}})
		if p.State == desired.Blocked || len(p.Objects) == 0 {
			t.Errorf("%s: %s, %d objects", name, p.Message, len(p.Objects))
		}
		for _, obj := range p.Objects {
			errs := validation.IsDNS1123Subdomain(obj.GetName())
			for _, value := range obj.GetLabels() {
				errs = append(errs, validation.IsValidLabelValue(value)...)
			}
			if d, ok := obj.(*appsv1.Deployment); ok {
				for _, value := range d.Spec.Template.Labels {
					errs = append(errs, validation.IsValidLabelValue(value)...)
				}
			}
			if len(errs) > 0 {
				t.Errorf("%T %s: %s", obj, obj.GetName(), strings.Join(errs, "; "))
			}
		}
	}
}

// TestLongNamesOfPodsAreRefused tries names of pods around the maximum for which kubelets can
// create a directory of logs.
func TestLongNamesOfPodsAreRefused(t *testing.T) {
	t.Parallel()
	const uid = "12345678-1234-1234-1234-123456789012"
	for _, namespace := range []string{"shop-rome", strings.Repeat("n", 63)} {
		for length := 100; length <= validation.DNS1123SubdomainMaxLength; length++ {
			pod := &offloadingv1beta1.ShadowPod{}
			pod.Namespace, pod.Name = namespace, strings.Repeat("p", length)
			pod.Labels = map[string]string{api.LabelOrigin: "rome"}
			refusal := plan.ShadowPodRefusal(pod, "rome", plan.GuestPods{})
			fits := len(namespace+"_"+pod.Name+"_"+uid) <= 255
			if fits != (refusal == "") {
				t.Errorf("%d characters in namespace %s: %s", length, namespace, refusal)
			}
		}
	}
}
