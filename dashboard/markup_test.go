// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/view"
)

const (
	// plain is more than one word, as planted: commands with such an argument are left out.
	plain   = "PLANTED text"
	planted = `PLANTED<script>alert(1)</script>"'><img src=x onerror=alert(1)>` + "`{{.}}\u202e\x00"
	// signs are the characters that make elements and attributes.
	signs = "<>\"'"
)

// addresses match all addresses of a page.
var addresses = regexp.MustCompile(`(?:href|src)="([^"]*)"`)

// drawn returns all pages of a snapshot.
func drawn(t *testing.T, s *view.Snapshot) string {
	t.Helper()
	paths := []string{"/", "/workloads", "/events"}
	for _, f := range s.ForeignClusters.Items {
		paths = append(paths, "/peers/"+f.Spec.ClusterID)
	}
	var out strings.Builder
	for _, path := range paths {
		what, ok := find(s, path)
		if !ok {
			t.Fatalf("no page %q", path)
		}
		text, err := draw("page", what)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(text)
	}
	return out.String()
}

// texts calls do with each text of a value that can be set: of fields, lists, maps and what pointers lead to. With
// grow, it makes nil pointers and empty lists and maps have something, to a depth.
func texts(v reflect.Value, grow int, do func(get func() string, set func(string))) {
	switch v.Interface().(type) {
	case metav1.Time, metav1.MicroTime, resource.Quantity:
		return
	}
	switch v.Kind() {
	case reflect.String:
		do(v.String, v.SetString)
	case reflect.Pointer:
		if v.IsNil() && grow > 0 {
			v.Set(reflect.New(v.Type().Elem()))
		}
		if !v.IsNil() {
			texts(v.Elem(), grow-1, do)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				texts(v.Field(i), grow-1, do)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 && grow > 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			texts(v.Index(i), grow-1, do)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			texts(value, grow-1, func(get func() string, set func(string)) {
				do(get, func(text string) { set(text); v.SetMapIndex(key, value) })
			})
		}
	}
}

// check compares pages with a planted text to those with a plain one.
func check(t *testing.T, where, plainPages, plantedPages string) {
	t.Helper()
	for _, sign := range signs {
		if want, got := strings.Count(plainPages, string(sign)), strings.Count(plantedPages, string(sign)); want != got {
			t.Errorf("%s: %d times %q instead of %d", where, got, sign, want)
		}
	}
	for _, address := range addresses.FindAllStringSubmatch(plantedPages, -1) {
		if !strings.HasPrefix(address[1], "/") && !strings.HasPrefix(address[1], "#") && address[1] != "data:," {
			t.Errorf("%s: address %q", where, address[1])
		}
	}
	if strings.ContainsAny(plantedPages, "\u202e\x00") {
		t.Errorf("%s: an invisible character is shown as it is", where)
	}
}

// TestAttackDashboardMarkup: a peer writes markup, quotes, template actions and invisible characters into any text of
// any object.
//
// Outcome: the dashboard shows them as text: no page gets an element, an attribute or an address of them.
func TestAttackDashboardMarkup(t *testing.T) {
	s, tried, shown := recorded(t), 0, 0
	for _, list := range s.Lists() {
		texts(reflect.ValueOf(list).Elem(), 0, func(get func() string, set func(string)) {
			was := get()
			set(planted)
			if after := drawn(t, s); strings.Contains(after, plain) || strings.Contains(after, "alert") {
				set(plain)
				check(t, view.KindOf(list)+" "+was, drawn(t, s), after)
				shown++
			}
			set(was)
			tried++
		})
	}
	if tried < 900 || shown < 120 {
		t.Errorf("tried only %d texts, of which %d are shown", tried, shown)
	}
}

// TestAttackDashboardEverywhere: a peer writes markup into all texts of an object at once, also into those that Liqo
// leaves empty.
//
// Outcome: the dashboard shows them as text, and does not fail.
func TestAttackDashboardEverywhere(t *testing.T) {
	all := func(text string) string {
		s := recorded(t)
		for _, list := range s.Lists() {
			texts(reflect.ValueOf(list).Elem(), 10, func(get func() string, set func(string)) {
				if get() == "" || strings.Contains(get(), " ") {
					set(text)
				}
			})
		}
		s.Hidden, s.Stale, s.ClusterID = map[string]string{"Secret": text}, text, text
		return drawn(t, s)
	}
	before := all(plain)
	check(t, "all texts", before, all(planted))
	if strings.Count(before, plain) < 60 {
		t.Errorf("only %d texts are shown", strings.Count(before, plain))
	}
}

// FuzzText: no text that a peer can write changes the elements of a page.
func FuzzText(f *testing.F) {
	f.Add(planted)
	f.Add("javascript:alert(1)")
	f.Add("\xff</title>")
	s, err := Demo()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		with := func(text string) string {
			f := &s.ForeignClusters.Items[0]
			f.Spec.ClusterID, f.Status.APIServerURL = text, text
			f.Status.Conditions[0].Message, f.Status.Modules.Networking.Conditions[0].Message = text, text
			s.Events.Items[0].Message, s.Offloadings.Items[0].Status.RemoteNamespaceName = text, text
			return drawn(t, s)
		}
		// An empty one leaves lines out, two peers have one page.
		if !slices.Contains([]string{"", "naples", "turin", "venice"}, text) {
			check(t, text, with(plain), with(text))
		}
	})
}
