// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/bundle"
)

// planted is a secret without a form by which it could be known, in all places that can hold one. Where others than
// Liqo write, nothing but its place tells that it is one.
const planted = "xyzzyplanted"

var plantedInBase64 = base64.StdEncoding.EncodeToString([]byte(planted))

// installed are the objects of a cluster with Liqo and a peer. Annotations hold what 'kubectl apply' leaves.
const installed = `
{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {liqo.io/x: "password=PLANTED"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: liqo-tenant-PEER, labels: {liqo.io/remote-cluster-id: PEER, liqo.io/tenant-namespace: "true"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: liqo-clusterid-configmap, namespace: liqo}, data: {CLUSTER_ID: OWN}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: liqo}, data: {any: PLANTED}, binaryData: {other: ENCODED}}
---
{apiVersion: v1, kind: Secret, metadata: {name: keys, namespace: liqo-tenant-PEER, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"data":{"privateKey":"ENCODED"}}'}}, data: {privateKey: ENCODED, PLAIN: ENCODED}}
---
{apiVersion: v1, kind: Secret, metadata: {name: users-own, namespace: shop}, data: {x: ENCODED}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: liqo-controller-manager, namespace: liqo, labels: {app.kubernetes.io/version: v0.1.0}, annotations: {example.com/note: PLANTED}}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}, annotations: {example.com/note: PLANTED}}
    spec: {containers: [{name: c, image: liqo, args: [controller, --token=PLANTED], env: [{name: A, value: PLANTED}]}]}
---
apiVersion: v1
kind: Node
metadata: {name: node}
spec: {}
status: {addresses: [{type: InternalIP, address: 127.0.0.1}], daemonEndpoints: {kubeletEndpoint: {Port: PORT}}}
---
apiVersion: v1
kind: Pod
metadata: {name: liqo-fabric-x, namespace: liqo, labels: {app.kubernetes.io/name: fabric}}
spec: {nodeName: node, serviceAccountName: default, automountServiceAccountToken: false, containers: [{name: fabric, image: liqo, args: [fabric, --v=4], env: [{name: A, value: PLANTED}], ports: [{name: metrics, containerPort: 8083}]}]}
status: {phase: Running, conditions: [{type: Ready, status: "False", reason: ContainersNotReady}], containerStatuses: [{name: fabric, ready: false, restartCount: 1, image: liqo, imageID: liqo}]}
---
apiVersion: v1
kind: Pod
metadata: {name: offloaded, namespace: shop, labels: {liqo.io/shadowPod: "true"}}
spec: {automountServiceAccountToken: false, containers: [{name: c, image: shop, command: [run, PLANTED], env: [{name: A, value: PLANTED}]}]}
---
{apiVersion: networking.liqo.io/v1beta1, kind: GatewayServer, metadata: {name: PEER, namespace: shop}, spec: {}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gw-PEER, namespace: shop, labels: {networking.liqo.io/component: gateway}}, spec: {automountServiceAccountToken: false, containers: [{name: gateway, image: liqo, args: [PLANTED]}]}, status: {containerStatuses: [{name: gateway, ready: false, restartCount: 0, image: liqo, imageID: liqo}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: other}}
---
{apiVersion: v1, kind: Pod, metadata: {name: PLANTED, namespace: other, labels: {networking.liqo.io/component: gateway}}, spec: {automountServiceAccountToken: false, containers: [{name: c, image: shop}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: users-own, namespace: shop}, spec: {automountServiceAccountToken: false, containers: [{name: c, image: PLANTED}]}}
---
{apiVersion: v1, kind: Event, metadata: {name: offloaded.1, namespace: shop}, involvedObject: {kind: Pod, namespace: shop, name: users-own, uid: none}, type: Warning, reason: Failed, message: PLANTED}
---
{apiVersion: v1, kind: Event, metadata: {name: tenant.1, namespace: liqo-tenant-PEER}, involvedObject: {kind: Tenant, namespace: liqo-tenant-PEER, name: PEER}, type: Warning, reason: Refused, message: "refused: Authorization: Bearer PLANTED"}
---
{apiVersion: core.liqo.io/v1beta1, kind: ForeignCluster, metadata: {name: PEER, labels: {liqo.io/remote-cluster-id: PEER}}, spec: {clusterID: PEER},
status: {role: Consumer, tenantNamespace: {local: liqo-tenant-PEER}, modules: {authentication: {enabled: true, conditions: [{type: AuthTenantStatus, status: Error, message: the signature does not match}]}, networking: {enabled: false}, offloading: {enabled: false}}}}
---
{apiVersion: offloading.liqo.io/v1beta1, kind: NamespaceOffloading, metadata: {name: offloading, namespace: shop}, spec: {podOffloadingStrategy: LocalAndRemote, namespaceMappingStrategy: DefaultName}}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata: {name: gw-PEER, namespace: liqo-tenant-PEER, labels: {liqo.io/remote-cluster-id: PEER}}
spec: {publicKey: yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=}
---
apiVersion: authentication.liqo.io/v1beta1
kind: Tenant
metadata: {name: PEER, namespace: liqo-tenant-PEER, labels: {liqo.io/remote-cluster-id: PEER}}
spec: {clusterID: PEER, signature: ENCODED, publicKey: ENCODED, csr: ENCODED, proxyURL: "https://u:PLANTED@proxy.example.com"}
status:
  conditions: [{type: Ready, status: "False", reason: SignatureInvalid, message: the signature does not match, lastTransitionTime: "2026-11-27T12:00:00Z"}]
`

