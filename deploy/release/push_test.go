// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	helmregistry "helm.sh/helm/v4/pkg/registry"
)

// TestPush pushes a release twice to a registry, and pulls it as nodes, Helm and cosign do: the image of a platform by
// digest, the chart by version, the signature of the image.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://") + "/liqo"
	signer, verifier := keys(t)
	r := madeIn(t, nil)
	for range 2 {
		must(t, push(t.Context(), r.dist, host, true, signer))
	}

	index, _, err := readLayout(r.dist + "/" + layoutDir)
	must(t, err)
	digest, err := index.Digest()
	must(t, err)
	pinned, err := name.NewDigest(host + "/liqo@" + digest.String())
	must(t, err)
	for _, p := range servers {
		pulled, err := remote.Image(pinned, remote.WithPlatform(v1.Platform{OS: p.os, Architecture: p.arch}))
		must(t, err)
		config, err := pulled.ConfigFile()
		must(t, err)
		if config.Architecture != p.arch {
			t.Errorf("%+v got the image of %s", p, config.Architecture)
		}
	}

	client, err := helmregistry.NewClient(helmregistry.ClientOptPlainHTTP(), helmregistry.ClientOptWriter(io.Discard))
	must(t, err)
	chart, err := client.Pull(host + "/charts/liqo:0.2.0-rc.1")
	must(t, err)
	if diff := cmp.Diff(r.read(t, chartFile(r.version)), chart.Chart.Data); diff != "" {
		t.Errorf("the chart came back changed: %s", diff)
	}

	signed, err := remote.Image(pinned.Tag("sha256-" + digest.Hex + ".sig"))
	must(t, err)
	manifest, err := signed.Manifest()
	must(t, err)
	layers, err := signed.Layers()
	must(t, err)
	payload, err := layers[0].Uncompressed()
	must(t, err)
	text, err := io.ReadAll(payload)
	must(t, err)
	mark, err := base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations[signatureAnnotation])
	must(t, err)
	must(t, verifier.VerifySignature(strings.NewReader(string(mark)), strings.NewReader(string(text))))
	var says struct {
		Critical struct {
			Image map[string]string
		}
	}
	must(t, json.Unmarshal(text, &says))
	if says.Critical.Image["docker-manifest-digest"] != digest.String() {
		t.Errorf("the signature is of %v", says.Critical.Image)
	}
}
