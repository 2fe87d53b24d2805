// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// templated returns what 'helm template' prints, as a release; with the kinds if told so.
func templated(t *testing.T, kinds bool) *release.Release {
	t.Helper()
	run := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	run.ReleaseName, run.Namespace, run.DryRunStrategy, run.IncludeCRDs = "liqo", "liqo", action.DryRunClient, kinds
	run.KubeVersion = &common.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
	made, err := run.Run(load(t), values(t, minimal))
	if err != nil {
		t.Fatal(err)
	}
	return made.(*release.Release)
}

// TestOlderKubernetesIsRefused: the chart says which versions it takes to a cluster of an older one.
func TestOlderKubernetesIsRefused(t *testing.T) {
	t.Parallel()
	run := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	run.ReleaseName, run.Namespace, run.DryRunStrategy = "liqo", "liqo", action.DryRunClient
	run.KubeVersion = &common.KubeVersion{Version: "v1.33.9", Major: "1", Minor: "33"}
	_, err := run.Run(load(t), values(t, minimal))
	if err == nil || !strings.Contains(err.Error(), ">=1.34") || !strings.Contains(err.Error(), "v1.33.9") {
		t.Errorf("on Kubernetes 1.33: %v", err)
	}
}

// TestTemplateIsAppliedInOneGo: an API server takes each object of 'helm template --include-crds' at once, in the order
// in which it is printed. None is of a kind that is among them: the API server would not know it yet.
func TestTemplateIsAppliedInOneGo(t *testing.T) {
	c, err := client.New(apitest.Start(t).Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}); err != nil {
		t.Fatal(err)
	}
	defined := 0
	for _, doc := range strings.Split(templated(t, true).Manifest, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		if len(o.Object) == 0 {
			continue
		}
		if strings.HasSuffix(o.GroupVersionKind().Group, "liqo.io") {
			t.Errorf("%s %s is of a kind that may not be known yet", o.GetKind(), o.GetName())
		}
		if o.GetKind() == "CustomResourceDefinition" {
			defined++
		}
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("kubectl")); err != nil {
			t.Errorf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if defined < 20 {
		t.Errorf("only %d kinds are defined", defined)
	}
}

// TestReleaseFitsIntoASecret: Helm keeps a release, its chart included, in a Secret, which holds 1 MiB at most.
func TestReleaseFitsIntoASecret(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(templated(t, false))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// Helm encodes it once, and the API server counts the decoded Secret.
	size := base64.StdEncoding.EncodedLen(packed.Len())
	t.Logf("%d KiB", size/1024)
	if size > 768<<10 {
		t.Errorf("a release takes %d KiB of 1024: leave room for values and notes", size/1024)
	}
}