// kubelet serves logs of the fabric that hold secrets of known forms, and returns its port.
func kubelet(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/containerLogs/liqo/liqo-fabric-x/fabric" || r.FormValue("tailLines") == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, "12:00:00 log previous=%s\n12:00:01 Authorization: Bearer %s\n12:00:02 PrivateKey = %s\n12:00:03 %s\n",
			r.FormValue("previous"), planted, planted, base64.StdEncoding.EncodeToString([]byte("users: [{user: {token: "+planted+"}}]")))
	}))
	t.Cleanup(server.Close)
	return strconv.Itoa(server.Listener.Addr().(*net.TCPAddr).Port)
}

// ofCluster returns the objects of a cluster with a peer, with secrets. Its node has a kubelet at the port.
func ofCluster(own, peer, port string) []byte {
	text := strings.NewReplacer("PORT", port, "OWN", own, "PEER", peer, "PLANTED", planted, "ENCODED", plantedInBase64).Replace(installed)
	// These are public; the secret only fills them in.
	public := base64.StdEncoding.EncodeToString([]byte("public"))
	return []byte(strings.ReplaceAll(text, "publicKey: "+plantedInBase64+", csr: "+plantedInBase64, "publicKey: "+public+", csr: "+public))
}

// TestGather: the archive of two clusters has the objects, conditions and Events of Liqo, names what is missing, and has
// no secret.
func TestGather(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome", "milan")
	s.apply(t, "rome", ofCluster("rome", "milan", kubelet(t)))
	s.apply(t, "milan", ofCluster("milan", "rome", "1")) // nobody listens there
	said := s.liqoctl(t, strings.Fields("liqoctl gather --kubeconfig $DIR/rome --remote-kubeconfig $DIR/milan -o $DIR/report.tar.gz"))
	for _, line := range []string{" INFO   (local) 17 objects of 12 kinds gathered\n", " INFO   (local) 3 logs gathered\n", " INFO   (remote) 1 logs gathered\n", "README.md in the archive says what and why", " INFO   Archive written to $DIR/report.tar.gz: 0.0 MB"} {
		if !strings.Contains(said, line) {
			t.Errorf("lacks %q:\n%s", line, said)
		}
	}
	if info, err := os.Stat(filepath.Join(s.dir, "report.tar.gz")); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v: %v", info.Mode(), err)
	}
	archive := s.read(t, "report.tar.gz")
	for name, text := range unpacked(t, archive) {
		for _, secret := range []string{planted, plantedInBase64, plantedInBase64[:12], "last-applied"} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has %s:\n%s", name, secret, text)
			}
		}
	}
	b, err := bundle.Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if c := b.Index.Clusters[1]; c.Name != "remote" || c.ID != "milan" || c.Liqo != "v0.1.0" || !strings.HasPrefix(c.Kubernetes, "v1.") {
		t.Errorf("remote cluster: %+v", c)
	}
	var missing []string
	for _, m := range b.Index.Clusters[0].Missing {
		missing = append(missing, m.What)
	}
	pod := "liqo/liqo-fabric-x"
	want := []string{"metrics of gateways", "rules/" + pod + "/desired.txt", "rules/" + pod + "/observed.txt", "rules/" + pod + "/diff.txt", "metrics/" + pod + ".txt"} // the pod has no address, and its kubelet serves logs only
	if !slices.Equal(missing, want) {
		t.Errorf("missing is %v", b.Index.Clusters[0].Missing)
	}
	pods, tenants, keys := corev1.PodList{}, authv1beta1.TenantList{}, netv1beta1.PublicKeyList{}
	if err := errors.Join(b.Objects("local", "pods", &pods), b.Objects("local", "tenants.authentication.liqo.io", &tenants),
		b.Objects("local", "publickeies.networking.liqo.io", &keys)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 3 || !slices.Contains(pods.Items[0].Spec.Containers[0].Args, "--v=4") || pods.Items[1].Name != "gw-milan" || pods.Items[2].Name != "offloaded" {
		t.Errorf("pods: %+v", pods.Items)
	}
	if len(tenants.Items) != 1 || string(tenants.Items[0].Spec.CSR) != "public" || len(keys.Items) != 1 || len(keys.Items[0].Spec.PublicKey) != 32 {
		t.Errorf("tenants: %+v, keys: %+v", tenants.Items, keys.Items)
	}
	s.pagesOfArchive(t)
	for file, line := range map[string]string{
		"local/logs/" + pod + "/fabric.log":          "12:00:00 log previous=\n12:00:01 Authorization: ***\n12:00:02 PrivateKey = ***\n12:00:03 ***\n",
		"local/logs/" + pod + "/fabric.previous.log": "12:00:00 log previous=true\n",
		"local/events.txt":                           "Warning  tenant  liqo-tenant-milan/milan  Refused  refused: Authorization: ***\n",
		"remote/conditions.txt":                      "tenant  liqo-tenant-rome/rome  Ready=False  SignatureInvalid  the signature does not match  2026-11-27T12:00:00Z\n",
	} {
		if !strings.Contains(string(b.Text(file)), line) {
			t.Errorf("%s lacks %q:\n%s", file, line, b.Text(file))
		}
	}
}

