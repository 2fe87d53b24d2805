// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	state "helm.sh/helm/v4/pkg/release/common"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/deploy"
	"github.com/liqo-go/liqo/deploy/kinds"
	"github.com/liqo-go/liqo/internal/await"
	"github.com/liqo-go/liqo/view"
)

const (
	// labelChart is the label with the chart that an object comes from.
	labelChart = "helm.sh/chart"
	// labelPartOf is the label that all workloads of Liqo have, those of the original included.
	labelPartOf = "app.kubernetes.io/part-of"
)

// isOriginalChart reports whether a chart, as <name>-<version>, is of the original Liqo: its
// versions begin with a letter.
func isOriginalChart(of string) bool {
	version, ok := strings.CutPrefix(of, api.ReleaseName+"-")
	return ok && strings.HasPrefix(version, "v")
}

// checkForeign refuses to install over the original Liqo, or beside a Liqo in another namespace.
func (c *cluster) checkForeign(ctx context.Context) error {
	original := func(of, namespace string) error {
		return fmt.Errorf("another Liqo is installed in namespace %s (%s), and taking it over is not possible yet; "+
			"remove it first with its own 'liqoctl uninstall --purge'", namespace, of)
	}
	_, last, err := c.lastRelease()
	if err != nil {
		return err
	}
	if last != nil && last.Info.Status != state.StatusUninstalled && last.Chart != nil && last.Chart.Metadata != nil {
		if of := last.Chart.Metadata.Name + "-" + last.Chart.Metadata.Version; isOriginalChart(of) {
			return original("chart "+of, c.namespace)
		}
	}
	workloads, err := c.all(ctx, &appsv1.DeploymentList{}, client.MatchingLabels{labelPartOf: api.ReleaseName})
	if err != nil {
		return err
	}
	for _, object := range workloads {
		if of := object.GetLabels()[labelChart]; isOriginalChart(of) {
			return original("chart "+of, object.GetNamespace())
		}
		for _, container := range object.(*appsv1.Deployment).Spec.Template.Spec.Containers {
			if object.GetLabels()[labelChart] == "" && strings.Contains(container.Image, "liqotech/") {
				return original("image "+container.Image, object.GetNamespace())
			}
		}
		if at := object.GetNamespace(); object.GetName() == api.ControllerManagerName && at != c.namespace {
			//lint:ignore ST1005 it begins with a name, and is printed to the user as it is
			return fmt.Errorf("Liqo is in namespace %s; give --namespace %s", at, at)
		}
	}
	return nil
}

// chartCRDs returns the CustomResourceDefinitions of a chart, or those of liqoctl if it has none.
func chartCRDs(of *chart.Chart) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var out []*apiextensionsv1.CustomResourceDefinition
	for _, file := range of.CRDObjects() {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(file.File.Data, crd); err != nil {
			return nil, fmt.Errorf("parse %s of the chart: %w", file.Filename, err)
		}
		out = append(out, crd)
	}
	if len(out) == 0 {
		return deploy.CRDs()
	}
	return out, nil
}

// checkKinds refuses to replace kinds by older ones.
func (c *cluster) checkKinds(ctx context.Context, of *chart.Chart) error {
	crds, err := chartCRDs(of)
	if err != nil {
		return err
	}
	newer, err := kinds.Newer(ctx, c.WithWatch, c.namespace, of.Metadata.AppVersion, crds)
	if newer != "" {
		return fmt.Errorf("%s; install the version of the cluster's kinds or a newer one, or use --skip-validation to "+
			"lose this", newer)
	}
	return err
}

// wrongValue matches the validator's line about one value: its path and what is wrong.
var wrongValue = regexp.MustCompile(`(?m)^ *- at '([^']*)': (.*)$`)

// unknownKeys matches what is wrong with a map that has keys that the schema does not know.
var unknownKeys = regexp.MustCompile(`^additional properties ('.*') not allowed$`)

