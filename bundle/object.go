// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
)

var (
	// size matches what replaces the value of a key, so that redacting it again changes nothing.
	size = regexp.MustCompile(`^\d+ B$`)
	// keptAnnotations matches the domains of annotations that Liqo, Kubernetes and Helm write.
	keptAnnotations = regexp.MustCompile(`(^|\.)(liqo\.io|kubernetes\.io|k8s\.io|helm\.sh)/`)
	// byteFields are the fields that hold base64, which redacted text is not: certificates, requests, public keys.
	byteFields = []string{"ca", "caBundle", "certificate", "csr", "publicKey", "request", "signedCRT"}
	// containerFields are the fields of users' containers that stay.
	containerFields = []string{"name", "image", "imagePullPolicy", "ports", "resources", "restartPolicy",
		"securityContext", "volumeDevices", "volumeMounts"}
)

// Object returns a copy of an object in its JSON form without what may be secret:
//   - values of Secrets and ConfigMaps, which are replaced by their sizes; the ConfigMap with the cluster ID is kept
//   - annotations that neither Liqo, Kubernetes nor Helm defines, the last applied configuration, and managed fields
//   - values of environment variables, and texts and numbers in fields named like a credential
//   - fields of a container that can hold a secret, such as its command, unless own is set for a pod of Liqo
//
// Text redacts all other texts. All other fields are kept, so that the copy decodes into its type. Object is
// idempotent.
func Object(object map[string]any, own bool) map[string]any {
	kind, _ := object["kind"].(string)
	out := redactor{own: own && kind != "ShadowPod"}.fields(object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		// Names are no credentials, and some have the form of one: an Event's ends in a number.
		redacted := out["metadata"].(map[string]any)
		for _, key := range []string{"name", "namespace", "uid"} {
			if name, ok := metadata[key]; ok {
				redacted[key] = name
			}
		}
		if kind == "ConfigMap" && metadata["name"] == api.ClusterIDConfigMap {
			return out
		}
	}
	switch kind {
	case "Secret":
		hideValues(object, out, "stringData")
	case "ConfigMap":
		hideValues(object, out, "data")
	}
	return out
}

// hideValues replaces the values of a Secret's or ConfigMap's keys by their sizes, in the field into, which holds
// texts.
func hideValues(object, out map[string]any, into string) {
	sizes := map[string]any{}
	for _, field := range []string{"data", "binaryData", "stringData"} {
		delete(out, field)
		values, _ := object[field].(map[string]any)
		for key, value := range values {
			text, _ := value.(string)
			plain := field == into
			if plain && size.MatchString(text) {
				sizes[key] = text
				continue
			}
			n := len(text)
			if !plain {
				n = base64.StdEncoding.DecodedLen(n) - strings.Count(text, "=")
			}
			sizes[key] = fmt.Sprintf("%d B", n)
		}
	}
	if len(sizes) > 0 {
		out[into] = sizes
	}
}

// redactor redacts the fields of one object.
type redactor struct{ own bool }

func (r redactor) fields(object map[string]any) map[string]any {
	out := make(map[string]any, len(object))
	for key, value := range object {
		text, isText := value.(string)
		switch {
		case key == "managedFields", key == "signature": // a Tenant's signature of the provider's nonce
		case key == "annotations":
			out[key] = r.annotations(value)
		case isText && slices.Contains(byteFields, key):
			if key == "publicKey" && encodedKey.MatchString(text) || string(Text([]byte(text))) == text ||
				isOnlyBytes(text) {
				out[key] = text
			}
		case isCredential(key), strings.EqualFold(key, "kubeconfig"):
			out[key] = r.credential(value)
		case key == "env":
			out[key] = r.each(value, r.hideVariable)
		case !r.own && slices.Contains([]string{"containers", "initContainers", "ephemeralContainers"}, key):
			out[key] = r.each(value, trimContainer)
		default:
			out[key] = r.value(value)
		}
	}
	return out
}

// isOnlyBytes reports whether a text is base64 without credentials, and no key of WireGuard. The end of a certificate
// can look like one.
func isOnlyBytes(text string) bool {
	_, err := base64.StdEncoding.DecodeString(text)
	return err == nil && !encodedKey.MatchString(text) && !hasCredentials([]byte(text), maxEncodings)
}

// credential hides a text or a number. Switches, such as automountServiceAccountToken, and objects, such as the
// projection serviceAccountToken, hold no credential themselves.
func (r redactor) credential(value any) any {
	switch value := value.(type) {
	case nil, bool:
		return value
	case map[string]any:
		return r.fields(value)
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = r.credential(item)
		}
		return out
	case string:
		if value == "" {
			return value
		}
	}
	return hidden
}

func (r redactor) value(value any) any {
	switch value := value.(type) {
	case string:
		return string(Text([]byte(value)))
	case map[string]any:
		return r.fields(value)
	case []any:
		return r.each(value, func(map[string]any) {})
	}
	return value
}

// each redacts the items of a list, and then calls change for each object in it. A text that follows a flag named like
// a credential is redacted as its value.
func (r redactor) each(list any, change func(map[string]any)) any {
	items, ok := list.([]any)
	if !ok {
		return r.value(list)
	}
	out := make([]any, len(items))
	for i, item := range items {
		out[i] = r.value(item)
		if i > 0 && isFlagOfCredential(items[i-1]) {
			out[i] = hidden
		}
		if object, ok := out[i].(map[string]any); ok {
			change(object)
		}
	}
	return out
}

// isFlagOfCredential reports whether an item of a command is a flag for a credential, without the value.
func isFlagOfCredential(item any) bool {
	flag, _ := item.(string)
	return strings.HasPrefix(flag, "-") && isCredential(flag)
}

// hideVariable replaces the value of an environment variable.
func (r redactor) hideVariable(variable map[string]any) {
	if value, ok := variable["value"]; ok {
		variable["value"] = r.credential(value)
	}
}

func trimContainer(container map[string]any) {
	for key := range container {
		if !slices.Contains(containerFields, key) {
			delete(container, key)
		}
	}
}

func (r redactor) annotations(value any) any {
	annotations, ok := value.(map[string]any)
	if !ok {
		return r.value(value)
	}
	out := map[string]any{}
	for key, value := range annotations {
		if keptAnnotations.MatchString(key) && key != corev1.LastAppliedConfigAnnotation {
			out[key] = r.value(value)
		}
	}
	return out
}
