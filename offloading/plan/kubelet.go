// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// KubeletSettings holds the settings that all virtual kubelets of this cluster share.
type KubeletSettings struct {
	// ClusterID is this cluster's ID.
	ClusterID string
	// LiqoNamespace is the namespace that Liqo is installed in.
	LiqoNamespace string
	// PodCIDRs are this cluster's pod CIDRs; may be empty.
	PodCIDRs []string
	// ReflectIPs shows the addresses of remote pods in the status of local ones.
	ReflectIPs bool
	// Storage makes virtual kubelets offer storage.
	Storage bool
	// RuntimeClass is the runtime class that sends pods to virtual nodes, whether their namespace
	// is offloaded or not.
	RuntimeClass string
}

// kubeletUser is a user ID without rights on the node; any number but 0 would do.
const kubeletUser = 65532

func kubeletSelector(vn *offloadingv1beta1.VirtualNode) map[string]string {
	return map[string]string{
		api.LabelOffloadingComponent: api.VirtualKubeletComponent,
		api.LabelVirtualNode:         vn.Name,
	}
}

func kubeletLabels(vn *offloadingv1beta1.VirtualNode) map[string]string {
	set := kubeletSelector(vn)
	maps.Copy(set, map[string]string{
		api.LabelManaged:         api.True,
		api.LabelRemoteClusterID: vn.Spec.ClusterID,
		api.LabelAppName:         api.VirtualKubeletComponent,
		api.LabelAppInstance:     api.LabelValue(api.VirtualKubeletComponent + "-" + vn.Name),
		api.LabelAppComponent:    "offloading",
		api.LabelAppPartOf:       api.PartOf,
	})
	return set
}

// kubeletDeployment returns the Deployment of a virtual node's kubelet, from spec.template if the
// user has set it, else from the options.
func kubeletDeployment(vn *offloadingv1beta1.VirtualNode, options *offloadingv1beta1.VkOptionsTemplate,
	s KubeletSettings) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: api.VirtualKubeletName(vn.Name), Namespace: vn.Namespace, Labels: kubeletLabels(vn),
	}}
	if t := vn.Spec.Template; t != nil {
		d.Labels, d.Annotations, d.Spec = labels.Merge(t.Labels, d.Labels), t.Annotations, *t.Spec.DeepCopy()
	} else {
		d.Spec = kubeletSpec(vn, options.Spec, s)
	}
	pod := &d.Spec.Template
	pod.Labels = labels.Merge(pod.Labels, kubeletLabels(vn))
	pod.Annotations = labels.Merge(pod.Annotations, map[string]string{
		api.AnnotationOffloadingPatchHash: hash(vn.Spec.OffloadingPatch),
	})
	return d
}

func kubeletSpec(vn *offloadingv1beta1.VirtualNode, o offloadingv1beta1.VkOptionsTemplateSpec,
	s KubeletSettings) appsv1.DeploymentSpec {
	replicas := ptr.Deref(o.Replicas, 1)
	// Recreate, because two kubelets at once would overwrite each other's address in the Node.
	// Several replicas elect a leader.
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if replicas > 1 {
		strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	return appsv1.DeploymentSpec{
		Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: kubeletSelector(vn)},
		Strategy: strategy,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(o.ExtraLabels),
				Annotations: maps.Clone(o.ExtraAnnotations)},
			Spec: corev1.PodSpec{
				ServiceAccountName: api.VirtualKubeletName(vn.Name),
				ImagePullSecrets:   o.ImagePullSecrets,
				Tolerations:        slices.Concat(o.Tolerations, leaveLostNode()),
				Containers:         []corev1.Container{kubeletContainer(vn, o, s)},
				SecurityContext: &corev1.PodSecurityContext{
					RunAsNonRoot: new(true), RunAsUser: new(int64(kubeletUser)), RunAsGroup: new(int64(kubeletUser)),
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			},
		},
	}
}

// leaveLostNode makes Kubernetes evict a kubelet from a lost node after 30 s. Without its kubelet
// the virtual node is not ready either, and its pods, which still run at the provider, are evicted
// after 300 s (Kubernetes' default). With that default for the kubelet, too, it would be replaced
// too late.
func leaveLostNode() []corev1.Toleration {
	leave := func(taint string) corev1.Toleration {
		return corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(30))}
	}
	return []corev1.Toleration{leave(corev1.TaintNodeNotReady), leave(corev1.TaintNodeUnreachable)}
}

