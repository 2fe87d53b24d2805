// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/zip"
	"bytes"
	"crypto"
	"crypto/elliptic"
	"encoding/base64"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	attestation "github.com/in-toto/attestation/go/v1"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	repo "helm.sh/helm/v4/pkg/repo/v1"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/deploy"
	"github.com/liqo-go/liqo/deploy/image"
)

var update = flag.Bool("update", false, "write the expected files of testdata")

// madeIn writes a release in a new folder. Its programs are short texts, its chart has two files, and its lists of
// software name what this test was compiled from.
func madeIn(t *testing.T, signer signature.Signer) *release {
	t.Helper()
	r := &release{version: "v0.2.0-rc.1", registry: "registry.example.com/liqo", url: "https://example.com/v0.2.0-rc.1",
		dist: filepath.Join(t.TempDir(), "dist"), commit: strings.Repeat("c", 40), time: time.Unix(1.7e9, 0).UTC()}
	text := filepath.Join(t.TempDir(), "text")
	must(t, os.MkdirAll(r.dist, 0o755))
	must(t, os.WriteFile(text, []byte("program"), 0o600))
	executable, err := os.Executable()
	must(t, err)
	of, err := goSoftware("this", r.version, executable)
	must(t, err)

	c := contents{image: testImage(t, r, text), client: software{name: "liqoctl", version: r.version, parts: []software{of}}}
	c.image.parts = []software{of}
	for _, p := range clients {
		made := program{platform: p, binary: text}
		must(t, r.writeArchive(&made, map[string][]byte{"LICENSE": []byte("licence"), "completions/_liqoctl": []byte("zsh")}))
		c.programs = append(c.programs, made)
	}
	c.chart = map[string][]byte{
		"Chart.yaml":        []byte("apiVersion: v2\nname: liqo\nversion: 0.1.0\nappVersion: v0.1.0\n"),
		"values.yaml":       []byte("image:\n  name: liqo\n  digest: \"\"\n"),
		"templates/cm.yaml": []byte("kind: ConfigMap\n"),
	}
	must(t, deploy.StampChart(c.chart, r.version, r.imageName(), c.image.digest))
	must(t, r.describe(c, signer))
	return r
}

func testImage(t *testing.T, r *release, program string) *madeImage {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range servers {
		one, err := image.New(image.Options{Architecture: p.arch, Created: r.time, Small: true,
			Layers: []image.Files{{"/usr/bin/liqo": program}}})
		must(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: one,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	digest, err := writeLayout(filepath.Join(r.dist, layoutDir), r.version, index)
	must(t, err)
	return &madeImage{digest: digest, debian: []debianPackage{
		{name: "nftables", version: "1.0.6-2+deb12u2", arch: "amd64", sum: strings.Repeat("d", 64)}}}
}

// must ends the test at the first error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *release) read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.dist, name))
	must(t, err)
	return content
}

// TestEqualBytesInTwoFolders makes a release twice. sha256sum reads the sums.
func TestEqualBytesInTwoFolders(t *testing.T) {
	one, other := madeIn(t, nil), madeIn(t, nil)
	if diff := cmp.Diff(string(one.read(t, sumsFile)), string(other.read(t, sumsFile))); diff != "" {
		t.Errorf("sums differ:\n%s", diff)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "--quiet", sumsFile)
	check.Dir = one.dist
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPackages compares what krew and Homebrew read with testdata.
func TestPackages(t *testing.T) {
	r := &release{version: "v0.2.0-rc.1", url: "https://example.com/v0.2.0-rc.1", dist: t.TempDir()}
	var programs []program
	for _, p := range clients {
		programs = append(programs, program{platform: p, sum: strings.Repeat("a", 64)})
	}
	must(t, r.writePackages(programs))
	for _, name := range []string{"krew.yaml", "liqoctl.rb"} {
		golden(t, name, string(r.read(t, name)))
	}
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), 'go test -update' writes it:\n%s", file, diff)
	}
}

