// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/reflection/translate"
)

var update = flag.Bool("update", false, "write what came out into the stories")

// story is one file of testdata. The sections "view", "home", "remote" and "report" are given;
// the others are what comes out: "pushed" (the remote object), "tokens" (the Secret of a pod's
// tokens) and "pulled" (the home pod or claim). "none" stands for no object, "unchanged" for the same.
type story struct {
	view                 translate.View
	home, remote, report runtime.Object
}

func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { tell(t, file) })
	}
}

func tell(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := read(t, archive)
	for i := range archive.Files {
		section := &archive.Files[i]
		var got []byte
		switch section.Name {
		case "pushed":
			got = s.pushed(t)
		case "tokens":
			got = show(t, orNil(translate.Tokens(as[*corev1.Pod](s.home), as[*corev1.Secret](s.remote), s.view)), s.remote)
		case "pulled":
			got = show(t, s.pull(), s.home)
		default:
			continue
		}
		if *update {
			section.Data = got
		} else if diff := cmp.Diff(string(section.Data), string(got)); diff != "" {
			t.Errorf("%s:\n%s", section.Name, diff)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, archive *txtar.Archive) story {
	var s story
	decoder := serializer.NewCodecFactory(scheme.New()).UniversalDeserializer()
	objects := map[string]*runtime.Object{"home": &s.home, "remote": &s.remote, "report": &s.report}
	for _, section := range archive.Files {
		if section.Name == "view" {
			if err := yaml.UnmarshalStrict(section.Data, &s.view); err != nil {
				t.Fatalf("view: %v", err)
			}
		}
		if into := objects[section.Name]; into != nil {
			obj, _, err := decoder.Decode(section.Data, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v", section.Name, err)
			}
			*into = obj
		}
	}
	return s
}

// pushed translates, and checks that translating again, from what came out, changes nothing.
func (s story) pushed(t *testing.T) []byte {
	out, err := s.push(s.remote)
	var complaint []byte
	if err != nil {
		complaint = []byte("error: " + err.Error() + "\n")
	}
	if out == nil && err != nil {
		return complaint
	}
	if out != nil {
		again, twice := s.push(out)
		if fmt.Sprint(twice) != fmt.Sprint(err) || !equality.Semantic.DeepEqual(again, out) {
			t.Errorf("pushed twice (%v):\n%s", twice, cmp.Diff(out, again))
		}
	}
	return append(complaint, show(t, out, s.remote)...)
}

func (s story) push(remote runtime.Object) (runtime.Object, error) {
	switch home := s.home.(type) {
	case *corev1.Pod:
		return orNil(translate.Pod(home, as[*offv1beta1.ShadowPod](remote), s.view)), nil
	case *corev1.Service:
		return orNil(translate.Service(home, as[*corev1.Service](remote), s.view)), nil
	case *corev1.ConfigMap:
		return orNil(translate.ConfigMap(home, as[*corev1.ConfigMap](remote), s.view)), nil
	case *corev1.Secret:
		return orNil(translate.Secret(home, as[*corev1.Secret](remote), s.view)), nil
	case *networkingv1.Ingress:
		return orNil(translate.Ingress(home, as[*networkingv1.Ingress](remote), s.view)), nil
	case *corev1.PersistentVolumeClaim:
		return orNil(translate.Claim(home, as[*corev1.PersistentVolumeClaim](remote), s.view)), nil
	case *corev1.Event:
		return orNil(translate.Event(home, as[*corev1.Event](remote), s.view)), nil
	case *discoveryv1.EndpointSlice:
		out, err := translate.EndpointSlice(home, as[*offv1beta1.ShadowEndpointSlice](remote), s.view)
		return orNil(out), err
	}
	return nil, nil
}

func (s story) pull() runtime.Object {
	if claim, ok := s.home.(*corev1.PersistentVolumeClaim); ok {
		return orNil(translate.ClaimStatus(claim, as[*corev1.PersistentVolumeClaim](s.remote), s.view))
	}
	return translate.PodStatus(as[*corev1.Pod](s.home), as[*offv1beta1.ShadowPod](s.remote), as[*corev1.Pod](s.report), s.view)
}

func show(t *testing.T, out, before runtime.Object) []byte {
	t.Helper()
	switch {
	case out == nil:
		return []byte("none\n")
	case before != nil && equality.Semantic.DeepEqual(out, before):
		return []byte("unchanged\n")
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func as[T runtime.Object](obj runtime.Object) T {
	typed, _ := obj.(T)
	return typed
}

func orNil[T runtime.Object](obj T) runtime.Object {
	var none T
	if runtime.Object(obj) == runtime.Object(none) {
		return nil
	}
	return obj
}
