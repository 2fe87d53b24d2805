// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Annotations that record the progress of a move, so that it can be resumed.
const (
	// AnnotationMoved of the copy's claim holds the claim whose data the copy contains completely.
	AnnotationMoved = "storage.liqo.io/moved-claim"
	// AnnotationMoving of a recreated claim is MovingBegun, or MovingDone once it has all data and
	// the copy is to be deleted.
	AnnotationMoving = "storage.liqo.io/moving"
	MovingBegun      = "begun"
	MovingDone       = "done"
)

// MoverPort is the port of a volume's server. It is above 1023, so that it needs no capability.
const MoverPort = 8080

// Move describes the objects by which the volume of a claim is moved: a local copy, in a claim of
// its own, and pods of the mover role.
//
//	claim    its server, in the claim's namespace   client with the copy, in namespace Volumes
//	old      in the cluster of its volume           pulls from the server
//	new      on the target                          pushes to the server
type Move struct {
	// Namespace and Name are those of the claim.
	Namespace, Name string
	// Volumes is the namespace of the copy.
	Volumes string
	// Size is that of the claim; copy and new volume accept no more data.
	Size resource.Quantity
	// Image is the image of the mover role.
	Image      string
	PullPolicy corev1.PullPolicy
	// Resources are those of the mover's containers.
	Resources corev1.ResourceRequirements
}

// id returns the name of the move's objects, which is derived from the claim so that they are found
// again.
func (m Move) id() string {
	sum := sha256.Sum256([]byte(m.Namespace + "/" + m.Name))
	return "move-" + hex.EncodeToString(sum[:8])
}

// Size returns how much data the volume of a claim may hold. A volume may be larger than requested,
// but only the capacity of a local one is trusted: a provider must not make this cluster store any
// amount.
func Size(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) resource.Quantity {
	size, given := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
	if volume != nil && volume.Labels[api.LabelRemoteClusterID] == "" && given.Cmp(size) > 0 {
		return given
	}
	return size
}

// Copy returns the local claim that holds the copy: of the same class, with room for the whole
// claim.
func (m Move) Copy(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: m.Volumes, Name: m.id()},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: claim.Spec.StorageClassName,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: m.Size}},
		},
	}
}

// manifest returns the claim's metadata and spec as the user wrote them, without status.
func manifest(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name,
			Labels: claim.Labels, Annotations: claim.Annotations, OwnerReferences: claim.OwnerReferences,
		},
		Spec: claim.Spec,
	}
}

// Record returns the text of AnnotationMoved for a claim.
func Record(claim *corev1.PersistentVolumeClaim) (string, error) {
	record := manifest(claim)
	record.UID = claim.UID
	text, err := json.Marshal(record)
	if err != nil {
		return "", fmt.Errorf("encode claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return string(text), nil
}

// Recorded returns the claim whose data a copy holds; nil if the copy is not complete.
func Recorded(held *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	text := held.Annotations[AnnotationMoved]
	if text == "" {
		return nil, nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	if err := json.Unmarshal([]byte(text), claim); err != nil {
		return nil, fmt.Errorf("read what claim %s/%s holds: %w", held.Namespace, held.Name, err)
	}
	return claim, nil
}

// Recreated returns the claim to create again, without Kubernetes' annotations about its volume.
func Recreated(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	out := manifest(claim.DeepCopy())
	maps.DeleteFunc(out.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "pv.kubernetes.io/") || strings.HasPrefix(key, "volume.kubernetes.io/") ||
			strings.HasPrefix(key, "volume.beta.kubernetes.io/")
	})
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, AnnotationMoving, MovingBegun)
	out.Spec.VolumeName = ""
	return out
}

// Server returns the pod that serves the volume of the claim to clients with the token. It runs
// where the volume is, or on the given node if the volume is to be created there. It tolerates
// virtual nodes even if its namespace is not offloaded.
func (m Move) Server(node, tokenHash string) *corev1.Pod {
	pod := m.pod(m.Namespace, m.id(), m.Name, "serve", fmt.Sprintf("--listen=:%d", MoverPort),
		"--token-hash="+tokenHash)
	pod.Spec.Tolerations = []corev1.Toleration{api.VirtualNodeToleration()}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready",
			Port: intstr.FromInt32(MoverPort)}},
		PeriodSeconds: 1,
	}
	if node != "" {
		pod.Spec.Affinity = &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchFields: []corev1.NodeSelectorRequirement{require("metadata.name",
						corev1.NodeSelectorOpIn, node)}}},
			}}}
	}
	return pod
}

