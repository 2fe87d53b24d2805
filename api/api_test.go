// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

var update = flag.Bool("update", false, "write the expected texts anew")

// TestMissionManifests applies every manifest of the user's documents. The API server must
// take it and lose nothing of it, and the Go types must know all of its fields.
func TestMissionManifests(t *testing.T) {
	t.Parallel()
	c := newClient(t, apitest.Start(t).Config)
	for _, file := range glob(t, "testdata/mission/*.yaml") {
		t.Run(name(file), func(t *testing.T) {
			for _, want := range objects(t, read(t, file)) {
				ensureNamespace(t, c, want.GetNamespace())
				got := want.DeepCopy()
				if err := apply(t, c, got); err != nil {
					t.Fatal(err)
				}
				delete(want.Object, "status")
				if missing := lost("", want.Object, got.Object); len(missing) > 0 {
					t.Errorf("lost: %s", strings.Join(missing, ", "))
				}
				checkGoType(t, got)
			}
		})
	}
}

// TestRefusals tells what the API server refuses and what users read. All files of a story
// are applied in order (status*.yaml to the status); the last one is refused.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := newClient(t, apitest.Start(t).Config)
	for _, file := range glob(t, "testdata/refusals/*.txtar") {
		t.Run(name(file), func(t *testing.T) {
			story := txtar.Parse(read(t, file))
			ensureNamespace(t, c, name(file))
			last := len(story.Files) - 2
			for i, f := range story.Files[:last+1] {
				err := applyStep(t, c, name(file), f)
				if i < last && err != nil {
					t.Fatalf("%s: %v", f.Name, err)
				}
				if i == last {
					golden(t, file, story, causes(t, err))
				}
			}
		})
	}
}

// TestBoundedNodeFacts: the API server takes whatever a node or a peer tells once it is bounded.
func TestBoundedNodeFacts(t *testing.T) {
	t.Parallel()
	c := newClient(t, apitest.Start(t).Config)
	long := strings.Repeat("é", 2000)
	odd := &authv1beta1.NodeFacts{KernelVersion: long, OSImage: "Debian\n", DeclaredFeatures: slices.Repeat([]string{long}, 65)}
	for i := range 20 {
		odd.Architectures = append(odd.Architectures, "not one", fmt.Sprintf("x86_%d", i))
	}
	for name, facts := range map[string]*authv1beta1.NodeFacts{"bounded": odd.Bounded(), "odd": odd} {
		vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		vn.Spec.ClusterID, vn.Spec.Node = "rome", facts
		if err := c.Create(t.Context(), vn); (err == nil) != (name == "bounded") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPrinterColumns tells what kubectl prints for each kind. A line is a column: its name,
// type, priority (0 = shown always, else with -o wide) and its value.
func TestPrinterColumns(t *testing.T) {
	t.Parallel()
	config := apitest.Start(t).Config
	c := newClient(t, config)
	const file = "testdata/printer-columns.txtar"
	story := txtar.Parse(read(t, file))
	for _, obj := range objects(t, story.Files[0].Data) {
		status := obj.DeepCopy()
		delete(obj.Object, "status")
		if err := apply(t, c, obj); err != nil {
			t.Fatal(err)
		}
		if status.Object["status"] != nil {
			if err := applyStatus(t, c, status); err != nil {
				t.Fatal(err)
			}
		}
	}
	golden(t, file, story, columns(t, config, c))
}

func TestValidateClusterID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]bool{
		"a": true, "cl-01": true, "0": true, strings.Repeat("a", 51): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a\n": false, strings.Repeat("a", 52): false,
	} {
		if err := api.ValidateClusterID(id); (err == nil) != want {
			t.Errorf("%q: got %v, want valid = %v", id, err, want)
		}
	}
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	s := scheme.New()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}

func apply(t *testing.T, c client.Client, obj *unstructured.Unstructured) error {
	t.Helper()
	return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("test"), client.ForceOwnership)
}

func applyStatus(t *testing.T, c client.Client, obj *unstructured.Unstructured) error {
	t.Helper()
	return c.Status().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(obj), client.FieldOwner("test"), client.ForceOwnership)
}

func applyStep(t *testing.T, c client.Client, namespace string, f txtar.File) error {
	t.Helper()
	var errs []error
	for _, obj := range objects(t, f.Data) {
		if obj.GetNamespace() != "" {
			obj.SetNamespace(namespace)
		}
		if strings.HasPrefix(f.Name, "status") {
			errs = append(errs, applyStatus(t, c, obj))
			continue
		}
		errs = append(errs, apply(t, c, obj))
	}
	return errors.Join(errs...)
}

func ensureNamespace(t *testing.T, c client.Client, name string) {
	t.Helper()
	if name == "" {
		return
	}
	err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
}

// causes prints the causes of a refusal, one a line, as "field: message"; the message of
// the whole when there are none.
func causes(t *testing.T, err error) string {
	t.Helper()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		t.Fatalf("got %v, want a refusal", err)
	}
	if status.Status().Details == nil {
		return status.Status().Message + "\n"
	}
	var lines []string
	for _, cause := range status.Status().Details.Causes {
		lines = append(lines, fmt.Sprintf("%s: %s\n", cause.Field, cause.Message))
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "")
}

