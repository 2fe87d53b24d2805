// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestStampChart changes the lines of a release and no other, and names a key that is missing.
func TestStampChart(t *testing.T) {
	files := map[string][]byte{
		"Chart.yaml":  []byte("apiVersion: v2\nname: liqo\nversion: 0.1.0\nappVersion: v0.1.0\n"),
		"values.yaml": []byte("image:\n  # The name.\n  name: liqo\n\n  digest: \"\"\ntag: \"\"\nproxy: {image: {name: \"\"}}\n"),
	}
	if err := StampChart(files, "v0.2.0-rc.1", "registry.example.com/liqo", "sha256:1"); err == nil {
		t.Error("a block that ends before the key is not refused")
	}
	files["values.yaml"] = []byte("image:\n  # The name.\n  name: liqo\n  digest: \"\"\ntag: \"\"\nproxy: {image: {name: \"\"}}\n")
	if err := StampChart(files, "v0.2.0-rc.1", "registry.example.com/liqo", "sha256:1"); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{
		"Chart.yaml": []byte("apiVersion: v2\nname: liqo\nversion: 0.2.0-rc.1\nappVersion: v0.2.0-rc.1\n"),
		"values.yaml": []byte("image:\n  # The name.\n  name: registry.example.com/liqo\n  digest: sha256:1\ntag: \"\"\n" +
			"proxy: {image: {name: \"\"}}\n"),
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("stamped chart (-want +got):\n%s", diff)
	}
}

// TestChartCarriesItsRelease: what liqoctl of a release installs is the chart of that release.
func TestChartCarriesItsRelease(t *testing.T) {
	version, image = "v9.8.7", "registry.example.com/liqo"
	t.Cleanup(func() { version, image = "", "" })
	files, err := ChartFiles()
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ Version, AppVersion string }
	var values struct{ Image struct{ Name string } }
	if err := yaml.Unmarshal(files["Chart.yaml"], &chart); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(files["values.yaml"], &values); err != nil {
		t.Fatal(err)
	}
	if chart.Version != "9.8.7" || chart.AppVersion != version || values.Image.Name != image {
		t.Errorf("the chart has %+v, %+v", chart, values)
	}
}
