// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/liqo-go/liqo/bundle"
)

func pod(name string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "liqo"},
		"status": map[string]any{"conditions": []any{
			map[string]any{"type": "PodScheduled", "status": "True"},
			map[string]any{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "wait\x1b[31m"}}},
	}}
}

var index = bundle.Index{Time: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC), Client: "v1"}

// written returns the archive of one part with some of everything.
func written(t *testing.T) []byte {
	t.Helper()
	p := bundle.NewPart("local", []string{"liqo"}, 1<<20)
	p.ID, p.Liqo, p.Namespace, p.Kubernetes = "rome", "v1", "liqo", "v1.34.0"
	p.AddObjects("pods", []unstructured.Unstructured{pod("b"), pod("a")})
	p.AddObjects("foreignclusters.core.liqo.io", []unstructured.Unstructured{{Object: map[string]any{"apiVersion": "core.liqo.io/v1beta1",
		"kind": "ForeignCluster", "metadata": map[string]any{"name": "milan"}, "status": map[string]any{"modules": map[string]any{
			"networking": map[string]any{"enabled": true, "conditions": []any{map[string]any{"type": "NetworkConnectionStatus", "status": "Established"}}}}}}}})
	p.AddObjects("secrets", []unstructured.Unstructured{{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "s", "namespace": "liqo"}, "data": map[string]any{"token": "c2VjcmV0"}}}})
	p.AddObjects("events", []unstructured.Unstructured{{Object: map[string]any{"apiVersion": "v1", "kind": "Event",
		"metadata": map[string]any{"name": "e", "namespace": "liqo"}, "type": "Warning", "reason": "Failed", "message": "no room",
		"count": int64(3), "lastTimestamp": "2026-11-27T11:00:00Z", "involvedObject": map[string]any{"kind": "Pod", "namespace": "liqo", "name": "a"}}}})
	p.AddSummary()
	p.AddLog(bundle.Path("logs", "liqo", "a", "../c.log"), []byte("one\ntwo\n"), 1<<10)
	p.Miss("tenants.authentication.liqo.io", errors.New("forbidden: password=secret"))
	var out bytes.Buffer
	if _, err := bundle.Write(&out, index, p); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestArchive: what is written is read again, equal input gives equal bytes, and the first page says what is missing.