// Client returns the pod that pulls the copy from a server, or pushes it there.
func (m Move) Client(verb, address, token string) *corev1.Pod {
	pod := m.pod(m.Volumes, m.id()+"-"+verb, m.id(), verb, address)
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: token}}
	return pod
}

// Pods returns all pods of the move, whether they exist or not.
func (m Move) Pods() []*corev1.Pod {
	return []*corev1.Pod{m.Server("", ""), m.Client("pull", "", ""), m.Client("push", "", "")}
}

// pod returns a pod that runs the mover role on a claim. It reads and creates files of all users,
// which needs four capabilities of root; Pod Security "baseline" allows these.
func (m Move) pod(namespace, name, claim string, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			Containers: []corev1.Container{{
				Name: "mover", Image: m.Image, ImagePullPolicy: m.PullPolicy, Resources: m.Resources,
				Args:         append(append([]string{"mover"}, args...), fmt.Sprintf("--size=%d", m.Size.Value())),
				VolumeMounts: []corev1.VolumeMount{{Name: "volume", MountPath: "/volume"}},
				SecurityContext: &corev1.SecurityContext{
					RunAsUser: new(int64(0)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
					Capabilities: &corev1.Capabilities{
						Drop: []corev1.Capability{"ALL"},
						Add:  []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID"},
					},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
			Volumes: []corev1.Volume{{Name: "volume", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}
}

// Users returns the names of the pods that use the claim or will use it, without those of the move.
// If since is set, it includes finished pods created since then: the copy may lack their data.
func (m Move) Users(pods []corev1.Pod, since *metav1.Time) []string {
	var names []string
	for i := range pods {
		pod := &pods[i]
		ended := api.Finished(pod.Status.Phase)
		if ended && (since == nil || pod.CreationTimestamp.Before(since)) || pod.Name == m.id() {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == m.Name || v.Ephemeral != nil &&
				pod.Name+"-"+v.Name == m.Name {
				names = append(names, pod.Name)
				break
			}
		}
	}
	return names
}

// MoveInput holds the input for the decision whether a volume can be moved.
type MoveInput struct {
	// Claim is the old claim, Provisioner that of its class, and Volume its volume; nil if it has
	// none.
	Claim       *corev1.PersistentVolumeClaim
	Provisioner string
	Volume      *corev1.PersistentVolume
	// Held says that the copy has all data, and that the claim was deleted or is about to be.
	Held   bool
	Target *corev1.Node
	// Strategy is that of the namespace's offloading; empty if it is not offloaded. Mapped says
	// that it is offloaded to the cluster of the target.
	Strategy offloadingv1beta1.PodOffloadingStrategy
	Mapped   bool
	// Users are the names of the pods that use the claim.
	Users []string
}

// Obstacle returns why a volume cannot be moved and what to do, or empty. Everything is checked
// before the first change, because a deleted claim can be created again only where there is room
// for its volume.
func Obstacle(in MoveInput) string {
	from, to := "", in.Target.Labels[api.LabelRemoteClusterID]
	if in.Volume != nil {
		from = in.Volume.Labels[api.LabelRemoteClusterID]
	}
	virtual := in.Target.Labels[api.LabelType] == api.TypeVirtualNode
	block := ptr.Deref(in.Claim.Spec.VolumeMode, "") == corev1.PersistentVolumeBlock
	switch {
	case in.Provisioner != api.StorageProvisioner:
		return "its storage class is not Liqo's, so its volume cannot be elsewhere; copy the data between two pods"
	case block:
		return "its volume is a block device; only file systems can be moved"
	case len(in.Users) > 0:
		return fmt.Sprintf("it is used by pod %s; scale down or delete what uses it", strings.Join(in.Users, ", "))
	case in.Volume == nil && !in.Held:
		return "it has no volume yet; start a pod where you want the volume"
	case virtual && from == to:
		return fmt.Sprintf("its volume is at %s already", to)
	case in.Target.Spec.Unschedulable:
		return fmt.Sprintf("node %s takes no pods; run 'kubectl uncordon %s'", in.Target.Name, in.Target.Name)
	case virtual && in.Target.Labels[api.LabelStorageAvailable] != api.True:
		return fmt.Sprintf("%s offers no storage; choose another node", to)
	case virtual && !in.Mapped:
		return fmt.Sprintf("its namespace is not offloaded to %s; run 'liqoctl offload namespace %s'", to,
			in.Claim.Namespace)
	case (from == "" && !in.Held || !virtual) && in.Strategy == offloadingv1beta1.RemoteStrategy:
		return fmt.Sprintf("no pod of its namespace may run at home; run 'liqoctl offload namespace %s "+
			"--pod-offloading-strategy LocalAndRemote' first", in.Claim.Namespace)
	}
	return ""
}