// TestArchives unpacks liqoctl as users do: with tar, and from a zip file on Windows.
func TestArchives(t *testing.T) {
	r := madeIn(t, nil)
	out, err := exec.Command("tar", "-tvzf", filepath.Join(r.dist, "liqoctl-linux-arm64.tar.gz"), "--utc", "--full-time").Output()
	must(t, err)
	golden(t, "archive.txt", string(out))
	zipped, err := zip.OpenReader(filepath.Join(r.dist, "liqoctl-windows-amd64.zip"))
	must(t, err)
	defer zipped.Close()
	if first := zipped.File[0]; first.Name != "liqoctl.exe" || !first.Modified.Equal(r.time) || len(zipped.File) != 3 {
		t.Errorf("zip of %d files with %+v", len(zipped.File), first.FileHeader)
	}
}

// TestChart: Helm loads the packed chart, whose values name the image, and finds it in the index.
func TestChart(t *testing.T) {
	r := madeIn(t, nil)
	packed := r.read(t, "liqo-0.2.0-rc.1.tgz")
	chart, err := loader.LoadArchive(bytes.NewReader(packed))
	must(t, err)
	if len(chart.Templates) != 1 || chart.Metadata.AppVersion != r.version {
		t.Errorf("chart %+v with %d templates", chart.Metadata, len(chart.Templates))
	}
	index, _, err := readLayout(filepath.Join(r.dist, layoutDir))
	must(t, err)
	digest, err := index.Digest()
	must(t, err)
	want := map[string]any{"image": map[string]any{"name": "registry.example.com/liqo/liqo", "digest": digest.String()}}
	if diff := cmp.Diff(want, chart.Values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
	repository, err := repo.LoadIndexFile(filepath.Join(r.dist, indexFile))
	must(t, err)
	entry, err := repository.Get("liqo", "0.2.0-rc.1")
	must(t, err)
	if entry.URLs[0] != r.url+"/liqo-0.2.0-rc.1.tgz" || entry.Digest != sumOfBytes(packed) {
		t.Errorf("index has %+v", entry)
	}
}

// TestSBOMs: SPDX's own library reads the documents, which name modules and packages once.
func TestSBOMs(t *testing.T) {
	r := madeIn(t, nil)
	for name, wants := range map[string][]string{
		"liqo-image.spdx.json": {"pkg:golang/github.com/google/go-containerregistry@v0.22.1", "pkg:oci/liqo@sha256:"},
		"liqoctl.spdx.json":    {"pkg:golang/helm.sh/helm/v4@v4.3.2", "pkg:golang/stdlib@1."},
	} {
		text := r.read(t, name)
		document, err := json.Read(bytes.NewReader(text))
		must(t, err)
		must(t, spdxlib.ValidateDocument(document))
		described, err := spdxlib.GetDescribedPackageIDs(document)
		if err != nil || len(described) != 1 {
			t.Errorf("%s describes %v, %v", name, described, err)
		}
		for _, want := range wants {
			if strings.Count(string(text), want) != 1 {
				t.Errorf("%s has %q %d times", name, want, strings.Count(string(text), want))
			}
		}
	}
}

// TestSignatures signs with a key of cosign's form, and verifies as cosign does.
func TestSignatures(t *testing.T) {
	signer, verifier := keys(t)
	r := madeIn(t, signer)
	signed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(r.read(t, signatureFile))))
	must(t, err)
	must(t, verifier.VerifySignature(bytes.NewReader(signed), bytes.NewReader(r.read(t, sumsFile))))
	must(t, dsse.WrapVerifier(verifier).VerifySignature(bytes.NewReader(r.read(t, envelopeFile)), nil))

	statement := &attestation.Statement{}
	must(t, protojson.Unmarshal(r.read(t, provenanceFile), statement))
	must(t, statement.Validate())
	sums := string(r.read(t, sumsFile))
	for _, s := range statement.Subject[1:] {
		if !strings.Contains(sums, s.Digest["sha256"]+"  "+s.Name+"\n") {
			t.Errorf("the provenance has %s, whose sum is another", s.Name)
		}
	}
	if strings.Contains(sums, signatureFile) {
		t.Error("sums name a signature, which differs each time")
	}
}

