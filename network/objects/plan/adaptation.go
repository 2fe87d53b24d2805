// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	flags "github.com/liqo-go/liqo/network/gateway/plan"
)

// adaptation tells what became of a template's pod, which one process runs. Templates of the
// original have three containers, and images and flags that do not exist here.
type adaptation struct {
	// replaced are the containers whose work the container gateway does, and ports theirs.
	replaced []string
	ports    []corev1.ContainerPort
	// ignored are the flags and fields without effect, as the template has them.
	ignored []string
}

// replacedContainers are the containers of the original's gateways beside the one called gateway.
var replacedContainers = []string{"wireguard", "geneve"}

// adapt makes the container gateway of a Deployment start with its flags, and run alone if the
// template was written for the original. Sidecars of users stay, and so does a container that says
// itself what it executes. The error is that of flags with which the process would end.
func (w wgGateway) adapt(d *appsv1.DeploymentSpec) (adaptation, error) {
	pod, a := &d.Template.Spec, adaptation{}
	isReplaced := func(c corev1.Container) bool { return slices.Contains(replacedContainers, c.Name) }
	isGateway := func(c corev1.Container) bool { return c.Name == gatewayContainer }
	i := slices.IndexFunc(pod.Containers, isGateway)
	if i < 0 {
		return a, nil
	}
	parts := []corev1.Container{pod.Containers[i]}
	for _, c := range pod.Containers {
		if isReplaced(c) {
			parts = append(parts, c)
			a.replaced, a.ports = append(a.replaced, c.Name), append(a.ports, c.Ports...)
		}
	}
	pod.Containers = slices.DeleteFunc(pod.Containers, isReplaced)
	gateway := &pod.Containers[slices.IndexFunc(pod.Containers, isGateway)]
	words := slices.Concat(roleWords(gateway.Command), roleWords(gateway.Args))
	foreign := len(a.replaced) > 0 || !slices.Contains(words, gatewayContainer)
	if foreign && len(a.replaced) == 0 && len(gateway.Command) > 0 {
		return a, nil
	}
	if foreign {
		a.merge(gateway, parts[1:])
	}
	setEnv(gateway)
	args := w.arguments(&a, parts, *gateway, foreign)
	if foreign && ptr.Deref(d.Replicas, 1) > 1 && !args.set.Changed(electionFlag) {
		args.accept(templateFlag{name: electionFlag, value: api.True}, *gateway)
	}
	options, err := args.flags.Options()
	gateway.Args = append(slices.Clone(roleWords(gateway.Args)), args.words...)
	if foreign {
		gateway.Command, gateway.Image = nil, cmp.Or(w.Image, gateway.Image)
		gateway.Args = append([]string{gatewayContainer}, args.words...)
		probe(gateway, options.HealthAddress)
		mount(pod, gateway, options.KeysDir, keyVolume, corev1.VolumeSource{})
		mount(pod, gateway, tunDevice, "tun", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: tunDevice, Type: new(corev1.HostPathCharDev),
		}})
	}
	if pod.HostNetwork {
		a.leaveHostNetwork(pod, gateway, options)
	}
	return a, err
}

// tunDevice is needed where the kernel has no WireGuard.
const tunDevice = "/dev/net/tun"

// merge gives the container what others have that it needs for their work, and no more privileges
// than that takes.
func (a *adaptation) merge(gateway *corev1.Container, others []corev1.Container) {
	for _, c := range others {
		gateway.EnvFrom = append(gateway.EnvFrom, c.EnvFrom...)
		for _, e := range c.Env {
			if !slices.ContainsFunc(gateway.Env, func(have corev1.EnvVar) bool { return have.Name == e.Name }) {
				gateway.Env = append(gateway.Env, e)
			}
		}
		for _, m := range c.VolumeMounts {
			if !mounted(gateway, m.MountPath) {
				gateway.VolumeMounts = append(gateway.VolumeMounts, m)
			}
		}
	}
	addResources(&gateway.Resources, others)
	if gateway.Lifecycle != nil {
		gateway.Lifecycle, a.ignored = nil, append(a.ignored, "lifecycle")
	}
	var former corev1.SecurityContext
	if gateway.SecurityContext != nil {
		former = *gateway.SecurityContext
	}
	gateway.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsUser: new(int64(0)),
		Capabilities:    &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
		SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		AppArmorProfile: former.AppArmorProfile, SELinuxOptions: former.SELinuxOptions,
	}
}

