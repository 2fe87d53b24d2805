// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// formerFor is how long a node port serves that another has replaced. A client in band learns of the
// other only through the tunnel, which may fail before: new flows go to the port that it knows, and
// the flow that nodes know ends with the server's pod. An hour outlasts restarts of both clusters.
const formerFor = time.Hour

// formerMax is how many former node ports serve, so that a peer that changes its port all the time
// does not take those of the cluster. A tunnel has one.
const formerMax = 3

// formerPrefix begins the names of Service ports that serve a former node port.
const formerPrefix = "former-"

// isFormer reports whether a port was made by formerPort. A template's may have a name alike.
func isFormer(p corev1.ServicePort) bool {
	return p.Port == p.NodePort && p.Name == fmt.Sprint(formerPrefix, p.NodePort)
}

// keepNodePorts gives a Service that was deleted, or will be by the time it is applied, the node ports
// that clients know. If they know others, it adds a port for each, for formerFor. It returns how long
// such ports stay, and 0 if it adds none.
//
//	asked for   status.endpoint   node ports of the Service
//	any         30742             30742
//	30999       30742             30999, 30742
//	30999       30999             30999, 30742 until AnnotationFormerUntil
func (in WgServerInput) keepNodePorts(service *corev1.Service) time.Duration {
	if service.Spec.Type != corev1.ServiceTypeNodePort {
		return 0
	}
	live := &corev1.Service{}
	if in.Service != nil {
		live = in.Service
	}
	known := endpointPorts(in.Root.Status.Endpoint)
	until, _ := time.Parse(time.RFC3339, live.Annotations[api.AnnotationFormerUntil]) // absent = over
	var current []int32
	var former []corev1.ServicePort
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		stays := i < len(known) && known[i] != p.Port && !slices.Contains(in.Taken, known[i]) // not a load balancer's
		p.NodePort = cmp.Or(p.NodePort, nodePortOf(live, p))
		if stays && in.Service == nil {
			p.NodePort = cmp.Or(p.NodePort, known[i])
		}
		current = append(current, p.NodePort)
		if stays && p.NodePort != 0 && p.NodePort != known[i] {
			former = append(former, formerPort(*p, known[i]))
			until = in.Now.Add(formerFor)
		}
	}
	for _, p := range live.Spec.Ports {
		again := func(f corev1.ServicePort) bool { return f.NodePort == p.NodePort }
		if isFormer(p) && in.Now.Before(until) && !slices.ContainsFunc(former, again) {
			former = append(former, p)
		}
	}
	former = slices.DeleteFunc(former, func(p corev1.ServicePort) bool { return slices.Contains(current, p.NodePort) })
	if len(former) == 0 || service.Spec.Ports[0].Name == "" { // of several ports each needs a name
		return 0
	}
	service.Spec.Ports = append(service.Spec.Ports, former[:min(len(former), formerMax)]...)
	service.Annotations = labels.Merge(service.Annotations,
		map[string]string{api.AnnotationFormerUntil: until.UTC().Format(time.RFC3339)})
	return until.Sub(in.Now)
}

// serves reports whether a Service has all node ports of an endpoint.
func serves(s *corev1.Service, e *netv1beta1.EndpointStatus) bool {
	return !slices.ContainsFunc(endpointPorts(e), func(known int32) bool {
		return !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == known })
	})
}

// formerPort returns a port that leads where p does, for a node port.
func formerPort(p corev1.ServicePort, nodePort int32) corev1.ServicePort {
	p.Name, p.Port, p.NodePort = fmt.Sprint(formerPrefix, nodePort), nodePort, nodePort
	return p
}

// nodePortOf returns the node port that a Service has for one of its ports; 0 = none.
func nodePortOf(s *corev1.Service, of *corev1.ServicePort) int32 {
	for _, p := range s.Spec.Ports {
		if p.Port == of.Port && cmp.Or(p.Protocol, corev1.ProtocolTCP) == cmp.Or(of.Protocol, corev1.ProtocolTCP) {
			return p.NodePort
		}
	}
	return 0
}

// endpointPorts returns the ports of an endpoint; nil if it is nil.
func endpointPorts(e *netv1beta1.EndpointStatus) []int32 {
	switch {
	case e == nil:
		return nil
	case len(e.Ports) > 0:
		return e.Ports
	}
	return []int32{e.Port}
}
