// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/liqo-go/liqo/bundle"
	"github.com/liqo-go/liqo/internal/seed"
)

const (
	jwt = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"
	key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
	pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49\n-----END EC PRIVATE KEY-----"
	// certificate is no secret.
	certificate = "-----BEGIN CERTIFICATE-----\nMIIBhTCCASugAwIBAgIQIRi6zePL6mKjOipn+dNuaTAKBggqhkjOPQQDAjASMRAw\nDgYDVQQKEwdBY21lIENvMB4XDTE3MTAyMDE5NDMwNloXDTE4\n-----END CERTIFICATE-----\n"
)

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// texts are what Text makes of what it is for.
var texts = []struct{ name, text, want string }{
	{"a JSON Web Token in a log", `I0101 msg="refused" err="token ` + jwt + ` has ended"`, `I0101 msg="refused" err="token *** has ended"`},
	{"a header", "> Authorization: Bearer abcdefghijklmnopqrst\n", "> Authorization: ***\n"},
	{"a bearer token in prose", "sent bearer abcdefghijklmnopqrst to it", "sent bearer *** to it"},
	{"prose stays", "the bearer of this token is refused: Basic information follows", "the bearer of this token is refused: Basic information follows"},
	{"a private key", "before\n" + pem + "\nafter", "before\n***\nafter"},
	{"the beginning of a private key", "before " + pem[:80], "before ***"},
	{"the beginning of a private key in JSON", `{"key":"` + strings.ReplaceAll(pem[:80], "\n", `\n`) + `","port":1}`, `{"key":"***","port":1}`},
	{"the beginning of an encrypted key", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n" + pem[31:95] + "\nError: x", "***\nError: x"},
	{"the beginning of a private key in prose", "-----BEGIN PRIVATE KEY----- is missing\nand -----END PRIVATE KEY-----", "***"},
	{"the end of a private key", pem[60:] + "\nafter", "***\nafter"},
	{"a private key in JSON", `{"key":"` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`, `{"key":"***"}`},
	{"a private key in base64", "tls.key: " + inBase64(pem), "tls.key: ***"},
	{"a certificate stays", certificate, certificate},
	{"a certificate in base64 stays", inBase64(certificate), inBase64(certificate)},
	{"the user of a kubeconfig", "  user:\n    client-key-data: " + inBase64(pem) + "\n    token: abc.def\n    password: \"a b\"\n", "  user:\n    client-key-data: ***\n    token: ***\n    password: ***\n"},
	{"a kubeconfig in base64", `{"kubeconfig":"` + inBase64("users: [{user: {token: abcdef}}]\nmore: lines\n") + `"}`, `{"kubeconfig":"***"}`},
	{"a token in base64 twice", inBase64("data: " + inBase64("the token is "+jwt)), "***"},
	{"a WireGuard configuration", "PrivateKey = " + key + "\nPresharedKey = " + key + "\n", "PrivateKey = ***\nPresharedKey = ***\n"},
	{"a WireGuard device", "private_key=" + strings.Repeat("ab", 32) + "\nlisten_port=51840", "private_key=***\nlisten_port=51840"},
	{"a key without a name is compared by its sum", "peer " + key + " is unknown", "peer key-ea1ca3e25b35 is unknown"},
	{"a key in base64", "data: " + inBase64(key+"\n"), "data: ***"},
	{"flags", "--token=abc123 --secret-access-key abc --password='a b' -v=4", "--token=*** --secret-access-key abc --password=*** -v=4"},
	{"escaped JSON", `"{\"token\":\"abc123\",\"port\":1}"`, `"{\"token\":***`},
	{"a URL with a password", "https://admin:pa55@registry.example.com/v2/", "https://***@registry.example.com/v2/"},
	{"a bootstrap token", "join with abcdef.0123456789abcdef now", "join with *** now"},
	{"an access key", "AKIAIOSFODNN7EXAMPLE", "***"},
	{"a token of GitHub", "ghp_abcdefghijklmnopqrstuvwxyz0123456789", "***"},
	{"a password with what separates words elsewhere", "password=P&ssw0rd,;})] x", "password=*** x"},
	{"a password behind a comma", "--db-password=ab,Very,secret -v", "--db-password=*** -v"},
	{"a password that begins with a token", "password=ghp_abcdefghijklmnopqrstuvwxyz0123456789,secret", "password=***"},
	{"a short password", "token: a; pwd=ab\npassword: \"\"", "token: ** pwd=**\npassword: \"\""},
	{"short names", "PASS=secret dbPass: secret DB_PWD=secret psk = secret bypass=1 compass: 2", "PASS=*** dbPass: *** DB_PWD=*** psk = *** bypass=1 compass: 2"},
	{"a name within a value", "token: \npassword: planted", "token: \n***"},
	{"an assignment", "token := secret", "token := ***"},
	{"a block of YAML", "a:\n- password: |\n    one\n\n    two\n  user: me\n  token: >-\n    three\nb: c\n", "a:\n- password: ***\n  user: me\n  token: ***\nb: c\n"},
	{"a block of YAML at the end", "password: !!str |2- # note\r\n  one\r\n", "password: ***\n"},
	{"a block of YAML in JSON", `{"a":"password: |\n  one\n  two","b":1}`, `{"a":"password: ***","b":1}`},
	{"a variable in JSON", `"env":[{"name":"DB_PASSWORD","value":"s"},{"name":"PORT","value":"80"}]`, `"env":[{"name":"DB_PASSWORD","value":***},{"name":"PORT","value":"80"}]`},
	{"a variable in escaped JSON", `"[{\"name\":\"DB_PASSWORD\",\"value\":\"secret\"}]"`, `"[{\"name\":\"DB_PASSWORD\",\"value\":***`},
	{"a variable in YAML", "- name: DB_PASSWORD\n  value: secret\n- name: PORT\n  value: 80", "- name: DB_PASSWORD\n  value: ***\n- name: PORT\n  value: 80"},
	{"a key in a path", "peers/" + key + " wg-" + key, "peers/key-ea1ca3e25b35 wg-key-ea1ca3e25b35"},
	{"a line with the end of a private key", "one\ntwo\n-----END PRIVATE KEY-----\nthree", "one\n***\nthree"},
	{"the end of a private key in a log", "one line\n2026-11-27T12:00:00.1Z " + pem[31:95] + "\n2026-11-27T12:00:00.2Z AwEHoUQDQg==\n2026-11-27T12:00:00.3Z -----END EC PRIVATE KEY-----\nthree", "one line\n2026-11-27T12:00:00.1Z ***\nthree"},
	{"the end of a private key in JSON", `{"a":"one two\n` + pem[31:95] + `\nAwEHoUQDQg==\n-----END EC PRIVATE KEY-----\n"}`, `{"a":"one two\n***\n"}`},
	{"names stay", "secret liqo-tenant-milan/kubeconfig-controlplane-milan of deployment gw-milan-6d5f8c7b9-x2x4z", "secret liqo-tenant-milan/kubeconfig-controlplane-milan of deployment gw-milan-6d5f8c7b9-x2x4z"},
}

func TestText(t *testing.T) {
	for _, c := range texts {
		t.Run(c.name, func(t *testing.T) {
			if got := string(bundle.Text([]byte(c.text))); got != c.want {
				t.Errorf("%q becomes %q, want %q", c.text, got, c.want)
			}
		})
	}
}

// TestCutKeys: of a private key that was cut anywhere, nothing remains that is longer than a short word; all that
// follows or precedes it does.
func TestCutKeys(t *testing.T) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	random := seed.Rand(t)
	key := "-----BEGIN PRIVATE KEY-----"
	for range 9 {
		key += "\n"
		for range 64 {
			key += string(digits[random.IntN(len(digits))])
		}
	}
	key += "\n" + "Zm9vYmFyIA==" + "\n-----END PRIVATE KEY-----"
	const other = "I1127 12:00:00.000000 1 loop.go:123] \"Applied\" object=\"liqo-tenant-milan/milan\"\nlevel=info msg=x\n"
	timed := func(text string) string {
		return "2026-11-27T12:00:00.1Z " + strings.ReplaceAll(text, "\n", "\n2026-11-27T12:00:00.1Z ")
	}
	for name, text := range map[string]func(string) (before, key, after string){
		"lines": func(key string) (string, string, string) { return other, key, "\n" + other },
		"indented": func(key string) (string, string, string) {
			return "a: |\n  ", strings.ReplaceAll(key, "\n", "\n  "), "\nb: c\n" + other
		},
		"log with times": func(key string) (string, string, string) { return timed(other), timed(key), "\n" + timed(other) },
		"JSON": func(key string) (string, string, string) {
			return `{"a":"`, strings.ReplaceAll(key, "\n", `\n`), `","port":1}`
		},
		"cut message": func(key string) (string, string, string) { return "got ", key, "...\n" + other },
	} {
		for cut := len("-----BEGIN PRIVATE KEY-----"); cut <= len(key)-len("\n-----END PRIVATE KEY-----"); cut++ {
			before, part, after := text(key[:cut])
			got := string(bundle.Text([]byte(before + part + after)))
			if !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) {
				t.Fatalf("%s, cut at %d: lost what is around the key: %q", name, cut, got)
			}
			if left := got[len(before) : len(got)-len(after)]; strings.Trim(left, "* \\n\n") != "" && !strings.HasPrefix(left, "2026") {
				t.Fatalf("%s, cut at %d: %q is left", name, cut, left)
			}
		}
	}
	for _, escape := range []string{"\n", `\n`} {
		for cut := len("-----BEGIN PRIVATE KEY-----\n"); cut < len(key)-100; cut++ {
			got := string(bundle.Text([]byte(strings.ReplaceAll(key[cut:], "\n", escape) + "\n" + other)))
			if strings.TrimLeft(got, "*\\n") != "\n"+other && strings.TrimLeft(got, "*\\n\n") != other {
				t.Fatalf("from %d on: %q", cut, got)
			}
		}
	}
}

