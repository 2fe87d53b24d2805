// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/reflection/translate"
)

// given is what one file of testdata says. The sections "view", "home", "remote" and "report" are
// given; the others are what comes out: "pushed" (the remote object), "tokens" (the Secret of a
// pod's tokens), "asked" (the tokens home is asked for) and "pulled" (the home pod or claim).
// "none" stands for no object, "unchanged" for the same.
type given struct {
	view                 translate.View
	home, remote, report runtime.Object
}

func TestStories(t *testing.T) { story.Each(t, "testdata/*.txtar", tell) }

func tell(t *testing.T, file *story.Story) {
	s := read(t, file)
	expects := false
	for _, section := range file.Files {
		switch section.Name {
		case "pushed":
			file.Expect(t, section.Name, string(s.pushed(t)))
		case "tokens":
			tokens := orNil(translate.Tokens(as[*corev1.Pod](s.home), as[*corev1.Secret](s.remote), s.view))
			file.Expect(t, section.Name, string(show(t, tokens, s.remote)))
		case "asked":
			text, err := yaml.Marshal(translate.TokenSources(as[*corev1.Pod](s.home), s.view))
			if err != nil {
				t.Fatal(err)
			}
			file.Expect(t, section.Name, string(text))
		case "pulled":
			file.Expect(t, section.Name, string(show(t, s.pull(), s.home)))
		case "view", "home", "remote", "report":
			continue
		default:
			t.Errorf("nobody reads the section %q", section.Name)
		}
		expects = true
	}
	if !expects {
		t.Error("the story expects nothing")
	}
}

func read(t *testing.T, file *story.Story) given {
	var s given
	decoder := serializer.NewCodecFactory(scheme.New()).UniversalDeserializer()
	objects := map[string]*runtime.Object{"home": &s.home, "remote": &s.remote, "report": &s.report}
	for _, section := range file.Files {
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
func (s given) pushed(t *testing.T) []byte {
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

func (s given) push(remote runtime.Object) (runtime.Object, error) {
	switch home := s.home.(type) {
	case *corev1.Pod:
		return orNil(translate.Pod(home, as[*offv1beta1.ShadowPod](remote), s.view)), nil
	case *corev1.Service:
		out, err := translate.Service(home, as[*corev1.Service](remote), s.view)
		return orNil(out), err
	case *corev1.ConfigMap:
		return orNil(translate.ConfigMap(home, as[*corev1.ConfigMap](remote), s.view)), nil
	case *corev1.Secret:
		return orNil(translate.Secret(home, as[*corev1.Secret](remote), s.view)), nil
	case *networkingv1.Ingress:
		out, err := translate.Ingress(home, as[*networkingv1.Ingress](remote), s.view)
		return orNil(out), err
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

func (s given) pull() runtime.Object {
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
