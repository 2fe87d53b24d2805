// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestEveryNameInDNS fills each string of the kinds with specs with a name of home's DNS. Fields that are names are
// translated as their namespace is. Of other fields that are called like one, the test says why they stay.
func TestEveryNameInDNS(t *testing.T) {
	t.Parallel()
	translated := []string{"EndpointSlice endpoints[].addresses[]", "Ingress rules[].host", "Ingress tls[].hosts[]", "Pod dnsConfig.searches[]", "Service externalName"}
	stay := map[string]*regexp.Regexp{
		"the kubelet asks there, by the DNS of its node":       regexp.MustCompile(`(Probe|lifecycle)\.`),
		"nodes mount it, and data of home's claims is at home": regexp.MustCompile(`^Pod volumes`),
		"it is one label, or a name that the pod gives":        regexp.MustCompile(`^Pod (hostname|hostnameOverride|subdomain|hostAliases.*)$|^EndpointSlice endpoints\[\].hostname$`),
		"it is no name in DNS":                                 regexp.MustCompile(`Profile$|hostIP$|nameservers|dnsConfig\.options|dnsPolicy|targetContainerName`),
	}
	sounds := regexp.MustCompile(`(?i)host|domain|server|dns|search|target|namespace|endpoint|url`)

	v := translate.View{Consumer: "rome", Provider: "milan", Namespaces: map[string]string{"shop": "shop-rome"}}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	named := func(spec any) { (&filler{name: true}).fill(reflect.ValueOf(spec).Elem()) }
	pod := &corev1.Pod{ObjectMeta: meta}
	named(&pod.Spec)
	v.System = string(pod.Spec.OS.Name)
	service := &corev1.Service{ObjectMeta: meta}
	named(&service.Spec)
	ingress := &networkingv1.Ingress{ObjectMeta: meta}
	named(&ingress.Spec)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: meta}
	for _, part := range []any{&slice.Endpoints, &slice.Ports} {
		named(part)
	}
	there, err := translate.Service(service, nil, v)
	if err != nil {
		t.Fatal(err)
	}
	routed, err := translate.Ingress(ingress, nil, v)
	if err != nil {
		t.Fatal(err)
	}
	v.Service = &corev1.Service{}
	shadow, err := translate.EndpointSlice(slice, nil, v)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for kind, spec := range map[string]any{
		"Pod": translate.Pod(pod, nil, v).Spec.Pod, "Service": there.Spec,
		"Ingress": routed.Spec, "EndpointSlice": shadow.Spec.Template,
	} {
		for leaf, path := range leaves(t, spec) {
			isName := sounds.MatchString(path)
			path = kind + " " + strings.TrimPrefix(path, ".")
			switch {
			case strings.Contains(leaf, ".shop-rome.svc.cluster.local"):
				got = append(got, path)
			case !strings.Contains(leaf, ".shop.svc.cluster.local") || !isName:
			case !slices.ContainsFunc(slices.Collect(maps.Values(stay)), func(r *regexp.Regexp) bool { return r.MatchString(path) }):
				t.Errorf("%s stays; translate it, or say here why not", path)
			}
		}
	}
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, translated) {
		t.Errorf("translated are %q, want %q", got, translated)
	}
}

// TestNamesInDNS: names of home's DNS in an offloaded namespace are those of the provider. The user is told of one in
// another namespace, and of one that would be too long.
func TestNamesInDNS(t *testing.T) {
	t.Parallel()
	v := translate.View{Provider: "milan", Namespaces: map[string]string{"shop": "shop-rome", "svc": "svc-rome"}}
	v.APIServer.ClusterDomain = "home.example"
	long := strings.Repeat(strings.Repeat("a", 59)+".", 4)[:232]
	for name, want := range map[string]string{
		long[6:] + ".shop.svc.home.example": long[6:] + ".shop-rome.svc.home.example", // 253 characters
		"db.shop.svc.home.example":          "db.shop-rome.svc.home.example",
		"db-0.db.shop.svc.home.example":     "db-0.db.shop-rome.svc.home.example",
		"db.shop.svc.home.example.":         "db.shop-rome.svc.home.example.",
		"svc.svc.svc.home.example":          "svc.svc-rome.svc.home.example",
		"shop.svc.home.example":             "shop-rome.svc.home.example",
		"db.shop.svc.cluster.local":         "db.shop.svc.cluster.local", // not the domain of home
		"db.example.com":                    "db.example.com",
		"svc.home.example":                  "svc.home.example",
		"":                                  "",
	} {
		got, err := translate.Service(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.ServiceSpec{ExternalName: name},
		}, nil, v)
		if err != nil || got.Spec.ExternalName != want {
			t.Errorf("%q is %q, want %q (%v)", name, got.Spec.ExternalName, want, err)
		}
	}
	v.Unanswered = map[string]bool{"soon": true}
	for name, complaint := range map[string]string{
		long[6:] + "b.shop.svc.home.example": "would have 254 characters",
		"db.others.svc.home.example":         `"others", which is not offloaded`,
		long + ".shop.svc.home.example":      "would have 259 characters",
		"db.soon.svc.home.example":           "",
		"db.shop-rome.svc.home.example":      "",
		"db.shop-milan.svc.home.example":     `"shop-milan", which is not offloaded`,
	} {
		got, err := translate.Service(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.ServiceSpec{ExternalName: name},
		}, nil, v)
		if got.Spec.ExternalName != name || (err != nil) != (complaint != "") || err != nil && !strings.Contains(err.Error(), complaint) {
			t.Errorf("%q is %q: %v, want %q", name, got.Spec.ExternalName, err, complaint)
		}
	}
}

// TestHostNameOfAPod: a full name that the kernel takes at home, and not at the provider, stays that of home.
func TestHostNameOfAPod(t *testing.T) {
	t.Parallel()
	v := translate.View{Namespaces: map[string]string{"shop": "shop-of-a-cluster-with-a-really-long-name"}}
	for name, want := range map[string]*string{
		"db-0":                  new("db-0.db.shop.svc.cluster.local"), // 67 characters there
		"a":                     nil,                                   // 64
		strings.Repeat("a", 40): nil,                                   // too long in both
	} {
		home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		home.Spec.Subdomain, home.Spec.SetHostnameAsFQDN = "db", new(true)
		out := translate.Pod(home, nil, v).Spec.Pod
		if (out.HostnameOverride == nil) != (want == nil) || want != nil && *out.HostnameOverride != *want || (out.SetHostnameAsFQDN == nil) != (want != nil) {
			t.Errorf("%s: %v %v", name, out.HostnameOverride, out.SetHostnameAsFQDN)
		}
	}
}