// addResources adds up the requests of all containers, and limits that all of them have: one
// without a limit could use any amount.
func addResources(r *corev1.ResourceRequirements, others []corev1.Container) {
	for _, c := range others {
		for name := range r.Limits {
			if limit, ok := c.Resources.Limits[name]; ok {
				limit.Add(r.Limits[name])
				r.Limits[name] = limit
			} else {
				delete(r.Limits, name)
			}
		}
		for name, request := range c.Resources.Requests {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			request.Add(r.Requests[name])
			r.Requests[name] = request
		}
	}
	for name, request := range r.Requests { // may exceed the limit of a container that had no request
		if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			delete(r.Limits, name)
		}
	}
}

// setEnv sets the variables that flags of the process default to, unless the template has them.
func setEnv(c *corev1.Container) {
	for _, v := range [][2]string{
		{"NODE_NAME", "spec.nodeName"}, {"POD_NAME", "metadata.name"}, {"POD_IP", "status.podIP"},
	} {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == v[0] }) {
			c.Env = append(c.Env, corev1.EnvVar{Name: v[0], ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: v[1]}}})
		}
	}
}

// probe makes the probes of a container ask the process where it answers. Times stay as they are.
func probe(c *corev1.Container, address string) {
	port, err := strconv.Atoi(address[strings.LastIndexByte(address, ':')+1:])
	if err != nil || port == 0 { // switched off
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = nil, nil, nil
		return
	}
	at := func(path string, p *corev1.Probe, byDefault corev1.Probe) *corev1.Probe {
		if p == nil {
			p = &byDefault
		}
		p.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}}
		return p
	}
	c.LivenessProbe = at("/healthz", c.LivenessProbe, corev1.Probe{TimeoutSeconds: 10})
	c.ReadinessProbe = at("/readyz", c.ReadinessProbe, corev1.Probe{PeriodSeconds: 2})
	if c.StartupProbe != nil {
		c.StartupProbe = at("/healthz", c.StartupProbe, corev1.Probe{})
	}
}

func mounted(c *corev1.Container, path string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
}

// mount mounts a volume at a path where nothing is mounted, and adds the volume unless the pod has
// one of its name.
func mount(pod *corev1.PodSpec, c *corev1.Container, path, volume string, source corev1.VolumeSource) {
	if mounted(c, path) {
		return
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path})
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == volume }) {
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: source})
	}
}

// leaveHostNetwork takes a pod off its node's network, where its devices, routes and rules would be
// mixed up with those of the fabric. The ports of a server stay reachable at the node's address.
func (a *adaptation) leaveHostNetwork(pod *corev1.PodSpec, gateway *corev1.Container, o flags.Options) {
	pod.HostNetwork = false
	a.ignored = append(a.ignored, "hostNetwork")
	if !o.Server {
		return
	}
	protocol := corev1.ProtocolUDP
	if o.TCP {
		protocol = corev1.ProtocolTCP
	}
	for _, port := range o.Ports() {
		number := int32(port)
		gateway.Ports = slices.DeleteFunc(gateway.Ports, func(p corev1.ContainerPort) bool {
			return p.ContainerPort == number && cmp.Or(p.Protocol, corev1.ProtocolTCP) == protocol
		})
		gateway.Ports = append(gateway.Ports, corev1.ContainerPort{
			ContainerPort: number, HostPort: number, Protocol: protocol,
		})
	}
}

// resolveTargets replaces names of ports of replaced containers by their numbers in a Service.
func (a adaptation) resolveTargets(s *corev1.Service) {
	for i := range s.Spec.Ports {
		target := &s.Spec.Ports[i].TargetPort
		for _, p := range a.ports {
			if target.Type == intstr.String && target.StrVal == p.Name {
				*target = intstr.FromInt32(p.ContainerPort)
			}
		}
	}
}

// dropTargets removes ports of a metrics Service that lead to replaced containers: the one that runs
// has all metrics. The last port stays.
func (a adaptation) dropTargets(s *corev1.Service) {
	left := slices.DeleteFunc(slices.Clone(s.Spec.Ports), func(port corev1.ServicePort) bool {
		return slices.ContainsFunc(a.ports, func(p corev1.ContainerPort) bool {
			return p.Name != "" && port.TargetPort.StrVal == p.Name || port.TargetPort.IntVal == p.ContainerPort
		})
	})
	if len(left) > 0 {
		s.Spec.Ports = left
	}
}

// summary returns the reason and message of the condition about what has no effect; empty if all
// of the template has.
func (a adaptation) summary() (reason, message string) {
	var says []string
	if len(a.ignored) > 0 {
		reason = netv1beta1.ReasonFlagsIgnored
		says = append(says, "without effect: "+strings.Join(a.ignored, ", "))
	}
	if len(a.replaced) > 0 {
		reason = netv1beta1.ReasonOneContainer
		says = slices.Insert(says, 0, "the container gateway does the work of "+strings.Join(a.replaced, ", "))
	}
	if len(says) == 0 {
		return "", ""
	}
	return reason, api.Printable(strings.Join(says, "; ") + "; remove them from the template")
}
