// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestEveryFieldOfAPod checks that each field of a pod's spec goes to the provider, or that
// docs/offload.md says why it does not. It fails for a field that a new version of Kubernetes adds.
// A field goes if all its values arrive with one choice of the API server. Booleans have two
// values, so a constant is not taken for the pod's own.
func TestEveryFieldOfAPod(t *testing.T) {
	const section = "### Fields of a pod that stay at home\n"
	page, err := os.ReadFile("../../docs/offload.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), section)
	table, _, _ = strings.Cut(table, "\n##")
	documented := map[string]bool{} // and whether it stays at home
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(table, -1) {
		for _, field := range regexp.MustCompile("`[^`]+`").FindAllString(row[1], -1) {
			documented[strings.Trim(field, "`")] = false
		}
	}

	carried := map[string]bool{} // by path
	for _, server := range []string{"", "remote"} {
		local, arrived := map[string]string{}, map[string]bool{} // by path and value
		for _, yes := range []bool{true, false} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{
				"liqo.io/anti-affinity-preset": "propagate", "liqo.io/api-server-support": server,
			}}}
			(&filler{yes: yes}).fill(reflect.ValueOf(&pod.Spec).Elem())
			shadow := translate.Pod(pod, nil, translate.View{
				Consumer: "rome", Provider: "milan", Namespaces: map[string]string{"shop": "shop-rome"}, System: string(pod.Spec.OS.Name),
			})
			there := leaves(t, shadow.Spec.Pod)
			for leaf, path := range leaves(t, pod.Spec) {
				local[leaf] = path
				arrived[leaf] = arrived[leaf] || there[leaf] != ""
			}
		}
		lost := map[string]bool{}
		for leaf, path := range local {
			lost[path] = lost[path] || !arrived[leaf]
		}
		for path := range lost {
			carried[path] = carried[path] || !lost[path]
		}
	}
	if len(carried) < 800 { // Kubernetes 1.35 has 807
		t.Errorf("only %d fields are filled", len(carried))
	}
	for _, path := range slices.Sorted(maps.Keys(carried)) {
		known := false
		for field := range documented {
			if strings.Contains("."+strings.ReplaceAll(path, "[]", "")+".", "."+field+".") {
				known, documented[field] = true, documented[field] || !carried[path]
			}
		}
		if !carried[path] && !known {
			t.Errorf("%s stays at home: have podSpec push it, or say why in docs/offload.md, %s", path, strings.TrimSpace(section))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(documented)) {
		if !documented[field] {
			t.Errorf("docs/offload.md says that %s stays at home, and it does not", field)
		}
	}
}

// filler fills a value with others that differ from each other, as far as their type lets them.
type filler struct {
	name bool // strings are names in the DNS of home, of namespace shop
	yes  bool
	n    int64
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch at := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*at = *resource.NewQuantity(f.n, resource.DecimalSI)
		return
	case *intstr.IntOrString:
		*at = intstr.FromInt32(int32(f.n))
		return
	case *metav1.Time:
		*at = metav1.Unix(f.n, 0)
		return
	case *metav1.MicroTime:
		*at = metav1.NewMicroTime(time.Unix(f.n, 0))
		return
	case *metav1.FieldsV1:
		at.SetRawBytes(fmt.Appendf(nil, `{"f:%d":{}}`, f.n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("f", f.n))
		if f.name {
			v.SetString(fmt.Sprintf("f%d.shop.svc.cluster.local", f.n))
		}
	case reflect.Bool:
		v.SetBool(f.yes)
	case reflect.Int32, reflect.Int64:
		v.SetInt(f.n)
	case reflect.Uint8:
		v.SetUint(uint64(f.n) % 256)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			f.fill(v.Field(i))
		}
	default:
		panic("no value for " + v.Type().String())
	}
}

// leaves returns the path of each value of an object by path and value. A path names no index and
// no key of a map.
func leaves(t *testing.T, obj any) map[string]string {
	t.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	var content any
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	var visit func(path string, value any)
	visit = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, child := range value {
				if regexp.MustCompile(`^f:?\d+(\.shop\..*)?$`).MatchString(key) { // a map's, which the filler has chosen
					visit(path+"[]", child)
					continue
				}
				visit(strings.TrimPrefix(path+"."+key, "."), child)
			}
		case []any:
			for _, child := range value {
				visit(path+"[]", child)
			}
		default:
			out[fmt.Sprint(path, "=", value)] = path
		}
	}
	visit("", content)
	return out
}

