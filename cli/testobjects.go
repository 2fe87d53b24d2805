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

// The objects of 'test network', built from values alone. The names are those users know.
const (
	trialNamespace = "liqo-test-network"
	// trialApp names the Deployments, with the ID of the cluster their pods run in behind it, and the
	// Service of all their pods.
	trialApp      = "netshoot"
	trialHostApp  = "netshoot-host"
	trialNodePort = "netshootnp"
	trialBalancer = "netshootlb"
	trialIP       = "external-ip"

	labelTrialApp     = "app"
	labelTrialCluster = "app-cluster"

	trialServicePort = 80
	// nobody is a user without rights, as in our other pods.
	nobody = 65532
)

// trialPods describes the pods that try the network of one cluster: one on each of its nodes.
type trialPods struct {
	cluster  string
	replicas int32
	image    string
	pull     corev1.PullPolicy
	// offloaded: the cluster is a provider, so the pods are offloaded to it.
	offloaded bool
}

// trialNamespaceObject is the namespace of the trial. Pods in the host's network need what Pod Security must grant.
func trialNamespaceObject() *corev1.Namespace {
	out := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: trialNamespace, Labels: map[string]string{}}}
	for _, mode := range []string{"enforce", "audit", "warn"} {
		out.Labels["pod-security.kubernetes.io/"+mode] = "privileged"
	}
	return out
}

// trialDeployment makes pods that answer with their names. Each node has one: at home that is said by
// anti-affinity, at a provider by the annotation that makes it there. The host name tells, in every
// EndpointSlice, in which cluster an endpoint is.
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

// trialHosts makes pods in the network of the nodes, from where checks start. They serve nobody.
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
			// A new pod finds no free node before an old one has gone.
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

// onePerNode keeps pods apart, and off virtual nodes.
func onePerNode(pods *metav1.LabelSelector) *corev1.Affinity {
	out := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}
	out.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: api.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{api.TypeVirtualNode}}}}}}
	out.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []corev1.PodAffinityTerm{
		{LabelSelector: pods, TopologyKey: corev1.LabelHostname}}
	return out
}

// trialService leads to the pods of all clusters.
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

// trialAddress makes an external address reachable through a cluster.
func trialAddress(address string) *ipamv1alpha1.IP {
	return &ipamv1alpha1.IP{
		ObjectMeta: metaOf(trialNamespace, trialIP),
		Spec:       ipamv1alpha1.IPSpec{IP: address, Masquerade: true},
	}
}
