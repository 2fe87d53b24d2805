// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/view"
)

// packageChart writes the embedded chart as an archive of another version.
func packageChart(t *testing.T, version string) string {
	t.Helper()
	c, err := embeddedChart()
	if err != nil {
		t.Fatal(err)
	}
	c.Metadata.Version, c.Metadata.AppVersion = version, "v"+bare(version)
	name, err := chartutil.Save(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// TestChartOfARepository: --repo-url reads the chart of --version from a Helm repository, and
// refuses one that differs from its index or is of the original.
func TestChartOfARepository(t *testing.T) {
	files := map[string][]byte{"/charts/index.yaml": []byte("apiVersion: v1\nentries:\n  liqo:\n")}
	for _, version := range []string{"9.9.9", "9.9.8", "v1.0.1"} {
		name := packageChart(t, version)
		archive, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files["/charts/"+filepath.Base(name)] = archive
		if version == "9.9.8" {
			archive = []byte("another")
		}
		files["/charts/index.yaml"] = fmt.Appendf(files["/charts/index.yaml"],
			"  - {apiVersion: v2, name: liqo, version: %s, digest: %x, urls: [%s]}\n", version, sha256.Sum256(archive), filepath.Base(name))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = bytes.NewReader(file).WriteTo(w) // the reader notices
	}))
	t.Cleanup(server.Close)
	for _, c := range []struct{ url, version, want string }{
		{"/charts/", "v9.9.9", "v9.9.9"},
		{"/charts", "9.9.9", "v9.9.9"},
		{"/charts", "9.9.8", "but its index.yaml says"},
		{"/charts", "9.9.7", "no chart version found for liqo-9.9.7; check --repo-url and --version"},
		{"/charts", "", "no chart version found for liqo-0.1.0"},
		{"/charts", "v1.0.1", "chart liqo-v1.0.1 is not one of this Liqo"},
		{"/nothing", "9.9.9", "404 Not Found; check --repo-url and --version"},
	} {
		o := &installOptions{repoURL: server.URL + c.url, version: c.version}
		got := ""
		if chart, err := o.chart(); err != nil {
			got = err.Error()
		} else {
			got = chart.Metadata.AppVersion
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s of %s: %s, want %s", c.version, c.url, got, c.want)
		}
	}
}

// TestVersionOfAChartOnDisk: --version is compared with the chart of --local-chart-path.
func TestVersionOfAChartOnDisk(t *testing.T) {
	o := &installOptions{chartPath: packageChart(t, "9.9.9"), version: "v9.9.9"}
	if _, err := o.chart(); err != nil {
		t.Error(err)
	}
	o.version = "v9.9.8"
	if _, err := o.chart(); err == nil || !strings.Contains(err.Error(), "is of version v9.9.9, not v9.9.8") {
		t.Errorf("another version: %v", err)
	}
}

// TestNearestKey: the key that the user probably meant is found at any depth.
func TestNearestKey(t *testing.T) {
	chart, err := embeddedChart()
	if err != nil {
		t.Fatal(err)
	}
	for wrong, want := range map[string]string{
		"netwroking":                          "networking",
		"podCIDR":                             "ipam.podCIDR",
		"networking.gatewayTemplates.replica": "networking.gatewayTemplates.replicas",
		"controllerManager.replicaCount":      "controllerManager.replicas",
	} {
		if got := nearest(wrong, schemaKeys(chart.Schema)); got != want {
			t.Errorf("%s: nearest is %s, want %s", wrong, got, want)
		}
	}
}

// TestImageProblem: a missing image is reported with its node, and given up only where trying again
// is of no use.
func TestImageProblem(t *testing.T) {
	const message = "no such host"
	for state, want := range map[string]struct{ found, final bool }{
		"ContainerCreating: " + message: {false, false}, "CrashLoopBackOff: " + message: {false, false},
		"ErrImagePull: " + message: {true, false}, "ImagePullBackOff: " + message: {true, false},
		"ErrImageNeverPull: " + message: {true, true}, "InvalidImageName: " + message: {true, true},
		"ErrImagePull: rpc error: code = NotFound desc = failed to pull: not found": {true, true},
	} {
		reason, message, _ := strings.Cut(state, ": ")
		waiting := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "worker"}, Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Image: "registry.example.com/liqo:v9", State: waiting}}}}
		problem, final := view.ImageProblem(pod)
		found := strings.HasPrefix(problem, `node worker cannot get image "registry.example.com/liqo:v9" (`+state+")")
		if found != want.found || final != want.final || !found && problem != "" {
			t.Errorf("%s: %q, final: %v", state, problem, final)
		}
	}
}
