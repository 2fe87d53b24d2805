// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/storage/plan"
)

var move = plan.Move{Namespace: "shop", Name: "data", Volumes: "liqo-storage", Image: "liqo:1"}

func bound() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "u1", ResourceVersion: "7", Finalizers: []string{"kubernetes.io/pvc-protection"},
			Labels: map[string]string{"app": "db"},
			Annotations: map[string]string{
				"pv.kubernetes.io/bind-completed": "yes", plan.AnnotationSelectedNode: "milan", plan.AnnotationProvisioner: api.StorageProvisioner,
				api.AnnotationRemoteStorageClass: "fast",
			},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db"}},
		},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("liqo"), VolumeName: "pvc-u1", Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		}},
		Status: corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
	}
}

// TestRecreated keeps what the user wrote in a claim, and drops Kubernetes' annotations about its
// volume.
func TestRecreated(t *testing.T) {
	held := move.Copy(bound())
	if none, err := plan.Recorded(held); none != nil || err != nil {
		t.Errorf("a copy that is not whole holds %v, %v", none, err)
	}
	record, err := plan.Record(bound())
	if err != nil {
		t.Fatal(err)
	}
	held.Annotations = map[string]string{plan.AnnotationMoved: record}
	recorded, err := plan.Recorded(held)
	if err != nil || recorded.UID != "u1" {
		t.Fatalf("the copy holds %v, %v", recorded, err)
	}
	want := bound()
	want.UID, want.ResourceVersion, want.Finalizers, want.Spec.VolumeName = "", "", nil, ""
	want.Annotations = map[string]string{api.AnnotationRemoteStorageClass: "fast", plan.AnnotationMoving: plan.MovingBegun}
	want.Status = corev1.PersistentVolumeClaimStatus{}
	for from, claim := range map[string]*corev1.PersistentVolumeClaim{"what was recorded": recorded, "the claim itself": bound()} {
		if diff := cmp.Diff(want, plan.Recreated(claim)); diff != "" {
			t.Errorf("made again from %s (-want +got):\n%s", from, diff)
		}
	}
}

// TestAttackCapacityOfProvider: a provider reports that the volume of a claim is much larger than
// asked for, so that the consumer makes room for whatever it sends.
//
// Outcome: the copy is as large as the claim asks for, and the pods that copy take no more. Only a
// volume of the consumer's own cluster may be larger than its claim.
func TestAttackCapacityOfProvider(t *testing.T) {
	there := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelRemoteClusterID: "milan"}}}
	for want, volume := range map[string]*corev1.PersistentVolume{"1Gi": there, "2Gi": {}} {
		m := move
		m.Size = plan.Size(bound(), volume)
		if got := m.Copy(bound()).Spec.Resources.Requests.Storage().String(); got != want {
			t.Errorf("the copy has %s, not %s", got, want)
		}
		for _, pod := range []*corev1.Pod{m.Server("", ""), m.Client("pull", "", "")} {
			if arg := fmt.Sprintf("--size=%d", m.Size.Value()); !slices.Contains(pod.Spec.Containers[0].Args, arg) {
				t.Errorf("pod %s has the arguments %q without %s", pod.Name, pod.Spec.Containers[0].Args, arg)
			}
		}
	}
}

// TestPodsOfAMoveHaveFewRights checks that the pods have one container, one claim, and no access to
// cluster or node.
func TestPodsOfAMoveHaveFewRights(t *testing.T) {
	for _, pod := range []*corev1.Pod{move.Server("milan", "hash"), move.Client("pull", "10.0.0.1:8080", "token")} {
		if strings.Contains(strings.Join(pod.Spec.Containers[0].Args, " "), "token ") || *pod.Spec.AutomountServiceAccountToken || len(pod.Spec.Volumes) != 1 {
			t.Errorf("pod %s has %+v", pod.Name, pod.Spec)
		}
		context := pod.Spec.Containers[0].SecurityContext
		if context.Privileged != nil || *context.AllowPrivilegeEscalation || pod.Spec.HostNetwork {
			t.Errorf("pod %s may %+v", pod.Name, context)
		}
	}
}