// lost lists the paths of want that got lacks. What is null is nothing to lose.
func lost(path string, want, got any) []string {
	switch want := want.(type) {
	case nil:
		return nil
	case map[string]any:
		have, _ := got.(map[string]any)
		var missing []string
		for k, v := range want {
			missing = append(missing, lost(path+"."+k, v, have[k])...)
		}
		return missing
	default:
		// As text: a quantity may be written 20 or "20".
		if fmt.Sprint(want) != fmt.Sprint(got) {
			return []string{path}
		}
		return nil
	}
}

// checkGoType decodes an object strictly into its Go type and back.
func checkGoType(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	typed, err := scheme.New().New(obj.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, typed, true); err != nil {
		t.Errorf("decode into %T: %v", typed, err)
	}
	back, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		t.Fatal(err)
	}
	if missing := lost("", obj.Object["spec"], back["spec"]); len(missing) > 0 {
		t.Errorf("%T lost: %s", typed, strings.Join(missing, ", "))
	}
	if _, ok := obj.Object["status"]; !ok && back["status"] != nil && strings.HasSuffix(obj.GroupVersionKind().Group, "liqo.io") {
		t.Errorf("%T made a status: %v", typed, back["status"])
	}
}

// columns prints what the API server offers for each of our kinds as a table.
func columns(t *testing.T, config *rest.Config, c client.Client) string {
	t.Helper()
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(t.Context(), crds); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(crds.Items, func(a, b apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Name, b.Name) })
	out := &strings.Builder{}
	for _, crd := range crds.Items {
		fmt.Fprintf(out, "%s\n", crd.Name)
		table := getTable(t, config, crd.Spec.Group, crd.Spec.Versions[0].Name, crd.Spec.Names.Plural)
		for i, column := range table.ColumnDefinitions {
			fmt.Fprintf(out, "\t%q %s %d = %s\n", column.Name, column.Type, column.Priority, cell(t, table, i))
		}
	}
	return out.String()
}

func cell(t *testing.T, table *metav1.Table, column int) string {
	t.Helper()
	if len(table.Rows) != 1 {
		return "no single object"
	}
	// Both the built-in and the declared column of the age.
	if strings.HasPrefix(table.ColumnDefinitions[column].Name, "Age") {
		return "(age)"
	}
	return fmt.Sprint(table.Rows[0].Cells[column])
}

func getTable(t *testing.T, config *rest.Config, group, version, plural string) *metav1.Table {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("%s/apis/%s/%s/%s", config.Host, group, version, plural)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	table := &metav1.Table{}
	if err := json.NewDecoder(resp.Body).Decode(table); err != nil {
		t.Fatal(err)
	}
	return table
}

// golden compares the last file of a story, or rewrites it with -update.
func golden(t *testing.T, file string, story *txtar.Archive, got string) {
	t.Helper()
	want := &story.Files[len(story.Files)-1]
	if *update {
		want.Data = []byte(got)
		if err := os.WriteFile(file, txtar.Format(story), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := gocmp.Diff(string(want.Data), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", want.Name, diff)
	}
}

func objects(t *testing.T, data []byte) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for dec := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		obj := &unstructured.Unstructured{}
		err := dec.Decode(obj)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, obj)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s (%v)", pattern, err)
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// name is the base name of a file without its extension.
func name(file string) string {
	return strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
}

// TestNamesOfGatewayServicesAreLegal tries gateways with names of every length that labels take:
// their Services have legal names, and no two of them the same.
func TestNamesOfGatewayServicesAreLegal(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	for length := 1; length <= validation.LabelValueMaxLength; length++ {
		for _, name := range []string{
			strings.Repeat("a", length), strings.Repeat("7", length), strings.Repeat("a.-", 21)[:length-1] + "b",
		} {
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				continue
			}
			for want, got := range map[string]string{
				"gw-" + name: api.GatewayServiceName(name), name + "-metrics": api.GatewayMetricsName(name),
			} {
				legal := len(validation.IsDNS1035Label(want)) == 0
				if errs := validation.IsDNS1035Label(got); len(errs) > 0 || legal && got != want {
					t.Errorf("gateway %s: %s for %s: %s", name, got, want, strings.Join(errs, "; "))
				}
				if other, is := taken[got]; is && other != want {
					t.Errorf("%s and %s are both called %s", other, want, got)
				}
				taken[got] = want
			}
		}
	}
}

// TestPeeringUserLabelsAreLegal tries cluster IDs of all lengths: each has a label of its own.
func TestPeeringUserLabelsAreLegal(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	for length := 1; api.ValidateClusterID(strings.Repeat("a", length)) == nil; length++ {
		for _, id := range []string{strings.Repeat("a", length), strings.Repeat("a", length-1) + "b"} {
			label := api.PeeringUserLabel(id)
			if errs := validation.IsValidLabelValue(label); len(errs) > 0 || taken[label] != "" {
				t.Errorf("%s: label %s of %s: %s", id, label, taken[label], strings.Join(errs, "; "))
			}
			taken[label] = id
		}
	}
}