// TestFields sets every field of the kinds that Kubernetes defines. Each is either the same at the
// provider or in the table of docs/offload.md, with the reason. A field that a new version of
// Kubernetes adds fails until it is one of both.
func TestFields(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "all"}
	offered := ""
	v := translate.View{
		Consumer: "rome", Provider: "milan", Namespaces: map[string]string{"shop": "shop-rome"},
		Service: &corev1.Service{}, ProviderNodes: map[string]bool{"milan": true}, StorageClass: &offered,
	}
	service := &corev1.Service{ObjectMeta: meta}
	fill(&service.Spec)
	service.Spec.Type = corev1.ServiceTypeLoadBalancer // else there is no class
	slice := &discoveryv1.EndpointSlice{}
	fill(slice)
	slice.TypeMeta, slice.ObjectMeta = metav1.TypeMeta{}, meta
	shadow, err := translate.EndpointSlice(slice, nil, v)
	if err != nil {
		t.Fatal(err)
	}
	ingress := &networkingv1.Ingress{ObjectMeta: meta}
	fill(&ingress.Spec)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	claim.Annotations = map[string]string{"volume.kubernetes.io/selected-node": "milan"}
	fill(&claim.Spec)
	config := &corev1.ConfigMap{}
	fill(config)
	config.TypeMeta, config.ObjectMeta = metav1.TypeMeta{}, meta
	secret := &corev1.Secret{}
	fill(secret)
	secret.TypeMeta, secret.ObjectMeta, secret.StringData = metav1.TypeMeta{}, meta, nil // API servers put it into data

	there, err := translate.Service(service, nil, v)
	if err != nil {
		t.Fatal(err)
	}
	routed, err := translate.Ingress(ingress, nil, v)
	if err != nil {
		t.Fatal(err)
	}
	left := leftOut(t)
	for kind, c := range map[string]struct{ local, remote any }{
		"Service":               {service.Spec, there.Spec},
		"EndpointSlice":         {slice, shadow.Spec.Template},
		"Ingress":               {ingress.Spec, routed.Spec},
		"PersistentVolumeClaim": {claim.Spec, translate.Claim(claim, nil, v).Spec},
		"ConfigMap":             {config, translate.ConfigMap(config, nil, v)},
		"Secret":                {secret, translate.Secret(secret, nil, v)},
	} {
		remote, named := fieldsOf(t, c.remote), map[string]bool{}
		for field, value := range fieldsOf(t, c.local) {
			i := slices.IndexFunc(left[kind], func(row string) bool { return strings.HasPrefix(field+".", row+".") })
			switch carried := remote[field] == value; {
			case i < 0 && !carried:
				t.Errorf("%s: field %s is neither carried nor in the table", kind, field)
			case i >= 0 && carried:
				t.Errorf("%s: field %s is in the table and carried", kind, field)
			case i >= 0:
				named[left[kind][i]] = true
			}
		}
		for _, row := range left[kind] {
			if !named[row] {
				t.Errorf("%s: there is no field %s that is left out", kind, row)
			}
		}
	}
}

// leftOut are the fields in the table of docs/offload.md, by kind.
func leftOut(t *testing.T) map[string][]string {
	text, err := os.ReadFile("../../docs/offload.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "| kind | fields that are not reflected | because |\n|---|---|---|\n")
	if !found {
		t.Fatal("docs/offload.md has no table of the fields that are not reflected")
	}
	out, code := map[string][]string{}, regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		columns := strings.Split(line, "|")
		if len(columns) != 5 {
			break
		}
		for _, field := range code.FindAllStringSubmatch(columns[2], -1) {
			kind := strings.TrimSpace(columns[1])
			out[kind] = append(out[kind], field[1])
		}
	}
	return out
}

// fill sets every field below a pointer to a value of its own.
func fill(pointer any) { (&filler{yes: true}).fill(reflect.ValueOf(pointer).Elem()) }

// fieldsOf are the values in the JSON of an object but for its metadata and status, by their path without indices.
func fieldsOf(t *testing.T, object any) map[string]string {
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	out, all := map[string]string{}, map[string]any{}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	delete(all, "metadata")
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, each := range value {
				walk(strings.TrimPrefix(path+"."+key, "."), each)
			}
		case []any:
			for _, each := range value {
				walk(path, each)
			}
		default:
			out[path] = fmt.Sprint(value)
		}
	}
	walk("", all)
	return out
}