// TestUnsigned: only a release that is unsigned by name goes without a key, for both commands, before any work.
func TestUnsigned(t *testing.T) {
	for _, command := range []string{"build", "push"} {
		dist := filepath.Join(t.TempDir(), "dist")
		for wants, args := range map[string][]string{
			"no signing key": {"-key", ""},
			"choose one":     {"-key", "cosign.key", "-unsigned"},
		} {
			args := append([]string{command, "-registry", "registry.example.com/liqo", "-dist", dist}, args...)
			err := run(t.Context(), args)
			if err == nil || !strings.Contains(err.Error(), wants) {
				t.Errorf("%v: %v, want %q", args, err, wants)
			}
		}
	}
	if signer, err := loadSigner("", "", true); signer != nil || err != nil {
		t.Errorf("unsigned on purpose: %v, %v", signer, err)
	}
}

// keys makes a signer from a file with an encrypted key, and what verifies its signatures.
func keys(t *testing.T) (signature.Signer, signature.Verifier) {
	t.Helper()
	key, public, err := cryptoutils.GeneratePEMEncodedECDSAKeyPair(elliptic.P256(), cryptoutils.StaticPasswordFunc([]byte("secret")))
	must(t, err)
	file := filepath.Join(t.TempDir(), "key")
	must(t, os.WriteFile(file, key, 0o600))
	if _, err := loadSigner(file, "wrong", false); err == nil {
		t.Error("a wrong password is taken")
	}
	signer, err := loadSigner(file, "secret", false)
	must(t, err)
	parsed, err := cryptoutils.UnmarshalPEMToPublicKey(public)
	must(t, err)
	verifier, err := signature.LoadVerifier(parsed, crypto.SHA256)
	must(t, err)
	return signer, verifier
}

// TestCheck refuses what could not be made again or would lead nowhere.
func TestCheck(t *testing.T) {
	repository := t.TempDir()
	git := func(args ...string) {
		args = append([]string{"-C", repository, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=@1700000000 +0200")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	git("init", "--quiet")
	git("commit", "--quiet", "--allow-empty", "-m", "first")
	t.Setenv("SOURCE_DATE_EPOCH", "")
	good := release{version: "v0.2.0", url: "https://example.com/", source: repository}
	must(t, good.check(t.Context()))
	if good.time.Unix() != 1.7e9 || len(good.commit) != 40 || good.url != "https://example.com" {
		t.Errorf("checked %+v", good)
	}
	for _, bad := range []release{
		{version: "0.2.0", url: good.url, source: repository}, {version: "v0.2", url: good.url, source: repository},
		{version: "v0.2.0+build", url: good.url, source: repository}, {version: "v0.2.0", source: repository},
	} {
		if err := bad.check(t.Context()); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	must(t, os.WriteFile(filepath.Join(repository, "more"), nil, 0o600))
	if err := good.check(t.Context()); err == nil || !strings.Contains(err.Error(), "more") {
		t.Errorf("a file that no commit has: %v", err)
	}
}

// TestChartOfTheRepository: the chart that this repository has can be stamped with a release.
func TestChartOfTheRepository(t *testing.T) {
	files, err := releaseChart("v0.2.0", "registry.example.com/liqo", "sha256:1")
	must(t, err)
	var values struct{ Image struct{ Name, Digest string } }
	must(t, yaml.Unmarshal(files["values.yaml"], &values))
	if values.Image.Name != "registry.example.com/liqo" || values.Image.Digest != "sha256:1" {
		t.Errorf("values have %+v", values)
	}
}
