// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/network/objects/plan"
)

const minimal = "discovery: {config: {clusterID: rome}}\nipam: {podCIDRs: [10.10.0.0/16], serviceCIDR: 10.110.0.0/16}\n"

// installation is a first installation.
var installation = common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true}

// objects returns what the chart renders with values, besides the minimal ones, that Prometheus' operator is there.
func objects(t *testing.T, values string) []*unstructured.Unstructured {
	t.Helper()
	vals, err := common.ReadValues([]byte(minimal + values))
	if err != nil {
		t.Fatal(err)
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, "monitoring.coreos.com/v1")
	c := load(t)
	full, err := chartvalues.ToRenderValues(c, vals, installation, capabilities)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.RenderWithClientProvider(c, full, inCluster())
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for name, text := range rendered {
		for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			obj := &unstructured.Unstructured{}
			if !strings.HasSuffix(name, ".yaml") {
				continue
			}
			if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			if len(obj.Object) > 0 {
				all = append(all, obj)
			}
		}
	}
	return all
}

// TestGlobalMetadata: all objects and pod templates have the global labels and annotations, those that the controller
// makes too, and it is told them. Labels that selectors follow stay, and no annotation becomes a template.
func TestGlobalMetadata(t *testing.T) {
	t.Parallel()
	told := ""
	for _, obj := range objects(t, `
common: {globalLabels: {team: net, app.kubernetes.io/name: x}, globalAnnotations: {note: "it's a,b=c {{.", cost: $(POD)}}
controllerManager: {pod: {labels: {app.kubernetes.io/instance: x}}}
metrics: {enabled: true}
openshiftConfig: {enabled: true}
`) {
		name := obj.GetKind() + " " + obj.GetName()
		parts := map[string]any{name: obj.Object}
		if template, ok, _ := unstructured.NestedMap(obj.Object, "spec", "template"); ok && template["metadata"] != nil {
			parts["pod of "+name] = template
		}
		if name == "ConfigMap liqo-defaults" {
			maps.Copy(parts, madePods(t, obj))
		}
		for part, content := range parts {
			of := unstructured.Unstructured{Object: content.(map[string]any)}
			if of.GetLabels()["team"] != "net" || of.GetAnnotations()["note"] != "it's a,b=c {{." {
				t.Errorf("%s: labels %v, annotations %v", part, of.GetLabels(), of.GetAnnotations())
			}
			for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance"} {
				if of.GetLabels()[key] == "x" {
					t.Errorf("%s: label %s was replaced", part, key)
				}
			}
		}
		switch name {
		case "Deployment liqo-controller-manager":
			told = fmt.Sprint(obj.Object)
		case "ConfigMap liqo-defaults":
			madePods(t, obj)
		}
	}
	for _, flag := range []string{
		"--global-labels=app.kubernetes.io/name=x,team=net",
		`--global-annotations={"cost":"$$(POD)","note":"it's a,b=c {{."}`,
	} {
		if !strings.Contains(told, flag) {
			t.Errorf("the controller lacks %s:\n%s", flag, told)
		}
	}
}

// madePods returns the pods that the controller makes of the default objects: of gateways and virtual kubelets.
func madePods(t *testing.T, defaults *unstructured.Unstructured) map[string]any {
	t.Helper()
	pods := map[string]any{}
	for file, text := range defaults.Object["data"].(map[string]any) {
		made := map[string]any{}
		if err := yaml.Unmarshal([]byte(text.(string)), &made); err != nil {
			t.Fatal(err)
		}
		if extra, ok, _ := unstructured.NestedMap(made, "spec", "extraLabels"); ok {
			annotations, _, _ := unstructured.NestedMap(made, "spec", "extraAnnotations")
			pods[file] = map[string]any{"metadata": map[string]any{"labels": extra, "annotations": annotations}}
		}
		if pod, ok, _ := unstructured.NestedMap(made, "spec", "template", "spec", "deployment", "spec", "template"); ok {
			rendered, err := plan.Render(map[string]any{"metadata": pod["metadata"]}, plan.TemplateData{})
			if err != nil {
				t.Fatal(err)
			}
			pods[file] = rendered
		}
	}
	if len(pods) != 3 {
		t.Errorf("the controller makes pods of %v", slices.Collect(maps.Keys(pods)))
	}
	return pods
}