func kubeletContainer(vn *offloadingv1beta1.VirtualNode, o offloadingv1beta1.VkOptionsTemplateSpec,
	s KubeletSettings) corev1.Container {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name,
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	return corev1.Container{
		Name:            api.VirtualKubeletComponent,
		Image:           o.ContainerImage,
		ImagePullPolicy: o.PullPolicy,
		Args:            kubeletArgs(vn, o, s),
		Env: []corev1.EnvVar{
			field("POD_IP", "status.podIP"),
			field("POD_NAME", "metadata.name"),
			field("POD_NAMESPACE", "metadata.namespace"),
			{Name: "VIRTUALNODE_NAME", Value: vn.Name},
		},
		Ports:     kubeletPorts(o),
		Resources: o.Resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// kubeletPorts returns the ports of the kubelet API and, if enabled, of the metrics.
func kubeletPorts(o offloadingv1beta1.VkOptionsTemplateSpec) []corev1.ContainerPort {
	ports := []corev1.ContainerPort{{Name: "kubelet", ContainerPort: api.KubeletPort, Protocol: corev1.ProtocolTCP}}
	_, text, err := net.SplitHostPort(o.MetricsAddress)
	if err != nil || !o.MetricsEnabled {
		return ports
	}
	if port, err := strconv.ParseUint(text, 10, 16); err == nil && port > 0 {
		ports = append(ports, corev1.ContainerPort{Name: "metrics", ContainerPort: int32(port),
			Protocol: corev1.ProtocolTCP})
	}
	return ports
}

// kubeletArgs returns the arguments for a virtual node and its options. Labels, taints and
// resources, which may change while the kubelet runs, are read from the VirtualNode instead.
func kubeletArgs(vn *offloadingv1beta1.VirtualNode, o offloadingv1beta1.VkOptionsTemplateSpec,
	s KubeletSettings) []string {
	args := []string{
		"kubelet",
		"--home-cluster-id=" + s.ClusterID,
		"--foreign-cluster-id=" + vn.Spec.ClusterID,
		"--foreign-kubeconfig-secret-name=" + vn.Spec.KubeconfigSecretRef.Name,
		"--nodename=" + vn.Name,
		"--node-ip=$(POD_IP)",
		"--tenant-namespace=" + vn.Namespace,
		"--liqo-namespace=" + s.LiqoNamespace,
		"--create-node=" + strconv.FormatBool(*vn.Spec.CreateNode),
		"--node-check-network=" + strconv.FormatBool(!*vn.Spec.DisableNetworkCheck),
		"--metrics-enabled=" + strconv.FormatBool(o.MetricsEnabled),
	}
	optional := func(flag, value string) {
		if value != "" {
			args = append(args, "--"+flag+"="+value)
		}
	}
	optional("metrics-address", o.MetricsAddress)
	optional("local-podcidr", strings.Join(s.PodCIDRs, ","))
	optional("labels-not-reflected", strings.Join(o.LabelsNotReflected, ","))
	optional("annotations-not-reflected", strings.Join(o.AnnotationsNotReflected, ","))
	optional("node-extra-labels", labels.Set(o.NodeExtraLabels).String())
	optional("node-extra-annotations", labels.Set(o.NodeExtraAnnotations).String())
	if !s.ReflectIPs {
		args = append(args, "--disable-ip-reflection")
	}
	if s.RuntimeClass != api.RuntimeClassName {
		args = append(args, "--liqo-runtime-class="+s.RuntimeClass)
	}
	if replicas := ptr.Deref(o.Replicas, 1); replicas > 1 {
		args = append(args, fmt.Sprintf("--vk-replicas=%d", replicas))
	}
	known := offloadingv1beta1.DefaultReflectors()
	for _, name := range slices.Sorted(maps.Keys(o.ReflectorsConfig)) {
		_, isKnown := known[name]
		switch r := o.ReflectorsConfig[name]; {
		case isKnown:
			args = append(args, fmt.Sprintf("--%s-reflection-workers=%d", name, r.Workers))
			optional(name+"-reflection-type", string(r.Type))
		case r.Kind != "" && strings.Count(name, ".") >= 2:
			args = append(args, fmt.Sprintf("--custom-reflection=%s=%s:%d:%s", name, r.Kind, r.Workers, r.Type))
		} // any other would be an unknown flag, with which the kubelet does not start
	}
	return slices.Concat(args, classArgs(vn.Spec, s), o.ExtraArgs)
}

// classArgs returns the flags that name the classes at the provider.
func classArgs(spec offloadingv1beta1.VirtualNodeSpec, s KubeletSettings) (args []string) {
	offer := func(enable, name, class string) {
		if class != "" {
			args = append(args, enable, name+"="+class)
		}
	}
	if s.Storage {
		offer("--enable-storage", "--remote-real-storage-class-name", chosenClass(spec.StorageClasses,
			func(c authv1beta1.StorageType) (string, bool) { return c.StorageClassName, c.Default }))
	}
	offer("--enable-ingress", "--remote-real-ingress-class-name", chosenClass(spec.IngressClasses,
		func(c authv1beta1.IngressType) (string, bool) { return c.IngressClassName, c.Default }))
	offer("--enable-load-balancer", "--remote-real-load-balancer-class-name", chosenClass(spec.LoadBalancerClasses,
		func(c authv1beta1.LoadBalancerType) (string, bool) { return c.LoadBalancerClassName, c.Default }))
	return args
}

// chosenClass returns the name of the default class, or the first name if none is the default; empty
// without classes.
func chosenClass[T any](classes []T, of func(T) (name string, isDefault bool)) (first string) {
	for _, class := range classes {
		name, isDefault := of(class)
		if isDefault {
			return name
		}
		first = cmp.Or(first, name)
	}
	return first
}

// hash returns a digest of the JSON of a value.
func hash(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return "" // what came out of JSON goes back into it
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
