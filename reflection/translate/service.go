// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"

	"github.com/liqo-go/liqo/api"
)

// Service pushes a Service. The provider assigns node ports, unless an annotation requests the same
// ones. The ClusterIP is the local one if the provider can assign it: programs may use the address
// instead of the name, and many clusters have the same range of Services. Otherwise see
// AnyClusterIP. A load balancer keeps its class, because API servers do not allow changes. The
// Service of the API server is never pushed. The error says that the external name cannot be
// translated.
func Service(home, remote *corev1.Service, v View) (*corev1.Service, error) {
	if apiServerService(home) || !reflects(home.Annotations, v.AllowList) {
		return nil, nil
	}
	out := copyOf(remote)
	out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
	in, s := home.Spec.DeepCopy(), &out.Spec
	if s.ClusterIP != "" && (s.ClusterIP == corev1.ClusterIPNone) != (in.ClusterIP == corev1.ClusterIPNone) {
		return nil, nil // it cannot become headless, nor get an address: it is deleted and created again
	}
	if s.ClusterIP == "" {
		s.ClusterIP = in.ClusterIP
	}
	if s.Type != corev1.ServiceTypeLoadBalancer || in.Type != corev1.ServiceTypeLoadBalancer {
		s.LoadBalancerClass = loadBalancerClass(in, v)
	}
	s.Type = in.Type
	s.Selector = v.selector(in.Selector)
	s.Ports = servicePorts(in.Ports, s.Ports, marked(home.Annotations, api.AnnotationForceRemoteNodePort))
	s.ExternalName = v.dnsName(in.ExternalName)
	s.LoadBalancerSourceRanges = sourceRanges(in.LoadBalancerSourceRanges)
	s.PublishNotReadyAddresses = in.PublishNotReadyAddresses
	s.SessionAffinity, s.SessionAffinityConfig = in.SessionAffinity, in.SessionAffinityConfig
	s.InternalTrafficPolicy, s.ExternalTrafficPolicy = in.InternalTrafficPolicy, in.ExternalTrafficPolicy
	s.IPFamilyPolicy = in.IPFamilyPolicy
	s.AllocateLoadBalancerNodePorts = in.AllocateLoadBalancerNodePorts
	s.TrafficDistribution = trafficDistribution(in.TrafficDistribution)
	return out, v.checkName("externalName", in.ExternalName)
}

// AnyClusterIP returns a Service to which the provider assigns whichever ClusterIP, for one that it
// refuses: the local ClusterIP may be outside its range, or taken. It returns nil for a Service
// that asks for none.
func AnyClusterIP(s *corev1.Service) *corev1.Service {
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	out := s.DeepCopy()
	out.Spec.ClusterIP = ""
	return out
}

// sourceRanges returns ranges without spaces, leading zeros and host bits: API servers from 1.36 on
// refuse these in new Services, but keep them in Services that they have.
func sourceRanges(local []string) []string {
	out := slices.Clone(local)
	for i, text := range out {
		if _, cidr, err := netutils.ParseCIDRSloppy(strings.TrimSpace(text)); err == nil {
			out[i] = cidr.String()
		}
	}
	return out
}

// trafficDistribution returns PreferClose for PreferSameZone, which means the same: API servers
// before 1.34 refuse a Service with the newer name.
func trafficDistribution(local *string) *string {
	if local != nil && *local == corev1.ServiceTrafficDistributionPreferSameZone {
		return new(corev1.ServiceTrafficDistributionPreferClose)
	}
	return local
}

// selector returns a selector of pods without Liqo's own keys, which remote pods lack: 'kubectl
// expose pod' copies them from a local pod. If no other key is left, it selects all pods of this
// cluster.
func (v View) selector(local map[string]string) map[string]string {
	out := maps.Clone(local)
	maps.DeleteFunc(out, func(key, _ string) bool { return stays(key) })
	if len(out) == 0 && len(local) > 0 {
		out[api.LabelOrigin] = v.Consumer
	}
	return out
}

func apiServerService(s *corev1.Service) bool {
	return s.Namespace == corev1.NamespaceDefault && s.Name == "kubernetes"
}

// servicePorts returns the home ports with the node ports that the provider assigned to them.
func servicePorts(home, remote []corev1.ServicePort, force bool) []corev1.ServicePort {
	type id struct {
		protocol corev1.Protocol
		port     int32
	}
	assigned := map[id]int32{}
	for _, p := range remote {
		assigned[id{p.Protocol, p.Port}] = p.NodePort
	}
	for i := range home {
		if p := &home[i]; !force || p.NodePort == 0 {
			p.NodePort = assigned[id{p.Protocol, p.Port}]
		}
	}
	return home
}

func loadBalancerClass(home *corev1.ServiceSpec, v View) *string {
	if home.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	if v.LoadBalancerClass != "" {
		return new(v.LoadBalancerClass)
	}
	return home.LoadBalancerClass
}
