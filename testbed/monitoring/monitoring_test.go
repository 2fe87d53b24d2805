// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring checks the monitors, alerts and dashboards of the chart against the types that read them. Those of
// the Prometheus operator are a dependency that the product does not need.
package monitoring

import (
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/liqo-go/liqo/deploy"
)

// values switch on all that is monitored, with each field that users can set.
const values = `
ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}
metrics:
  enabled: true
  prometheusOperator: {enabled: true}
  alerts: {labels: {release: prometheus}}
  dashboards: {annotations: {grafana_folder: Liqo}}
controllerManager: {metrics: &of {podMonitor: &with {enabled: true, interval: 30s, scrapeTimeout: 10s, labels: {release: prometheus}}, serviceMonitor: *with}}
networking: {fabric: {metrics: *of}, gatewayTemplates: {metrics: *of}}
virtualKubelet: {metrics: {enabled: true, podMonitor: *with}}
`

// TestObjectsHaveKnownFields: the operator and Kubernetes know each field of the objects, none twice.
func TestObjectsHaveKnownFields(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{monitoringv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	const wrong = "{apiVersion: monitoring.coreos.com/v1, kind: PodMonitor, spec: {endpoints: []}}" // as a ServiceMonitor
	if _, _, err := decoder.Decode([]byte(wrong), nil, nil); err == nil {
		t.Fatal("an unknown field is taken")
	}
	kinds := map[string]int{}
	rendered := render(t)
	for _, file := range []string{"monitors", "alerts", "dashboards"} {
		for _, text := range strings.Split(rendered["liqo/templates/"+file+".yaml"], "\n---\n") {
			if strings.TrimSpace(text) == "" {
				continue
			}
			object, kind, err := decoder.Decode([]byte(text), nil, nil)
			if err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
				continue
			}
			kinds[kind.Kind]++
			if rules, ok := object.(*monitoringv1.PrometheusRule); ok && len(rules.Spec.Groups[0].Rules) != 6 {
				t.Errorf("%d alerts", len(rules.Spec.Groups[0].Rules))
			}
		}
	}
	for kind, want := range map[string]int{"PodMonitor": 4, "ServiceMonitor": 3, "PrometheusRule": 1, "ConfigMap": 5} {
		if kinds[kind] != want {
			t.Errorf("%d objects of kind %s, want %d", kinds[kind], kind, want)
		}
	}
}

// render returns the rendered templates of the chart.
func render(t *testing.T) map[string]string {
	t.Helper()
	files, err := deploy.ChartFiles()
	if err != nil {
		t.Fatal(err)
	}
	var buffered []*archive.BufferedFile
	for name, data := range files {
		buffered = append(buffered, &archive.BufferedFile{Name: name, Data: data})
	}
	chart, err := loader.LoadFiles(buffered)
	if err != nil {
		t.Fatal(err)
	}
	given, err := common.ReadValues([]byte(values))
	if err != nil {
		t.Fatal(err)
	}
	full, err := chartvalues.ToRenderValues(chart, given, common.ReleaseOptions{Name: "liqo", Namespace: "liqo"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(chart, full)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}