// pagesOfArchive checks the pages of an archive: those of each cluster, and what only the archive has.
func (s *session) pagesOfArchive(t *testing.T) {
	t.Helper()
	urls, browser := s.dashboards(t, 2, "--bundle", filepath.Join(s.dir, "report.tar.gz"))
	for page, texts := range map[string][]string{
		"/":            {"This cluster: rome", "1 peer,", "milan", "the signature does not match", "from an archive of &#39;liqoctl gather&#39;"},
		"/peers/milan": {"AuthTenantStatus", "Refused", "refused: Authorization: ***"},
		"/workloads":   {"<h2>shop</h2>", `<th scope="row">offloaded</th>`},
		"/events":      {"tenant liqo-tenant-milan/milan", "refused: Authorization: ***"},
		"/bundle": {"<dd>rome</dd>", "v0.1.0, in namespace liqo", "rules/liqo/liqo-fabric-x/diff.txt: ",
			`<a href="/bundle/1/local/logs/liqo/liqo-fabric-x/fabric.log">`, "objects/secrets.json"},
		"/bundle/1/local/logs/liqo/liqo-fabric-x/fabric.log": {"12:00:01 Authorization: ***", "Page 1 of 1"},
		"/bundle/1/local/objects/secrets.json":               {"&#34;privateKey&#34;: &#34;12 B&#34;"},
		"/bundle/1/README.md":                                {"# State of Liqo, for a bug report"},
		"/bundle/1/local/conditions.txt":                     {"Ready=False  SignatureInvalid"},
	} {
		text := s.text(t, browser, urls[0]+page)
		for _, want := range texts {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", page, want, text)
			}
		}
		if strings.Contains(text, planted) {
			t.Errorf("%s has a secret", page)
		}
	}
	if text := s.text(t, browser, urls[1]); !strings.Contains(text, "This cluster: milan") {
		t.Errorf("the remote cluster is %s", text)
	}
	shows(t, s.browse(t, browser, urls[0]+"/live?page=/bundle"), "objects/pods.json")
}