func TestUsersOfAClaim(t *testing.T) {
	pod := func(name, claim string, phase corev1.PodPhase) corev1.Pod {
		out := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
		out.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		return out
	}
	pods := []corev1.Pod{
		pod("runs", "data", corev1.PodRunning), pod("waits", "data", corev1.PodPending), pod("has ended", "data", corev1.PodSucceeded),
		pod("has failed", "data", corev1.PodFailed), pod("uses another", "other", corev1.PodRunning), pod(move.Server("", "").Name, "data", corev1.PodRunning),
	}
	if diff := cmp.Diff([]string{"runs", "waits"}, move.Users(pods, nil)); diff != "" {
		t.Error(diff)
	}
	began := metav1.Unix(1000, 0)
	for i := range pods {
		pods[i].CreationTimestamp = metav1.Unix(999, 0)
	}
	came := pod("came and ended", "data", corev1.PodSucceeded)
	came.CreationTimestamp = began
	if diff := cmp.Diff([]string{"runs", "waits", "came and ended"}, move.Users(append(pods, came), &began)); diff != "" {
		t.Error(diff)
	}
}

func TestObstacles(t *testing.T) {
	node := func(name string, labels ...string) *corev1.Node {
		out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		for i := 0; i < len(labels); i += 2 {
			out.Labels[labels[i]] = labels[i+1]
		}
		return out
	}
	milan := node("milan", api.LabelType, api.TypeVirtualNode, api.LabelRemoteClusterID, "milan", api.LabelStorageAvailable, "true")
	home, there := &corev1.PersistentVolume{}, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelRemoteClusterID: "milan"}}}
	fine := func() plan.MoveInput {
		return plan.MoveInput{Claim: bound(), Provisioner: api.StorageProvisioner, Volume: home, Target: milan, Strategy: "LocalAndRemote", Mapped: true}
	}
	for claim, story := range map[string]struct {
		change func(*plan.MoveInput)
		says   string
	}{
		"from home to a provider":       {func(*plan.MoveInput) {}, ""},
		"from a provider home":          {func(in *plan.MoveInput) { in.Volume, in.Target = there, node("n1") }, ""},
		"between nodes at home":         {func(in *plan.MoveInput) { in.Target, in.Strategy, in.Mapped = node("n1"), "", false }, ""},
		"taken up again":                {func(in *plan.MoveInput) { in.Held, in.Volume, in.Strategy = true, nil, "Remote" }, ""},
		"another class":                 {func(in *plan.MoveInput) { in.Provisioner = "example.com/disk" }, "not Liqo's"},
		"a block device":                {func(in *plan.MoveInput) { in.Claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock) }, "block device"},
		"in use":                        {func(in *plan.MoveInput) { in.Users = []string{"db-0"} }, "used by pod db-0; scale down"},
		"in use, though taken up again": {func(in *plan.MoveInput) { in.Held, in.Users = true, []string{"db-0"} }, "used by pod db-0"},
		"never used":                    {func(in *plan.MoveInput) { in.Volume = nil }, "no volume yet"},
		"there already":                 {func(in *plan.MoveInput) { in.Volume = there }, "at milan already"},
		"a node that takes none":        {func(in *plan.MoveInput) { in.Target = node("n1"); in.Target.Spec.Unschedulable = true }, "kubectl uncordon n1"},
		"a provider without storage": {func(in *plan.MoveInput) {
			in.Target = node("oslo", api.LabelType, api.TypeVirtualNode, api.LabelRemoteClusterID, "oslo")
		}, "oslo offers no storage"},
		"not offloaded there":     {func(in *plan.MoveInput) { in.Mapped = false }, "liqoctl offload namespace shop"},
		"no pod at home to read":  {func(in *plan.MoveInput) { in.Strategy = "Remote" }, "--pod-offloading-strategy LocalAndRemote"},
		"no pod at home to write": {func(in *plan.MoveInput) { in.Volume, in.Target, in.Strategy = there, node("n1"), "Remote" }, "LocalAndRemote"},
		"between providers, none at home": {func(in *plan.MoveInput) {
			in.Volume = there.DeepCopy()
			in.Volume.Labels[api.LabelRemoteClusterID] = "oslo"
			in.Strategy = "Remote"
		}, ""},
	} {
		in := fine()
		story.change(&in)
		if got := plan.Obstacle(in); story.says == "" && got != "" || !strings.Contains(got, story.says) {
			t.Errorf("%s: %q", claim, got)
		}
	}
}
