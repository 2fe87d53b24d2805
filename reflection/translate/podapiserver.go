// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// homeAPIServerHost is the name by which a remote pod calls the API server of its home; the
// certificate of every API server is valid for it.
const homeAPIServerHost = "kubernetes.default"

// ClusterDomain returns the DNS domain of the cluster that a pod with this resolv.conf runs in;
// empty for a resolver that is not the cluster's.
func ClusterDomain(resolvConf string) string {
	for line := range strings.Lines(resolvConf) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		for _, domain := range fields[1:] { // <namespace>.svc.<domain> svc.<domain> <domain>
			if domain, ok := strings.CutPrefix(domain, "svc."); ok {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return ""
}

// apiServerNames returns the names by which a pod of the namespace finds the API server in the DNS
// of home.
func (v View) apiServerNames(namespace string) []string {
	names := []string{homeAPIServerHost, homeAPIServerHost + ".svc"}
	if domain := v.APIServer.ClusterDomain; domain != "" {
		names = append(names, homeAPIServerHost+".svc."+domain)
	}
	if namespace == metav1.NamespaceDefault {
		names = append(names, "kubernetes")
	}
	return names
}

// supportAPIServer gives a remote pod the API server it asks for by annotation: that of home
// (default), that of the provider, or none.
func supportAPIServer(out *corev1.PodSpec, home *corev1.Pod, v View) {
	mode := home.Annotations[api.AnnotationAPIServerSupport]
	renameConfigMaps(out, func(name string) string {
		if name == rootCA && mode == apiServerRemote {
			return name
		}
		return ConfigMapName(name, v.Consumer)
	})
	if mode == apiServerRemote {
		account := cmp.Or(home.Annotations[api.AnnotationRemoteServiceAccountName], home.Spec.ServiceAccountName)
		out.ServiceAccountName, out.AutomountServiceAccountToken = account, new(true)
		return
	}
	if !usesHomeAPIServer(home, v) {
		dropTokens(out.Volumes)
		return
	}
	secret := api.ServiceAccountTokenSecretName(home.Name)
	readNamespaceFrom(out.Volumes, secret)
	readTokensFrom(out.Volumes, secret)
	host, port := cmp.Or(v.APIServer.Host, homeAPIServerHost), cmp.Or(v.APIServer.Port, "443")
	env := apiServerEnv(host, port)
	eachContainer(out, func(c *corev1.Container) {
		nameServiceAccount(c.Env, home.Spec.ServiceAccountName)
		c.Env = addEnv(c.Env, slices.DeleteFunc(slices.Clone(env),
			func(e corev1.EnvVar) bool { return v.takes(c.EnvFrom, e.Name) }))
	})
	if v.APIServer.Host != "" {
		return
	}
	names := slices.DeleteFunc(v.apiServerNames(home.Namespace), func(name string) bool {
		return slices.ContainsFunc(home.Spec.HostAliases,
			func(a corev1.HostAlias) bool { return slices.Contains(a.Hostnames, name) })
	})
	for _, addr := range v.APIServer.Addrs {
		if len(names) > 0 {
			out.HostAliases = append(out.HostAliases, corev1.HostAlias{IP: addr.String(), Hostnames: names})
		}
	}
}

// eachContainer visits all containers of a pod.
func eachContainer(pod *corev1.PodSpec, visit func(*corev1.Container)) {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			visit(&containers[i])
		}
	}
	for i := range pod.EphemeralContainers {
		visit((*corev1.Container)(&pod.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// EnvSources returns as "<kind>/<name>" the ConfigMaps and Secrets from which those containers take
// variables that are to be pushed with variables of the API server.
func EnvSources(home *corev1.Pod, remote *offv1beta1.ShadowPod, v View) []string {
	pushed := home.Spec
	switch {
	case !usesHomeAPIServer(home, v) || remote == nil && (api.Finished(home.Status.Phase) || ranOnce(home)):
		return nil
	case remote != nil:
		known := min(len(remote.Spec.Pod.EphemeralContainers), len(pushed.EphemeralContainers))
		pushed = corev1.PodSpec{EphemeralContainers: pushed.EphemeralContainers[known:]}
	}
	var out []string
	eachContainer(&pushed, func(c *corev1.Container) {
		for _, source := range c.EnvFrom {
			out = append(out, envSource(source))
		}
	})
	out = slices.DeleteFunc(out, func(source string) bool { return source == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

func envSource(s corev1.EnvFromSource) string {
	switch {
	case s.ConfigMapRef != nil:
		return "ConfigMap/" + s.ConfigMapRef.Name
	case s.SecretRef != nil:
		return "Secret/" + s.SecretRef.Name
	}
	return ""
}

// takes reports whether a container takes a variable from one of its sources. Env would override
// it.
func (v View) takes(sources []corev1.EnvFromSource, variable string) bool {
	return slices.ContainsFunc(sources, func(s corev1.EnvFromSource) bool {
		key, prefixed := strings.CutPrefix(variable, s.Prefix)
		return prefixed && slices.Contains(v.EnvKeys[envSource(s)], key)
	})
}

// usesHomeAPIServer reports whether the remote pod finds the API server of home.
func usesHomeAPIServer(home *corev1.Pod, v View) bool {
	mode := home.Annotations[api.AnnotationAPIServerSupport]
	return mode != apiServerRemote && mode != apiServerDisabled && !v.APIServer.Unsupported
}

// apiServerEnv returns the variables by which libraries find the API server. They are named after
// the port of the Service, as those that a kubelet sets for its own cluster: 443 and HTTPS in every
// cluster.
func apiServerEnv(host, port string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: host},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
		{Name: "KUBERNETES_PORT", Value: "tcp://" + host + ":" + port},
		{Name: "KUBERNETES_PORT_443_TCP", Value: "tcp://" + host + ":" + port},
		{Name: "KUBERNETES_PORT_443_TCP_PROTO", Value: "tcp"},
		{Name: "KUBERNETES_PORT_443_TCP_ADDR", Value: host},
		{Name: "KUBERNETES_PORT_443_TCP_PORT", Value: port},
	}
}

// addEnv adds variables the user has not set, in front: what follows may quote them, and a kubelet
// takes one that is not there yet from its own cluster.
func addEnv(env, add []corev1.EnvVar) []corev1.EnvVar {
	set := map[string]bool{}
	for _, e := range env {
		set[e.Name] = true
	}
	return append(slices.DeleteFunc(slices.Clone(add), func(e corev1.EnvVar) bool { return set[e.Name] }), env...)
}

// nameServiceAccount: the remote pod has no service account, so a variable that quotes it gets
// the name written out.
func nameServiceAccount(env []corev1.EnvVar, account string) {
	for i := range env {
		from := env[i].ValueFrom
		if from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == "spec.serviceAccountName" {
			env[i].Value, env[i].ValueFrom = account, nil
		}
	}
}

// namespaceKey is the home namespace in the Secret of a pod's tokens. Tokens have a dot in theirs.
const namespaceKey = "namespace"

// readNamespaceFrom: beside its token a client of the API server reads which namespace it is in.
// A client of the home API server is in the home one, whatever the remote one is called.
// Variables go on naming the remote one: programs make the names of Services from them.
func readNamespaceFrom(volumes []corev1.Volume, secret string) {
	for i := range volumes {
		p := volumes[i].Projected
		if p == nil || !slices.ContainsFunc(p.Sources,
			func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			continue
		}
		var items []corev1.KeyToPath
		p.Sources = slices.DeleteFunc(p.Sources, func(s corev1.VolumeProjection) bool {
			if s.DownwardAPI == nil {
				return false
			}
			s.DownwardAPI.Items = slices.DeleteFunc(s.DownwardAPI.Items, func(f corev1.DownwardAPIVolumeFile) bool {
				ofNamespace := f.FieldRef != nil && f.FieldRef.FieldPath == "metadata.namespace"
				if ofNamespace {
					items = append(items, corev1.KeyToPath{Key: namespaceKey, Path: f.Path, Mode: f.Mode})
				}
				return ofNamespace
			})
			return len(s.DownwardAPI.Items) == 0
		})
		if len(items) > 0 {
			p.Sources = append(p.Sources, fromSecret(secret, items...))
		}
	}
}

func fromSecret(name string, items ...corev1.KeyToPath) corev1.VolumeProjection {
	return corev1.VolumeProjection{
		Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}}
}

// readTokensFrom replaces tokens the kubelet would request by those kept in a Secret.
func readTokensFrom(volumes []corev1.Volume, secret string) {
	eachToken(volumes, func(_, key string, source *corev1.VolumeProjection) {
		*source = fromSecret(secret, corev1.KeyToPath{Key: key, Path: source.ServiceAccountToken.Path})
	})
}

func dropTokens(volumes []corev1.Volume) {
	for i := range volumes {
		if p := volumes[i].Projected; p != nil {
			kept := p.Sources[:0]
			for _, source := range p.Sources {
				if source.ServiceAccountToken == nil {
					kept = append(kept, source)
				}
			}
			p.Sources = kept
		}
	}
}

// eachToken visits the projections of service account tokens, with their keys in the Secret.
func eachToken(volumes []corev1.Volume, visit func(volume, key string, source *corev1.VolumeProjection)) {
	taken := map[string]bool{}
	for i := range volumes {
		if volumes[i].Projected == nil {
			continue
		}
		for j := range volumes[i].Projected.Sources {
			if source := &volumes[i].Projected.Sources[j]; source.ServiceAccountToken != nil {
				key := tokenKey(volumes[i].Name, source.ServiceAccountToken.Path, taken)
				taken[key] = true
				visit(volumes[i].Name, key, source)
			}
		}
	}
}

// renameConfigMaps gives ConfigMaps the names they have at the provider.
func renameConfigMaps(out *corev1.PodSpec, remote func(home string) string) {
	rename := func(ref *corev1.LocalObjectReference) { ref.Name = remote(ref.Name) }
	for i := range out.Volumes {
		volume := &out.Volumes[i]
		if volume.ConfigMap != nil {
			rename(&volume.ConfigMap.LocalObjectReference)
		}
		if volume.Projected == nil {
			continue
		}
		for j := range volume.Projected.Sources {
			if source := volume.Projected.Sources[j].ConfigMap; source != nil {
				rename(&source.LocalObjectReference)
			}
		}
	}
	eachContainer(out, func(c *corev1.Container) { renameEnv(c, rename) })
}

func renameEnv(c *corev1.Container, rename func(*corev1.LocalObjectReference)) {
	for i := range c.EnvFrom {
		if ref := c.EnvFrom[i].ConfigMapRef; ref != nil {
			rename(&ref.LocalObjectReference)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
			rename(&from.ConfigMapKeyRef.LocalObjectReference)
		}
	}
}
