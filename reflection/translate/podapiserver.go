// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
)

// homeAPIServerHost is the name by which a remote pod calls the API server of its home; the
// certificate of every API server is valid for it.
const homeAPIServerHost = "kubernetes.default"

// supportAPIServer gives a remote pod the API server it asks for by annotation: that of home
// (default), that of the provider, or none.
func supportAPIServer(out *corev1.PodSpec, home *corev1.Pod, v View) {
	mode := home.Annotations[api.AnnotationAPIServerSupport]
	if mode == apiServerRemote {
		account := cmp.Or(home.Annotations[api.AnnotationRemoteServiceAccountName], home.Spec.ServiceAccountName)
		out.ServiceAccountName, out.AutomountServiceAccountToken = account, new(true)
		return
	}
	renameRootCA(out, v.Consumer)
	if mode == apiServerDisabled || v.APIServer.Unsupported {
		dropTokens(out.Volumes)
		return
	}
	secret := api.ServiceAccountTokenSecretName(home.Name)
	readNamespaceFrom(out.Volumes, secret)
	readTokensFrom(out.Volumes, secret)
	host, port := cmp.Or(v.APIServer.Host, homeAPIServerHost), cmp.Or(v.APIServer.Port, "443")
	env := apiServerEnv(host, port)
	for _, containers := range [][]corev1.Container{out.InitContainers, out.Containers} {
		for i := range containers {
			c := &containers[i]
			nameServiceAccount(c.Env, home.Spec.ServiceAccountName)
			c.Env = addEnv(c.Env, env)
		}
	}
	for i := range out.EphemeralContainers {
		c := &out.EphemeralContainers[i]
		nameServiceAccount(c.Env, home.Spec.ServiceAccountName)
		c.Env = addEnv(c.Env, env)
	}
	if v.APIServer.Host != "" {
		return
	}
	for _, addr := range v.APIServer.Addrs {
		out.HostAliases = append(out.HostAliases, corev1.HostAlias{
			IP:        addr.String(),
			Hostnames: []string{homeAPIServerHost, homeAPIServerHost + ".svc"},
		})
	}
}

// apiServerEnv are the variables by which libraries find the API server.
func apiServerEnv(host, port string) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: host},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_PORT", Value: "tcp://" + host + ":" + port},
		{Name: "KUBERNETES_PORT_" + port + "_TCP", Value: "tcp://" + host + ":" + port},
		{Name: "KUBERNETES_PORT_" + port + "_TCP_PROTO", Value: "tcp"},
		{Name: "KUBERNETES_PORT_" + port + "_TCP_ADDR", Value: host},
		{Name: "KUBERNETES_PORT_" + port + "_TCP_PORT", Value: port},
	}
}

// addEnv adds variables the user has not set, in front: what follows may quote them, and a kubelet takes one
// that is not there yet from its own cluster.
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
		if p == nil || !slices.ContainsFunc(p.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
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
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}}
}

// readTokensFrom replaces tokens the kubelet would request by those kept in a Secret.
func readTokensFrom(volumes []corev1.Volume, secret string) {
	eachToken(volumes, func(volume string, source *corev1.VolumeProjection) {
		token := source.ServiceAccountToken
		*source = fromSecret(secret, corev1.KeyToPath{Key: tokenKey(volume, token.Path), Path: token.Path})
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

// eachToken visits the projections of service account tokens.
func eachToken(volumes []corev1.Volume, visit func(volume string, source *corev1.VolumeProjection)) {
	for i := range volumes {
		if volumes[i].Projected == nil {
			continue
		}
		for j := range volumes[i].Projected.Sources {
			if source := &volumes[i].Projected.Sources[j]; source.ServiceAccountToken != nil {
				visit(volumes[i].Name, source)
			}
		}
	}
}

// renameRootCA leads every use of the home cluster's CA to its copy at the provider.
func renameRootCA(out *corev1.PodSpec, consumer string) {
	rename := func(ref *corev1.LocalObjectReference) { ref.Name = ConfigMapName(ref.Name, consumer) }
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
	for _, containers := range [][]corev1.Container{out.InitContainers, out.Containers} {
		for i := range containers {
			renameRootCAEnv(&containers[i], rename)
		}
	}
}

func renameRootCAEnv(c *corev1.Container, rename func(*corev1.LocalObjectReference)) {
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