// TestTextMayBeWrittenAsNumbers: YAML makes numbers and booleans of what is text in Kubernetes.
func TestTextMayBeWrittenAsNumbers(t *testing.T) {
	t.Parallel()
	all := objects(t, `
tag: 20261127
apiServer: {peerShares: 12345678}
common:
  globalLabels: {rank: 1, gone: null}
  globalAnnotations: {argocd.argoproj.io/sync-wave: 10, build: 12345678, scrape: true}
  nodeSelector: {generation: 2}
  extraArgs: [5]
discovery: {config: {clusterLabels: {zone: 1, big: 12345678}}}
controllerManager: {pod: {labels: {rank: 1}, annotations: {scrape: true}, extraArgs: [7, 12345678]}}
virtualKubelet: {extra: {args: [5, 12345678]}}
uninstaller: {pod: {extraArgs: [12345678, null]}}
networking: {fabric: {nodeSelector: {gpu: false}, config: {routeConfigurationRulePriority: 12345678}}}
proxy: {service: {annotations: {port: 8118}}}
offloading: {namespaceBounds: {objectSize: 1500000}, runtimeClass: {labels: {rank: 1}, nodeSelector: {labels: {virtual: true}}}}
metrics: {enabled: true}
`)
	wanted := map[string][]string{
		"Deployment liqo-controller-manager": {"--cluster-labels=big=12345678,zone=1 ", "liqo:20261127 ", "5 7 12345678]"},
		"DaemonSet liqo-fabric":              {"--fabric-route-rule-priority=12345678 "},
		"ConfigMap liqo-defaults":            {"extraArgs:\n  - \"5\"\n  - \"12345678\"\n"},
		"Job liqo-pre-delete":                {"args:[cleanup 12345678]"},
	}
	for _, obj := range all {
		eachMap(obj.Object, func(field string, content map[string]any) {
			if !slices.Contains([]string{"labels", "annotations", "matchLabels", "nodeSelector"}, field) {
				return
			}
			for key, value := range content {
				if _, ok := value.(string); !ok {
					t.Errorf("%s %s: %s %s is %v", obj.GetKind(), obj.GetName(), field, key, value)
				}
			}
		})
		if obj.GetAnnotations()["build"] != "12345678" && obj.GetKind() == "Deployment" {
			t.Errorf("%s: annotations %v", obj.GetName(), obj.GetAnnotations())
		}
		name := obj.GetKind() + " " + obj.GetName()
		for _, text := range wanted[name] {
			if !strings.Contains(fmt.Sprint(obj.Object), text) {
				t.Errorf("%s lacks %q: %v", name, text, obj.Object)
			}
		}
		delete(wanted, name)
	}
	if len(wanted) > 0 {
		t.Errorf("not rendered: %v", wanted)
	}
	rendered, err := render(t, minimal+"apiServer: {peerShares: 12345678}")
	if err != nil {
		t.Fatal(err)
	}
	if text := rendered["liqo/templates/peer-flows.yaml"]; !strings.Contains(text, "nominalConcurrencyShares: 12345678\n") {
		t.Error(text)
	}
}

// eachMap visits the maps in fields of an object.
func eachMap(value any, visit func(field string, content map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		for field, part := range value {
			if content, ok := part.(map[string]any); ok {
				visit(field, content)
			}
			eachMap(part, visit)
		}
	case []any:
		for _, part := range value {
			eachMap(part, visit)
		}
	}
}

// TestImages: which image workloads run.
func TestImages(t *testing.T) {
	t.Parallel()
	version := load(t).Metadata.AppVersion
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	for _, test := range []struct{ values, proxy, controller string }{
		{"", "liqo-go/liqo:" + version, "liqo-go/liqo:" + version},
		{"image: {name: mirror.example/liqo}\ntag: v9", "mirror.example/liqo:v9", "mirror.example/liqo:v9"},
		{"image: {digest: '" + digest + "'}", "liqo-go/liqo@" + digest, "liqo-go/liqo@" + digest},
		{"image: {digest: '" + digest + "'}\ntag: " + version, "liqo-go/liqo@" + digest, "liqo-go/liqo@" + digest},
		{"image: {digest: '" + digest + "'}\ntag: v9", "liqo-go/liqo:v9", "liqo-go/liqo:v9"},
		{"proxy: {image: {name: mirror.example/liqo, version: v9}}", "mirror.example/liqo:v9", "liqo-go/liqo:" + version},
		{"image: {digest: '" + digest + "'}\nproxy: {image: {name: mirror.example/liqo}}",
			"mirror.example/liqo@" + digest, "liqo-go/liqo@" + digest},
		{"tag: v1.2.0\nproxy: {image: {name: ghcr.io/liqotech/proxy, version: v1.0.0-rc.3}}",
			"liqo-go/liqo:" + version, "liqo-go/liqo:" + version},
		{"proxy: {image: {name: harbor.example/mirror/proxy, version: v1.2.0}}",
			"liqo-go/liqo:" + version, "liqo-go/liqo:" + version},
	} {
		for _, obj := range objects(t, test.values) {
			want := map[string]string{"liqo-proxy": test.proxy, "liqo-controller-manager": test.controller}[obj.GetName()]
			containers, found, _ := unstructured.NestedSlice(obj.Object, "spec", "template", "spec", "containers")
			if want == "" || !found {
				continue
			}
			if got := containers[0].(map[string]any)["image"]; got != want {
				t.Errorf("%s: %s runs %s, want %s", test.values, obj.GetName(), got, want)
			}
		}
	}
}

