// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/bundle"
)

// gathered returns the archive that liqoctl gather writes of rome, with more arguments.
func gathered(t *testing.T, args ...string) *bundle.Bundle {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.tar.gz")
	rome.must(t, append([]string{"gather", "-o", file}, args...)...)
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close() //nolint:errcheck // it was only read
	b, err := bundle.Read(archive)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// reportIsGathered: the archive for a bug report has objects, rules and logs of both clusters, misses metrics only, and has
// none of the secrets that the Secrets of the peering hold.
func reportIsGathered(t *testing.T) {
	b := gathered(t, "--remote-kubeconfig", milan.kubeconfig)
	for _, c := range b.Index.Clusters {
		off := false // an installation serves metrics only if it is asked to
		for _, m := range c.Missing {
			switch {
			case m.What == "metrics of gateways" && strings.Contains(m.Why, "metrics are off"):
				off = true
			case !strings.HasSuffix(m.What, ".previous.log"): // kubelets remove old ones
				t.Errorf("%s: %s is missing: %s", c.Name, m.What, m.Why)
			}
		}
		if !off {
			t.Errorf("%s: it does not say that there are no metrics", c.Name)
		}
	}
	for name, c := range map[string]cluster{"local": rome, "remote": milan} {
		connections := netv1beta1.ConnectionList{}
		if err := b.Objects(name, "connections.networking.liqo.io", &connections); err != nil || len(connections.Items) != 1 {
			t.Errorf("%s: %d connections: %v", name, len(connections.Items), err)
		}
		for _, what := range []string{"rules/liqo/", "rules/liqo-tenant-" + other(c).name + "/", "logs/liqo/"} {
			if !strings.Contains(strings.Join(b.Files(name), "\n"), name+"/"+what) {
				t.Errorf("%s: no %s in %v", name, what, b.Files(name))
			}
		}
		for _, f := range b.Files(name) {
			if text := b.Text(f); strings.HasSuffix(f, "/diff.txt") && string(text) != "nothing\n" {
				t.Errorf("%s:\n%s", f, text)
			}
		}
		holdsNoSecret(t, b, c)
	}
}

// holdsNoSecret searches the archive for the secret values of the Secrets in the namespaces of Liqo of a cluster.
func holdsNoSecret(t *testing.T, b *bundle.Bundle, c cluster) {
	t.Helper()
	tried := 0
	for _, namespace := range []string{"liqo", "liqo-tenant-" + other(c).name} {
		secrets := corev1.SecretList{}
		if err := yaml.Unmarshal([]byte(c.kubectl(t, "-n", namespace, "get", "secrets", "-o", "json")), &secrets); err != nil {
			t.Fatal(err)
		}
		for _, secret := range secrets.Items {
			for _, key := range []string{"privateKey", "tls.key", "token", "kubeconfig", "nonce", "signedNonce"} {
				value := secret.Data[key]
				if len(value) == 0 {
					continue
				}
				tried++
				encoded := []byte(base64.StdEncoding.EncodeToString(value))
				for _, side := range []string{"local", "remote"} {
					for _, f := range b.Files(side) {
						if text := b.Text(f); bytes.Contains(text, value) || bytes.Contains(text, encoded) {
							t.Errorf("%s has key %s of Secret %s/%s", f, key, namespace, secret.Name)
						}
					}
				}
			}
		}
	}
	if tried < 3 {
		t.Errorf("%s: found only %d secrets", c.name, tried)
	}
}
