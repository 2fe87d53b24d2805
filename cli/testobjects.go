// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/internal/echo"
)

// The objects of 'test network', built from values only. Users know their names.
const (
	trialNamespace = "liqo-test-network"
	// trialApp names the Service of all pods, and, followed by the ID of the cluster of their pods,
	// the Deployments.
	trialApp      = "netshoot"
	trialHostApp  = "netshoot-host"
	trialNodePort = "netshootnp"
	trialBalancer = "netshootlb"
	trialIP       = "external-ip"

	labelTrialApp     = "app"
	labelTrialCluster = "app-cluster"

	trialServicePort = 80
	// nobody is a user without rights, as in the other pods of Liqo.
	nobody = 65532
)

// trialPods describes the pods that try the network of one cluster: one on each of its nodes.
type trialPods struct {
	cluster  string
	replicas int32
	image    string
	pull     corev1.PullPolicy
	// offloaded reports that the cluster is a provider, so that the pods are offloaded to it.
	offloaded bool
}

// trialNamespaceObject returns the namespace of the trial. Pod Security must allow pods in the
// network of their node.
func trialNamespaceObject() *corev1.Namespace {
	return privilegedNamespace(metav1.ObjectMeta{Name: trialNamespace, Labels: map[string]string{}})
}

// trialDeployment returns a Deployment of pods that answer with their names, one on each node: at a
// provider the annotation demands the anti-affinity. The host name, which is in every
// EndpointSlice, is the ID of the pod's cluster.
func trialDeployment(p trialPods) *appsv1.Deployment {
	out := trialBase(p, trialApp, "--port="+strconv.Itoa(echo.Port))
	pod := &out.Spec.Template
	pod.Spec.Hostname, pod.Spec.Subdomain = p.cluster, trialApp
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/",
			Port: intstr.FromInt32(echo.Port)}},
		PeriodSeconds: 1,
	}
	if p.offloaded {
		pod.Annotations = map[string]string{
			api.AnnotationAntiAffinityPreset: "hard",
			api.AnnotationAntiAffinityLabels: labelTrialApp + "," + labelTrialCluster,
		}
		pod.Spec.NodeSelector = map[string]string{api.LabelRemoteClusterID: p.cluster}
		return out
	}
	pod.Spec.Affinity = onePerNode(out.Spec.Selector)
	return out
}

// trialHosts returns a Deployment of pods in the network of the nodes, which only send requests.
func trialHosts(p trialPods) *appsv1.Deployment {
	out := trialBase(p, trialHostApp, "--port=0")
	out.Spec.Template.Spec.HostNetwork = true
	out.Spec.Template.Spec.Affinity = onePerNode(out.Spec.Selector)
	return out
}

func trialBase(p trialPods, app, port string) *appsv1.Deployment {
	labels := map[string]string{labelTrialApp: app, labelTrialCluster: p.cluster}
	ownName := &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: metav1.ObjectNameField}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: trialNamespace, Name: app + "-" + p.cluster, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &p.replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			// A new pod cannot be scheduled before an old one is gone.
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(1)),
				AutomountServiceAccountToken:  new(false),
				Containers: []corev1.Container{{
					Name: trialApp, Image: p.image, ImagePullPolicy: p.pull, Args: []string{"echo", port},
					Env: []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: ownName}},
					Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{"cpu": resource.MustParse("5m"),
							"memory": resource.MustParse("32Mi")},
						Limits: corev1.ResourceList{"cpu": resource.MustParse("500m"),
							"memory": resource.MustParse("128Mi")},
					},
					SecurityContext: &corev1.SecurityContext{
						RunAsUser: new(int64(nobody)), RunAsNonRoot: new(true), ReadOnlyRootFilesystem: new(true),
						AllowPrivilegeEscalation: new(false),
						Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
						SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
				}},
			}},
		},
	}
}

// onePerNode allows one of the pods per node, and none on virtual nodes.
func onePerNode(pods *metav1.LabelSelector) *corev1.Affinity {
	out := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	out.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: api.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{api.TypeVirtualNode}}}}}}
	out.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{
		{LabelSelector: pods, TopologyKey: corev1.LabelHostname}}
	return out
}

// trialService returns a Service of the pods of all clusters.
func trialService(name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metaOf(trialNamespace, name),
		Spec: corev1.ServiceSpec{
			Type: kind, Selector: map[string]string{labelTrialApp: trialApp},
			Ports: []corev1.ServicePort{{Name: "http", Port: trialServicePort, TargetPort: intstr.FromInt32(echo.Port),
				Protocol: corev1.ProtocolTCP}},
		},
	}
}

// trialAddress returns the IP that makes an external address reachable through a cluster.
func trialAddress(address string) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metaOf(trialNamespace, trialIP),
		Spec:       ipamv1alpha1.IPSpec{IP: address, Masquerade: true},
	}
}