func TestArchive(t *testing.T) {
	archive := written(t)
	if !bytes.Equal(archive, written(t)) {
		t.Error("a second archive of the same differs")
	}
	b, err := bundle.Read(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"local/conditions.txt", "local/events.txt", "local/logs/liqo/a/.._c.log", "local/objects/events.json",
		"local/objects/foreignclusters.core.liqo.io.json", "local/objects/pods.json", "local/objects/secrets.json"}
	if diff := cmp.Diff(want, b.Files("local")); diff != "" {
		t.Errorf("files: %s", diff)
	}
	var listed []string
	for _, f := range b.Index.Files {
		listed = append(listed, f.Path)
		if f.Cut || f.Size != int64(len(b.Text(f.Path))) {
			t.Errorf("%+v in the index", f)
		}
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("files of the index: %s", diff)
	}
	pods, secrets := corev1.PodList{}, corev1.SecretList{}
	if err := errors.Join(b.Objects("local", "pods", &pods), b.Objects("local", "secrets", &secrets)); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 2 || pods.Items[0].Name != "a" || pods.Items[1].Status.Conditions[1].Reason != "ContainersNotReady" {
		t.Errorf("pods: %+v", pods)
	}
	if got := secrets.Items[0].StringData["token"]; got != "6 B" {
		t.Errorf("the size of the token is %q", got)
	}
	for name, want := range map[string]string{
		"local/events.txt": "2026-11-27T11:00:00Z  Warning  pod  liqo/a  Failed  no room  (3 times)\n",
		"local/conditions.txt": `pod  liqo/a  Ready=False  ContainersNotReady  wait\x1b[31m
pod  liqo/b  Ready=False  ContainersNotReady  wait\x1b[31m

pod  liqo/a  PodScheduled=True
pod  liqo/b  PodScheduled=True
foreigncluster  milan  NetworkConnectionStatus=Established
`,
	} {
		if diff := cmp.Diff(want, string(b.Text(name))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	for _, line := range []string{"cluster ID: rome", "missing: tenants.authentication.liqo.io: forbidden: password=***"} {
		if !strings.Contains(string(b.Text(bundle.Readme)), "- "+line+"\n") {
			t.Errorf("the first page lacks %q:\n%s", line, b.Text(bundle.Readme))
		}
	}
}

// TestBounds: a part takes no more than its bound, keeps the ends of logs and the room for them, and says what is missing.
func TestBounds(t *testing.T) {
	const bound = 100 << 10
	p := bundle.NewPart("local", nil, bound)
	var pods []unstructured.Unstructured
	for i := range 1000 {
		pods = append(pods, pod(fmt.Sprintf("p%04d", i)))
	}
	p.AddObjects("pods", pods)
	p.AddText("conditions.txt", bytes.Repeat([]byte("x"), 2*bound))
	for i := range 40 {
		p.AddLog(fmt.Sprintf("logs/%02d.log", i), append(bytes.Repeat([]byte("line\n"), 2000), "last\n"...), 4<<10)
	}
	index, err := bundle.Write(io.Discard, index, p)
	if err != nil {
		t.Fatal(err)
	}
	total, logs := int64(0), 0
	for _, f := range index.Files {
		total += f.Size
		if strings.Contains(f.Path, "logs/") {
			logs++
			if !f.Cut || f.Size > 4<<10 {
				t.Errorf("%+v", f)
			}
		}
	}
	if total > bound || logs < 8 {
		t.Errorf("%d bytes, %d logs", total, logs)
	}
	missing := index.Clusters[0].Missing
	if len(missing) != 2+40-logs || !strings.Contains(missing[0].What, " of 1000 pods") || missing[1].What != "conditions.txt" {
		t.Errorf("missing: %v", missing)
	}
}

// TestBoundsOfTheIndex: what is missing and what files there are has room in the index that Read takes, or is counted.
func TestBoundsOfTheIndex(t *testing.T) {
	for name, fill := range map[string]func(p *bundle.Part, i int){
		"missing": func(p *bundle.Part, i int) { p.Miss(fmt.Sprint(i), errors.New(strings.Repeat("\x00<", 40))) },
		"files":   func(p *bundle.Part, i int) { p.AddText(fmt.Sprint(i), []byte("x")) },
		"long names": func(p *bundle.Part, i int) {
			p.AddText(bundle.Path("logs", strings.Repeat("a", 250), fmt.Sprint(i)), []byte("x"))
		},
	} {
		var parts []*bundle.Part
		for _, side := range []string{"local", "remote"} {
			p := bundle.NewPart(side, nil, bundle.MaxBound/2)
			for i := range 10500 {
				fill(p, i)
			}
			parts = append(parts, p)
		}
		var out bytes.Buffer
		if _, err := bundle.Write(&out, index, parts...); err != nil {
			t.Fatal(err)
		}
		b, err := bundle.Read(&out)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		missing, more := b.Index.Clusters[1].Missing, 0
		listed := len(missing) + len(b.Files("remote"))
		if last, ok := strings.CutSuffix(missing[len(missing)-1].What, " more"); ok {
			listed--
			more, _ = strconv.Atoi(last)
		}
		if listed < 1000 || listed+more != 10500 {
			t.Errorf("%s: %d listed, and %d more", name, listed, more)
		}
	}
}

// hostile makes an archive of one header and its content.
func hostile(headers ...*tar.Header) []byte {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for _, h := range headers {
		_ = archive.WriteHeader(h) // some are invalid on purpose
		_, _ = io.CopyN(archive, zeros{}, h.Size)
	}
	_ = errors.Join(archive.Close(), compressed.Close())
	return out.Bytes()
}

// holes makes an archive of files of 200 MiB that take a few blocks: their maps of data, as POSIX tar writes them.
func holes(names ...string) []byte {
	var tarred, out bytes.Buffer
	for _, name := range names {
		records := ""
		for _, r := range []string{"major=1", "minor=0", "name=liqo-gather/" + name, "realsize=209715200"} {
			r = " GNU.sparse." + r + "\n"
			records += fmt.Sprint(len(r)+2) + r // all have lengths of two digits
		}
		for i, content := range []string{records, "0\n" + strings.Repeat("\x00", 510)} {
			var one bytes.Buffer
			archive := tar.NewWriter(&one)
			_ = archive.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Format: tar.FormatUSTAR})
			_, _ = io.WriteString(archive, content)
			_ = archive.Flush()
			if block := one.Bytes(); i == 0 {
				block[156] = tar.TypeXHeader
				sum := 8 * int(' ')
				for at, b := range block[:512] {
					if at < 148 || at >= 156 {
						sum += int(b)
					}
				}
				copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
			}
			tarred.Write(one.Bytes())
		}
	}
	compressed := gzip.NewWriter(&out)
	_, _ = tarred.WriteTo(compressed)
	_ = compressed.Close()
	return out.Bytes()
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestHostileArchives: Read refuses what 'liqoctl gather' does not write.
func TestHostileArchives(t *testing.T) {
	regular := func(name string, size int64) *tar.Header {
		return &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: size}
	}
	const in = "liqo-gather/"
	many := make([]*tar.Header, 20002)
	for i := range many {
		many[i] = regular(fmt.Sprint(in, i), 0)
	}
	for name, c := range map[string]struct {
		archive []byte
		says    string
	}{
		"no gzip":          {[]byte("README"), "read the archive"},
		"another folder":   {hostile(regular("etc/passwd", 0)), "does not write"},
		"path that leaves": {hostile(regular(in+"../../etc/passwd", 0)), "does not write"},
		"absolute path":    {hostile(regular("/"+in+"x", 0)), "does not write"},
		"markup in a name": {hostile(regular(in+"<b>", 0)), "does not write"},
		"symbolic link":    {hostile(&tar.Header{Name: in + "x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), "does not write"},
		"twice":            {hostile(regular(in+"x", 0), regular(in+"x", 0)), "twice"},
		"too many files":   {hostile(many...), "20000 files"},
		"too much content": {hostile(regular(in+"x", 300<<20)), "more than 268435456 bytes"},
		"files with holes": {holes("a", "b"), "more than 268435456 bytes"},
		"too many objects": {hostile(regular(in+"local/objects/pods.json", 65<<20)), "of objects"},
		"no index":         {hostile(regular(in+"x", 0)), "index.json"},
		"cut off":          {written(t)[:500], "EOF"},
	} {
		if _, err := bundle.Read(bytes.NewReader(c.archive)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// read reads an archive of names and contents.
func read(t *testing.T, files ...string) (*bundle.Bundle, error) {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	for i := 0; i < len(files); i += 2 {
		h := tar.Header{Name: "liqo-gather/" + files[i], Typeflag: tar.TypeReg, Size: int64(len(files[i+1]))}
		err := archive.WriteHeader(&h)
		if _, failed := io.WriteString(archive, files[i+1]); errors.Join(err, failed) != nil {
			t.Fatal(err, failed)
		}
	}
	if err := errors.Join(archive.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return bundle.Read(&out)
}

// podsOf returns an archive with a file of pods.
func podsOf(t *testing.T, text string) *bundle.Bundle {
	t.Helper()
	b, err := read(t, "index.json", `{"format":1}`, "local/objects/pods.json", text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBombs: what a few bytes make large when it is decoded is refused before.
func TestBombs(t *testing.T) {
	if _, err := read(t, "index.json", `{"format":1,"files":[{}`+strings.Repeat(",{}", 2<<20)+"]}"); err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
		t.Errorf("large index: %v", err)
	}
	for _, clusters := range []string{`[{"name":"rome"}]`, `[{"name":"local"},{"name":"local"}]`} {
		if _, err := read(t, "index.json", `{"format":1,"clusters":`+clusters+`}`); err == nil || !strings.Contains(err.Error(), "has a cluster") {
			t.Errorf("%s: %v", clusters, err)
		}
	}
	for _, list := range []string{`{"items":[%s]}`, `{"items":[],"items":[%s]}`} {
		for n, says := range map[int]string{100000: "", 100001: "more than 100000 items"} {
			b := podsOf(t, fmt.Sprintf(list, "{}"+strings.Repeat(",{}", n-1)))
			found := struct {
				Items []struct{} `json:"items"`
			}{}
			err := b.Objects("local", "pods", &found)
			if says == "" && (err != nil || len(found.Items) != n) || says != "" && (err == nil || !strings.Contains(err.Error(), says) || found.Items != nil) {
				t.Errorf("%s of %d: %v", list, n, err)
			}
		}
	}
	for _, empty := range []string{"{}", "[]"} {
		b := podsOf(t, `{"items":[{"spec":{"containers":[{}`+strings.Repeat(","+empty, 2_000_000)+`]}}]}`)
		if err := b.Objects("local", "pods", &corev1.PodList{}); err == nil || !strings.Contains(err.Error(), "more than 2000000") {
			t.Errorf("two million of %s: %v", empty, err)
		}
	}
}

// TestQuantitiesOfAnArchive: quantities that take hours to be compared, or are none, become more than anybody grants,
// and others stay. Names of fields have the case that API servers know, so that none hides a quantity.
func TestQuantitiesOfAnArchive(t *testing.T) {
	const most = "9223372036854775807"
	for requests, want := range map[string]string{
		`"requests":{"cpu":"100m"}`: "100m", `"requests":{"cpu":"1e10"}`: "1e10", `"requests":{"cpu":"1.5E-9"}`: "1.5E-9",
		`"requests":{"cpu":"1e1000000000"}`: most, `"requests":{"cpu":1e1000}`: most,
		`"requests":{"cpu":" 1e-2147483647"}`: most, `"requests":{"cpu":"e2147483647"}`: most, `"requests":{"cpu":"none"}`: most,
		`"requests":{"cpu":"\u0031e1000000000"}`: most, `"requests":{"a\\":"1e-2147483647","cpu":"1"}`: "1",
		`"requests":{"a\\":"1","cpu":"1e-2147483647"}`: most, `"r\u0065quests":{"cpu":"1e1000000000"}`: most,
		`"Requests":{"cpu":"1e1000000000"}`: "",
	} {
		text := `{"items":[{"metadata":{"name":"{\"cpu\":\"1e1000\"}"},"spec":{"containers":[{"resources":{` + requests + `}}]}}]}`
		b := podsOf(t, text)
		pods := corev1.PodList{}
		if err := b.Objects("local", "pods", &pods); err != nil || len(pods.Items) != 1 {
			t.Errorf("%s: %d pods, %v", requests, len(pods.Items), err)
			continue
		}
		got := ""
		if cpu, ok := pods.Items[0].Spec.Containers[0].Resources.Requests["cpu"]; ok {
			got = cpu.String()
		}
		if name := pods.Items[0].Name; name != `{"cpu":"1e1000"}` {
			t.Errorf("a name became %s", name)
		}
		if want != "" {
			legal := resource.MustParse(want)
			want = legal.String()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", requests, got, want)
		}
	}
}

// FuzzRead: no archive makes Read panic, and all names of one that it takes lie in the archive.
func FuzzRead(f *testing.F) {
	f.Add(hostile(&tar.Header{Name: "liqo-gather/x", Typeflag: tar.TypeReg, Size: 3}))
	f.Fuzz(func(t *testing.T, content []byte) {
		var archive bytes.Buffer
		compressed := gzip.NewWriter(&archive)
		_, err := compressed.Write(content)
		if err = errors.Join(err, compressed.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := bundle.Read(&archive)
		if err != nil {
			return
		}
		for _, name := range b.Files("local") {
			if strings.Contains(name, "..") {
				t.Errorf("name %q", name)
			}
		}
	})
}