// FuzzText: redacting a text again changes nothing and makes it no longer; a credential within any text is gone.
func FuzzText(f *testing.F) {
	for _, c := range texts {
		f.Add([]byte(c.text), []byte(c.want))
	}
	f.Fuzz(func(t *testing.T, before, after []byte) {
		for _, secret := range []string{"", jwt, pem, " PrivateKey = " + key, "\npassword: planted-secret\n"} {
			text := append(append(bytes.Clone(before), secret...), after...)
			got := bundle.Text(text)
			if len(got) > len(text) {
				t.Errorf("%q grows to %q", text, got)
			}
			if again := bundle.Text(got); !bytes.Equal(got, again) {
				t.Errorf("%q becomes %q, and then %q", text, got, again)
			}
			for _, planted := range []string{jwt[20:60], "MHcCAQEEIIrYSSNQFaA2Hwf1", key, "planted-secret"} {
				if bytes.Contains(got, []byte(planted)) && !bytes.Contains(before, []byte(planted)) && !bytes.Contains(after, []byte(planted)) {
					t.Errorf("%q keeps %s: %q", text, planted, got)
				}
			}
		}
	})
}

// TestObject: what can be secret is gone, in objects of Liqo and of users, and the rest is there.
func TestObject(t *testing.T) {
	for _, c := range []struct {
		name, object, want string
		own                bool
	}{
		{name: "the sizes of a Secret's values", object: `{"kind": "Secret", "metadata": {"name": "s", "managedFields": [{}]}, "type": "Opaque", "data": {"a": "c2VjcmV0", "b": "c2VjcmV0cw==", "c": ""}}`,
			want: `{"kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque", "stringData": {"a": "6 B", "b": "7 B", "c": "0 B"}}`},
		{name: "the sizes of a ConfigMap's values", object: `{"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "secret"}, "binaryData": {"b": "c2VjcmV0"}}`,
			want: `{"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "6 B", "b": "6 B"}}`},
		{name: "the cluster ID", object: `{"kind": "ConfigMap", "metadata": {"name": "liqo-clusterid-configmap"}, "data": {"CLUSTER_ID": "rome"}}`,
			want: `{"kind": "ConfigMap", "metadata": {"name": "liqo-clusterid-configmap"}, "data": {"CLUSTER_ID": "rome"}}`},
		{name: "annotations", object: `{"kind": "Pod", "metadata": {"name": "p", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "vault.example.com/secret": "secret", "liqo.io/cordon": "true", "offloading.liqo.io/x": "token: secret", "notliqo.io/y": "secret"}}}`,
			want: `{"kind": "Pod", "metadata": {"name": "p", "annotations": {"liqo.io/cordon": "true", "offloading.liqo.io/x": "token: ***"}}}`},
		{name: "Liqo's own pod keeps its command", own: true, object: `{"kind": "Pod", "spec": {"containers": [{"name": "c", "args": ["--v=4", "--token=secret", "--access-key", "secret", "on"], "env": [{"name": "A", "value": "secret"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}]}}`,
			want: `{"kind": "Pod", "spec": {"containers": [{"name": "c", "args": ["--v=4", "--token=***", "--access-key", "***", "on"], "env": [{"name": "A", "value": "***"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}]}}`},
		{name: "a user's pod keeps what Liqo needs", object: `{"kind": "Pod", "spec": {"nodeName": "milan", "initContainers": [{"name": "i", "command": ["secret"]}], "containers": [{"name": "c", "image": "i", "args": ["secret"], "livenessProbe": {"exec": {"command": ["secret"]}}, "resources": {"limits": {"cpu": "1"}}}]}}`,
			want: `{"kind": "Pod", "spec": {"nodeName": "milan", "initContainers": [{"name": "i"}], "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}}`},
		{name: "a ShadowPod is a user's", own: true, object: `{"kind": "ShadowPod", "spec": {"pod": {"containers": [{"name": "c", "args": ["secret"]}]}}}`,
			want: `{"kind": "ShadowPod", "spec": {"pod": {"containers": [{"name": "c"}]}}}`},
		{name: "credentials of an Identity", object: `{"kind": "Identity", "spec": {"authParams": {"ca": "` + inBase64(certificate) + `", "awsConfig": {"awsAccessKeyID": "secret", "awsSecretAccessKey": "secret", "awsRegion": "eu"}}}, "status": {"kubeconfigSecretRef": {"name": "k"}}}`,
			want: `{"kind": "Identity", "spec": {"authParams": {"ca": "` + inBase64(certificate) + `", "awsConfig": {"awsAccessKeyID": "***", "awsSecretAccessKey": "***", "awsRegion": "eu"}}}, "status": {"kubeconfigSecretRef": {"name": "k"}}}`},
		{name: "public keys stay, signatures do not", object: `{"kind": "Tenant", "spec": {"publicKey": "` + key + `", "signature": "secret", "proxyURL": "https://u:secret@h"}}`,
			want: `{"kind": "Tenant", "spec": {"publicKey": "` + key + `", "proxyURL": "https://***@h"}}`},
		{name: "a private key instead of a certificate", object: `{"kind": "Identity", "spec": {"authParams": {"ca": "` + inBase64(pem) + `", "apiServer": "a"}}}`,
			want: `{"kind": "Identity", "spec": {"authParams": {"apiServer": "a"}}}`},
		{name: "numbers and lists of credentials, no switches", object: `{"kind": "Pod", "spec": {"automountServiceAccountToken": false, "pin": {"password": 123456, "tokens": 3, "token": ["secret", 1, ""]}, "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3600, "path": "p"}}]}}]}}`,
			want: `{"kind": "Pod", "spec": {"automountServiceAccountToken": false, "pin": {"password": "***", "tokens": 3, "token": ["***", "***", ""]}, "volumes": [{"projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3600, "path": "p"}}]}}]}}`},
		{name: "an Event's name stays", object: `{"kind": "Event", "metadata": {"name": "abcdef.0123456789abcdef"}, "message": "abcdef.0123456789abcdef"}`,
			want: `{"kind": "Event", "metadata": {"name": "abcdef.0123456789abcdef"}, "message": "***"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			object, want := parsed(t, c.object), parsed(t, c.want)
			got := bundle.Object(object, c.own)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(parsed(t, c.object), object); diff != "" {
				t.Errorf("the object was changed: %s", diff)
			}
			if diff := cmp.Diff(got, bundle.Object(got, c.own)); diff != "" {
				t.Errorf("redacting again changes it: %s", diff)
			}
		})
	}
}

func parsed(t *testing.T, text string) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// BenchmarkText measures an ordinary log, and one that decodes as base64 again and again.
func BenchmarkText(b *testing.B) {
	nested := "nothing of interest, at great length: "
	for range 4 {
		nested = inBase64(strings.Repeat(nested, 5))
	}
	for name, text := range map[string]string{
		"log":    strings.Repeat("2026-11-27T12:00:00Z I1127 12:00:00.000000       1 loop.go:123] \"Applied\" controller=\"tenant\" object=\"liqo-tenant-milan/milan\"\n", 1000),
		"nested": nested,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				bundle.Text([]byte(text))
			}
		})
	}
}