// text returns the text of a page.
func (s *session) text(t *testing.T, browser *http.Client, url string) string {
	t.Helper()
	var out strings.Builder
	for page := s.browse(t, browser, url); page.Scan(); {
		out.WriteString(page.Text() + "\n")
	}
	return out.String()
}

// unpacked returns the files of an archive.
func unpacked(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	content, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for files := tar.NewReader(content); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[header.Name], err = io.ReadAll(files); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGatherWithLessRights: a user who may read little gets an archive of that, which names the rest. So does one whose
// second cluster does not answer, and one whose time is over at once.
func TestGatherWithLessRights(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome", "milan")
	s.apply(t, "rome", ofCluster("rome", "milan", "1"))
	s.apply(t, "rome", []byte(`{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: reader, namespace: liqo}, rules: [{apiGroups: [""], resources: [configmaps, pods], verbs: [get, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: reader, namespace: liqo}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: reader}]}`))
	cluster, user := s.admin("rome")
	user.Impersonate, user.ImpersonateGroups = "reader", []string{"system:authenticated"}
	s.kubeconfig(t, "reader", cluster, user)
	silent, admin := s.admin("milan")
	silent.Server = "https://127.0.0.1:1" // nobody listens there
	s.kubeconfig(t, "silent", silent, admin)
	said := s.liqoctl(t, strings.Fields("liqoctl gather --kubeconfig $DIR/reader --remote-kubeconfig $DIR/silent -o $DIR/report.tar.gz"))
	if !strings.Contains(said, " WARN   (remote) cannot reach the remote cluster at ") || !strings.Contains(said, " INFO   Archive written") {
		t.Error(said)
	}
	b, err := bundle.Read(bytes.NewReader(s.read(t, "report.tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	if objects := b.Files("local/objects"); !slices.Equal(objects, []string{"local/objects/configmaps.json", "local/objects/pods.json"}) {
		t.Errorf("objects: %v", objects)
	}
	for _, missing := range []string{"secrets: ", "tenants.authentication.liqo.io: ", "version of Liqo: "} {
		if !strings.Contains(string(b.Text(bundle.Readme)), "- missing: "+missing) {
			t.Errorf("%s is not missing:\n%s", missing, b.Text(bundle.Readme))
		}
	}
	said = s.liqoctl(t, strings.Fields("liqoctl gather --kubeconfig $DIR/rome --timeout 1ns -o $DIR/late.tar.gz"))
	if !strings.Contains(said, " INFO   Archive written") || !strings.Contains(said, " WARN   Not gathered: ") {
		t.Error(said)
	}
	said = s.liqoctl(t, strings.Fields("liqoctl gather --kubeconfig $DIR/rome -o $DIR/late.tar.gz"))
	if !strings.Contains(said, "file exists; name another file with --output-file\n[1]") {
		t.Error(said)
	}
}