// valuesError names the wrong values by the keys that the user sets, and for an unknown key the
// nearest one that the chart knows.
func valuesError(of *chart.Chart, err error) error {
	var wrong []string
	for _, found := range wrongValue.FindAllStringSubmatch(err.Error(), -1) {
		key := strings.ReplaceAll(strings.TrimPrefix(found[1], "/"), "/", ".")
		if unknown := unknownKeys.FindStringSubmatch(found[2]); unknown != nil {
			for _, name := range strings.Split(strings.Trim(unknown[1], "'"), "', '") {
				path := strings.TrimPrefix(key+"."+name, ".")
				wrong = append(wrong,
					fmt.Sprintf("there is no %s, the nearest is %s", path, nearest(path, schemaKeys(of.Schema))))
			}
			continue
		}
		wrong = append(wrong, strings.TrimPrefix(key+": "+found[2], ": "))
	}
	slices.Sort(wrong)
	if len(wrong) == 0 {
		return fmt.Errorf("chart values: %w", err)
	}
	return fmt.Errorf("wrong chart values: %s; correct --set, --set-string or --values", strings.Join(wrong, "; "))
}

// schemaKeys lists the keys that a JSON schema of values knows, as sorted dotted paths.
func schemaKeys(schema []byte) []string {
	root, keys := map[string]any{}, map[string]bool{}
	if err := json.Unmarshal(schema, &root); err != nil {
		return nil
	}
	var walk func(prefix string, at any)
	walk = func(prefix string, at any) {
		node, _ := at.(map[string]any)
		if ref, ok := node["$ref"].(string); ok {
			target, _, _ := unstructured.NestedFieldNoCopy(root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
			walk(prefix, target)
		}
		for _, choice := range []string{"allOf", "anyOf", "oneOf"} {
			options, _ := node[choice].([]any)
			for _, option := range options {
				walk(prefix, option)
			}
		}
		properties, _ := node["properties"].(map[string]any)
		for name, below := range properties {
			keys[prefix+name] = true
			walk(prefix+name+".", below)
		}
	}
	walk("", root)
	return slices.Sorted(maps.Keys(keys))
}

// noImage is the error of an installation whose image cannot be pulled.
type noImage struct{ error }

// pullTimeout is how long a pod may fail to pull its image: the kubelet tries at once and after 10,
// 20 and 40 s.
const pullTimeout = time.Minute

// ofLiqo selects the pods of an installation.
func (c *cluster) ofLiqo() []client.ListOption {
	return []client.ListOption{client.InNamespace(c.namespace), client.MatchingLabels{labelPartOf: api.ReleaseName}}
}

// pods returns the UIDs of the installation's pods.
func (c *cluster) pods(ctx context.Context) (map[types.UID]bool, error) {
	found, err := c.all(ctx, &corev1.PodList{}, c.ofLiqo()...)
	out := map[types.UID]bool{}
	for _, pod := range found {
		out[pod.GetUID()] = true
	}
	return out, err
}

// watchImages calls fail as soon as it is clear that a pod of the installation gets no image. It
// returns when ctx ends. former are pods that do not count: the installation may replace them.
func (c *cluster) watchImages(ctx context.Context, former map[types.UID]bool, fail context.CancelCauseFunc) {
	since := map[types.UID]time.Time{} // when a pod was first seen without an image
	_ = c.follow(ctx, &corev1.PodList{}, func(have await.Objects) bool {
		for _, object := range have.Sorted() {
			pod := object.(*corev1.Pod)
			problem, final := view.ImageProblem(pod)
			if problem == "" || former[pod.UID] {
				continue
			}
			if _, known := since[pod.UID]; !known {
				since[pod.UID] = time.Now()
			}
			if final || time.Since(since[pod.UID]) > pullTimeout {
				fail(noImage{fmt.Errorf("pod %s/%s: %s", pod.Namespace, pod.Name, problem)})
				return true
			}
		}
		return false
	}, c.ofLiqo()...)
}