// TestMonitors: where metrics are served and Prometheus' operator is there each component has a monitor, unless values
// say otherwise.
func TestMonitors(t *testing.T) {
	t.Parallel()
	for values, want := range map[string][]string{
		"": nil,
		"metrics: {enabled: true}": {"PodMonitor liqo-fabric", "PodMonitor liqo-gateway", "PodMonitor liqo-virtual-kubelet",
			"ServiceMonitor liqo-controller-manager"},
		"virtualKubelet: {metrics: {enabled: true}}": {"PodMonitor liqo-virtual-kubelet"},
		"metrics: {enabled: true}\nnetworking: {enabled: false}\nvirtualKubelet: {metrics: {podMonitor: {enabled: false}}}": {
			"ServiceMonitor liqo-controller-manager"},
		"metrics: {enabled: true}\nnetworking: {enabled: false}\ncontrollerManager: {metrics: {podMonitor: {enabled: true}}}": {
			"PodMonitor liqo-controller-manager", "PodMonitor liqo-virtual-kubelet"},
	} {
		var got []string
		for _, obj := range objects(t, values) {
			if strings.HasSuffix(obj.GetKind(), "Monitor") {
				got = append(got, obj.GetKind()+" "+obj.GetName())
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", values, diff)
		}
	}
}

// TestOldKernelsAreRefused names the node, unless the check is off. Virtual nodes have no kernel.
func TestOldKernelsAreRefused(t *testing.T) {
	t.Parallel()
	config := apitest.Start(t).Config
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	install := func(requirements string) error {
		vals, err := common.ReadValues([]byte(minimal + requirements))
		if err != nil {
			t.Fatal(err)
		}
		loaded := load(t)
		full, err := chartvalues.ToRenderValues(loaded, vals, installation, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.RenderWithClient(loaded, full, config)
		return err
	}
	node := func(name, kernel string, labels map[string]string) {
		obj := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if err := c.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		obj.Status.NodeInfo.KernelVersion, obj.Status.NodeInfo.OperatingSystem = kernel, "linux"
		if err := c.Status().Update(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	node("new", "6.1.0-18-amd64", nil)
	node("least", "5.10.0", nil)
	node("virtual", "4.4.0", map[string]string{"liqo.io/type": "virtual-node"})
	if err := install(""); err != nil {
		t.Error(err)
	}
	node("old", "4.18.0-553.el8.x86_64", nil)
	if err := install(""); err == nil || !strings.Contains(err.Error(), "node old has kernel 4.18, and 5.10 is needed") {
		t.Errorf("an old kernel gives %v", err)
	}
	for _, off := range []string{"enabled: false", "disabled: true"} {
		if err := install("requirements: {kernel: {" + off + "}}"); err != nil {
			t.Errorf("%s: %v", off, err)
		}
	}
}

// TestConstraintsOfOpenShift: the roles of fabric, gateways and virtual kubelets let them use their constraints, where
// values say that there are any.
func TestConstraintsOfOpenShift(t *testing.T) {
	t.Parallel()
	allowed := func(values string) map[string]any {
		roles := map[string]any{}
		for _, obj := range objects(t, values) {
			rules, _, _ := unstructured.NestedSlice(obj.Object, "rules")
			for _, rule := range rules {
				if rule := rule.(map[string]any); cmp.Equal(rule["verbs"], []any{"use"}) {
					roles[obj.GetName()] = rule["resourceNames"]
				}
			}
		}
		return roles
	}
	if got := allowed(""); len(got) > 0 {
		t.Errorf("without OpenShift: %v", got)
	}
	want := map[string]any{
		"liqo-fabric":                []any{"liqo-fabric"},
		"liqo-gateway":               []any{"liqo-gateway"},
		"liqo-virtual-kubelet-local": []any{"nonroot-v2", "anyuid"},
	}
	if diff := cmp.Diff(want, allowed("openshiftConfig: {enabled: true, virtualKubeletSCCs: [anyuid]}")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
