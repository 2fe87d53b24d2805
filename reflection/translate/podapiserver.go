// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

const (
	// homeAPIServer is the name of the Service of the API server, with its namespace.
	homeAPIServer = "kubernetes.default"
	// homeAPIServerHost is the name by which a remote pod reaches the home cluster's API server. The
	// certificate of every API server is valid for it. It ends like the names for which people set
	// NO_PROXY, so that clients do not ask a proxy.
	homeAPIServerHost = homeAPIServer + ".svc"
)

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

// apiServerNames returns the names of the API server in the home cluster's DNS, for a pod of the
// namespace.
func (v View) apiServerNames(namespace string) []string {
	names := []string{homeAPIServer, homeAPIServerHost}
	if domain := v.APIServer.ClusterDomain; domain != "" {
		names = append(names, homeAPIServerHost+"."+domain)
	}
	if namespace == metav1.NamespaceDefault {
		names = append(names, "kubernetes")
	}
	return names
}

// supportAPIServer gives a remote pod access to the API server that its annotation selects: that of
// the home cluster (default), that of the provider, or none.
func supportAPIServer(out *corev1.PodSpec, home *corev1.Pod, v View) {
	mode := home.Annotations[api.AnnotationAPIServerSupport]
	eachReference(out, func(kind string, name *string) {
		if kind == kindConfigMap && !(*name == rootCA && mode == apiServerRemote) {
			*name = ConfigMapName(*name, v.Consumer)
		}
	})
	if mode == apiServerRemote {
		account := cmp.Or(home.Annotations[api.AnnotationRemoteServiceAccountName], home.Spec.ServiceAccountName)
		out.ServiceAccountName, out.AutomountServiceAccountToken = account, new(true)
		return
	}
	nameHomePod(out, home)
	secret := api.ServiceAccountTokenSecretName(home.Name)
	fileMode := credentialMode(&home.Spec)
	readTrustFrom(out.Volumes, secret, fileMode)
	readCertificatesFrom(out.Volumes, secret, fileMode)
	if !usesHomeAPIServer(home, v) {
		dropTokens(out.Volumes)
		return
	}
	readNamespaceFrom(out.Volumes, secret)
	readTokensFrom(out.Volumes, secret, fileMode)
	host, port := cmp.Or(v.APIServer.Host, homeAPIServerHost), cmp.Or(v.APIServer.Port, "443")
	eachContainer(out, func(c *corev1.Container) {
		setVariables(c.Env, "spec.serviceAccountName", home.Spec.ServiceAccountName)
		missing := slices.DeleteFunc(apiServerEnv(host, port), func(e corev1.EnvVar) bool {
			isSet := slices.ContainsFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == e.Name })
			return isSet || v.takes(c.EnvFrom, e.Name)
		})
		// In front, because those of the user may refer to them. A kubelet resolves a reference
		// that is not defined yet with the variables of its own cluster.
		c.Env = append(missing, c.Env...)
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

// usesHomeAPIServer reports whether the remote pod gets access to the home cluster's API server.
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

// setVariables sets variables that refer to a field of the pod to the value that the home pod has.
func setVariables(env []corev1.EnvVar, field, value string) {
	for i := range env {
		from := env[i].ValueFrom
		if from != nil && from.FieldRef != nil && from.FieldRef.FieldPath == field {
			env[i].Value, env[i].ValueFrom = value, nil
		}
	}
}

// nameHomePod lets variables and files of the downward API hold the UID of the home pod. What a pod creates
// in the home cluster with itself as owner would be deleted as garbage otherwise.
func nameHomePod(out *corev1.PodSpec, home *corev1.Pod) {
	const field = "metadata.uid"
	eachContainer(out, func(c *corev1.Container) { setVariables(c.Env, field, string(home.UID)) })
	files := func(items []corev1.DownwardAPIVolumeFile) {
		for _, file := range items {
			if file.FieldRef != nil && file.FieldRef.FieldPath == field {
				file.FieldRef.FieldPath = "metadata.annotations['" + HomeUIDAnnotation + "']"
			}
		}
	}
	for _, v := range out.Volumes {
		if v.DownwardAPI != nil {
			files(v.DownwardAPI.Items)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.DownwardAPI != nil {
				files(source.DownwardAPI.Items)
			}
		}
	}
}

// namespaceKey is the home namespace in the Secret of a pod's tokens. Tokens have a dot in theirs.
const namespaceKey = "namespace"

// readNamespaceFrom replaces the namespace in volumes of tokens by the home namespace, kept in a
// Secret: clients of the home API server read it beside their token. Variables still hold the
// remote namespace, because programs make names of Services from them.
func readNamespaceFrom(volumes []corev1.Volume, secret string) {
	for i := range volumes {
		p := volumes[i].Projected
		if p == nil || !slices.ContainsFunc(p.Sources, isToken) {
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
func readTokensFrom(volumes []corev1.Volume, secret string, mode *int32) {
	for key, source := range tokenSources(volumes) {
		of := source.ServiceAccountToken
		*source = fromSecret(secret, corev1.KeyToPath{Key: key, Path: of.Path, Mode: mode, User: of.User})
	}
}

// readTrustFrom replaces ClusterTrustBundles the kubelet would read by what a Secret holds of them.
func readTrustFrom(volumes []corev1.Volume, secret string, mode *int32) {
	for key, source := range trustSources(volumes) {
		of := source.ClusterTrustBundle
		*source = fromSecret(secret, corev1.KeyToPath{Key: key, Path: of.Path, Mode: mode, User: of.User})
	}
}

// credentialMode returns the mode of files with tokens, certificates and trust anchors; nil = that of their
// volume. A kubelet that creates such files gives them to the user of all containers with mode 0600, or to the
// fsGroup with 0640. Files of a Secret belong to root. So the user gets the right of root's group to read them, or
// that of all others if its group is not known to be root's. No other pod mounts the volume. With an fsGroup,
// kubelets add the group, and its right to read, to files of Secrets, too (pkg/volume/projected of Kubernetes).
func credentialMode(pod *corev1.PodSpec) *int32 {
	of := ptr.Deref(pod.SecurityContext, corev1.PodSecurityContext{})
	if of.FSGroup != nil {
		return new(int32(0o600))
	}
	var users, groups []int64 // -1: not known
	eachContainer(pod, func(c *corev1.Container) {
		own := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
		users = append(users, ptr.Deref(cmp.Or(own.RunAsUser, of.RunAsUser), -1))
		groups = append(groups, ptr.Deref(cmp.Or(own.RunAsGroup, of.RunAsGroup), -1))
	})
	switch users, groups = slices.Compact(users), slices.Compact(groups); {
	case len(users) != 1 || users[0] < 0:
		return nil
	case users[0] == 0:
		return new(int32(0o600))
	case len(groups) == 1 && groups[0] == 0:
		return new(int32(0o440))
	}
	return new(int32(0o444))
}

func dropTokens(volumes []corev1.Volume) {
	for i := range volumes {
		if p := volumes[i].Projected; p != nil {
			p.Sources = slices.DeleteFunc(p.Sources, isToken)
		}
	}
}

func isToken(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }

// tokenSources yields the projections of service account tokens, with their keys in the Secret.
func tokenSources(volumes []corev1.Volume) iter.Seq2[string, *corev1.VolumeProjection] {
	return keyed(volumes, "", func(s *corev1.VolumeProjection) string {
		if s.ServiceAccountToken == nil {
			return ""
		}
		return s.ServiceAccountToken.Path
	})
}

// trustPrefix begins the keys of trust anchors in the Secret, and no other.
const trustPrefix = "_"

// trustSources yields the projections of ClusterTrustBundles, with their keys in the Secret.
func trustSources(volumes []corev1.Volume) iter.Seq2[string, *corev1.VolumeProjection] {
	return keyed(volumes, trustPrefix, func(s *corev1.VolumeProjection) string {
		if s.ClusterTrustBundle == nil {
			return ""
		}
		return s.ClusterTrustBundle.Path
	})
}

// keyed yields the projections that have a path, with their keys in the Secret.
func keyed(
	volumes []corev1.Volume, prefix string, path func(*corev1.VolumeProjection) string,
) iter.Seq2[string, *corev1.VolumeProjection] {
	return func(yield func(string, *corev1.VolumeProjection) bool) {
		taken := map[string]bool{}
		for _, v := range volumes {
			if v.Projected == nil {
				continue
			}
			for j := range v.Projected.Sources {
				source := &v.Projected.Sources[j]
				path := path(source)
				if path == "" {
					continue
				}
				key := secretKey(prefix+v.Name, path, taken)
				taken[key] = true
				if !yield(key, source) {
					return
				}
			}
		}
	}
}

// secretKey returns the key of a file in the Secret: one for each volume and path. A path may
// contain characters that keys must not, be longer, or map to the key of another path; taken holds
// the keys of others.
func secretKey(volume, path string, taken map[string]bool) string {
	key := volume + "." + strings.ReplaceAll(path, "/", "_")
	if len(validation.IsConfigMapKey(key)) > 0 || taken[key] {
		key = volume + "." + api.Digits(path)
	}
	return key
}
