// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/storage/plan"
)

// TestGrowth checks that requests are passed on to the backing claim, that capacities are copied
// back, and that nothing shrinks.
func TestGrowth(t *testing.T) {
	size := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	claim := func(request, capacity string) *corev1.PersistentVolumeClaim {
		out := &corev1.PersistentVolumeClaim{}
		out.Spec.StorageClassName = new("disk")
		out.Spec.Resources.Requests, out.Status.Capacity = size(request), size(capacity)
		return out
	}
	volume := func(capacity, provider string) *corev1.PersistentVolume {
		out := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		if provider != "" {
			out.Labels[api.LabelRemoteClusterID] = provider
		}
		out.Spec.Capacity = size(capacity)
		return out
	}
	grows, stiff := &storagev1.StorageClass{AllowVolumeExpansion: new(true)}, &storagev1.StorageClass{}
	for story, s := range map[string]struct {
		in   plan.GrowInput
		want string // request behind, capacity of the volume, capacity of the claim; - is unchanged
	}{
		"as it should be":                 {plan.GrowInput{Root: claim("1Gi", "1Gi"), Volume: volume("1Gi", ""), Backing: claim("1Gi", "1Gi"), Class: grows, Behind: volume("1Gi", "")}, "- - - "},
		"more is asked for":               {plan.GrowInput{Root: claim("2Gi", "1Gi"), Volume: volume("1Gi", ""), Backing: claim("1Gi", "1Gi"), Class: grows, Behind: volume("1Gi", "")}, "2Gi - - "},
		"a class that does not":           {plan.GrowInput{Root: claim("2Gi", "1Gi"), Volume: volume("1Gi", ""), Backing: claim("1Gi", "1Gi"), Class: stiff, Behind: volume("1Gi", "")}, "- - - the volume is of class disk, which lets none grow; set its allowVolumeExpansion if its provisioner can"},
		"it has grown":                    {plan.GrowInput{Root: claim("2Gi", "1Gi"), Volume: volume("1Gi", ""), Backing: claim("2Gi", "2Gi"), Class: grows, Behind: volume("2Gi", "")}, "- 2Gi 2Gi "},
		"its file system has to":          {plan.GrowInput{Root: claim("2Gi", "1Gi"), Volume: volume("1Gi", ""), Backing: claim("2Gi", "1Gi"), Class: grows, Behind: volume("2Gi", "")}, "- 2Gi - "},
		"its kubelet was faster":          {plan.GrowInput{Root: claim("2Gi", "2Gi"), Volume: volume("2Gi", ""), Backing: claim("2Gi", "1Gi"), Class: grows, Behind: volume("2Gi", "")}, "- - - "},
		"at a provider it has grown":      {plan.GrowInput{Root: claim("2Gi", "2Gi"), Volume: volume("1Gi", "milan")}, "- 2Gi - "},
		"at a provider it has not":        {plan.GrowInput{Root: claim("2Gi", "1Gi"), Volume: volume("1Gi", "milan")}, "- - - "},
		"what backs it is gone":           {plan.GrowInput{Root: claim("2Gi", "1Gi"), Volume: volume("1Gi", "")}, "- - - "},
		"the volume is gone":              {plan.GrowInput{Root: claim("2Gi", "1Gi")}, "- - - "},
		"less is asked for than there is": {plan.GrowInput{Root: claim("1Gi", "5Gi"), Volume: volume("5Gi", ""), Backing: claim("5Gi", "5Gi"), Class: grows, Behind: volume("5Gi", "")}, "- - - "},
	} {
		p, shown := plan.Grow(s.in), [3]string{"-", "-", "-"}
		for _, a := range p.Actions {
			switch larger := a.Object.(type) {
			case *corev1.PersistentVolume:
				shown[1] = larger.Spec.Capacity.Storage().String()
			case *corev1.PersistentVolumeClaim:
				if a.Subresource == "status" {
					shown[2] = larger.Status.Capacity.Storage().String()
				} else {
					shown[0] = larger.Spec.Resources.Requests.Storage().String()
				}
			}
		}
		if got := fmt.Sprintf("%s %s %s %s", shown[0], shown[1], shown[2], p.Degraded.Message); got != s.want {
			t.Errorf("%s: %s, want %s", story, got, s.want)
		}
	}
}
