// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	cmpx "cmp"
	"context"
	"crypto"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestInteropProvider runs our provider on the objects of a consumer that runs the original. None
// of them is refused, deleted or changed. Our responses equal those that worked when the clusters
// were dumped, also when they are created again.
func TestInteropProvider(t *testing.T) {
	t.Parallel()
	ours, original := interop(t, "our-provider-beside-it", "original-as-consumer")
	settled(t, []*installation{ours, original})
	unchanged(t, ours, original)
	for _, o := range ours.objects {
		ours.unanswer(t, &o)
	}
	for _, o := range ours.objects {
		ours.answersAgain(t, &o)
	}
}

// TestInteropConsumer runs our consumer, with its virtual kubelet, against a provider that runs the
// original. None of the provider's objects is changed, and what we derive from them is the same as
// when the clusters were dumped.
func TestInteropConsumer(t *testing.T) {
	t.Parallel()
	ours, original := interop(t, "our-consumer-beside-it", "original-as-provider")
	kubelet := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-turin", Name: "vk-turin"}}
	consumer{ours}.until(t, "the virtual kubelet has a Deployment", kubelet, func() bool { return true })
	kubelet.Status = appsv1.DeploymentStatus{ObservedGeneration: kubelet.Generation, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	if err := ours.Status().Update(t.Context(), kubelet); err != nil {
		t.Fatal(err)
	}
	ours.keepNode(t, kubelet.Spec.Template.Spec.Containers[0].Args[1:])
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "turin"}}
	consumer{ours}.until(t, "the virtual kubelet has its node", node, func() bool { return len(node.Status.Conditions) > 0 })
	settled(t, []*installation{ours, original})
	unchanged(t, ours, original)
}

// interop runs our controllers on one of two dumped clusters of testdata/interop, whose peer ran
// the original. Secrets were not dumped: our key, and so our certificates, are those of another
// recording. Gateways get new keys, and what depends on these is not compared.
func interop(t *testing.T, oursName, originalName string) (ours, original *installation) {
	t.Helper()
	ours, original = install(t, "milan", slices.Concat(chart(t), dumped(t, oursName))), install(t, "turin", dumped(t, originalName))
	ours.served, original.served = "https://172.31.20.10:6443", "https://172.31.30.10:6443"
	ours.authority("liqo-tenant-turin")
	original.authority("liqo-tenant-milan")
	r := redirect{t: t, clusters: []*installation{ours, original}, signed: map[string]string{}, lost: map[string]crypto.Signer{}}
	key, err := identityplan.ParsePrivateKey(ours.decoded(t, "Secret", "data", api.PrivateKeyField))
	if err != nil {
		t.Fatal(err)
	}
	if text := ours.decoded(t, "Identity", "spec", "authParams", "signedCRT"); text != nil { // as a provider we have none
		certificate, err := identityplan.ParseCertificate(text)
		if err != nil {
			t.Fatal(err)
		}
		r.lost[string(certificate.RawSubjectPublicKeyInfo)] = key
		ours.objects = append(ours.objects, ours.keysFor(t, key, "liqo-tenant-turin"))
	}
	r.redirect()
	for _, c := range r.clusters {
		if err := c.Load(t.Context(), c.objects); err != nil {
			t.Fatalf("load %s: %v", c.name, err)
		}
	}
	ours.control(t, "--cluster-labels=provider=AWS,region=B")
	ours.worked(t)
	return ours, original
}

// keysFor returns a Secret with the key pair for the peer of a tenant namespace.
func (c *installation) keysFor(t *testing.T, key crypto.Signer, tenantNamespace string) unstructured.Unstructured {
	t.Helper()
	private, err := identityplan.EncodePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "liqo", "name": api.PeerKeysSecretName(tenantNamespace)},
		"data": map[string]any{api.PrivateKeyField: base64.StdEncoding.EncodeToString(private)},
	}}
}

// decoded returns the binary content of a field of the first object of a kind that has the field.
func (c *installation) decoded(t *testing.T, kind string, field ...string) []byte {
	t.Helper()
	for _, o := range c.objects {
		text, found, _ := unstructured.NestedString(o.Object, field...)
		if o.GetKind() != kind || !found {
			continue
		}
		decoded, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return decoded
	}
	return nil
}

// unchanged fails for an object of either cluster that is gone, going, another or says something else.
func unchanged(t *testing.T, clusters ...*installation) {
	t.Helper()
	for _, c := range clusters {
		for _, before := range c.objects {
			c.compare(t, &before)
			c.compareContent(t, &before)
		}
	}
}

// compareContent fails for an object of a dump that says something else than then.
func (c *installation) compareContent(t *testing.T, before *unstructured.Unstructured) {
	t.Helper()
	after, err := c.live(t.Context(), before)
	if err != nil || after == nil || !isDumped(before) {
		return
	}
	if diff := cmp.Diff(content(before), content(after)); diff != "" {
		t.Errorf("%s: %s %s/%s is another (-dumped +now):\n%s", c.name, before.GetKind(), before.GetNamespace(), before.GetName(), diff)
	}
}

// annotationOwner is on every object that one of our controllers creates.
const annotationOwner = "ctl.liqo.io/owner"

// unanswer deletes what our controllers have made for a consumer, and what they have told it.
func (c *installation) unanswer(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	live, err := c.live(t.Context(), o)
	if err != nil || live == nil || !isDumped(o) {
		return
	}
	switch o.GetKind() {
	case "Pod", "EndpointSlice", "Quota", "RoleBinding":
		if o.GetAnnotations()[annotationOwner] != "" {
			err = c.Delete(t.Context(), live, client.GracePeriodSeconds(0))
		}
	case "Configuration", "NamespaceMap", "ResourceSlice":
		for _, field := range []string{"conditions", "remote", "views", "currentMapping", "resources", "storageClasses", "nodeLabels"} {
			unstructured.RemoveNestedField(live.Object, "status", field)
		}
		err = c.Status().Update(t.Context(), live)
	}
	if err != nil {
		t.Fatalf("take back %s %s/%s: %v", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
}

// answersAgain waits until an object is made anew and says the same. Of a pod, what an API server, a scheduler and a
// kubelet add does not matter.
func (c *installation) answersAgain(t *testing.T, before *unstructured.Unstructured) {
	t.Helper()
	if !isDumped(before) {
		return
	}
	var diff string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		after, err := c.live(ctx, before)
		if err != nil || after == nil {
			diff = "it is not there"
			return false, err
		}
		was, is := content(before), content(after)
		if before.GetKind() == "Pod" && before.GetAnnotations()[annotationOwner] != "" {
			for _, pod := range []map[string]any{was, is} {
				delete(pod, "status")
				for _, field := range []string{"nodeName", "serviceAccount", "serviceAccountName", "schedulerName", "priority", "preemptionPolicy"} {
					unstructured.RemoveNestedField(pod, "spec", field)
				}
			}
		}
		diff = cmp.Diff(was, is)
		return diff == "", nil
	})
	if err != nil {
		t.Errorf("%s\ngave up after %s: waited until %s %s/%s of %s is answered as before (-dumped +now above): %v",
			diff, patience.Limit, before.GetKind(), before.GetNamespace(), before.GetName(), c.name, err)
	}
}

// isDumped leaves out what the test adds to the dumps.
func isDumped(o *unstructured.Unstructured) bool {
	return strings.HasPrefix(o.GetNamespace(), "liqo-tenant-") && o.GetKind() != "Network" ||
		strings.HasPrefix(o.GetNamespace(), "inter-") && o.GetKind() != "NamespaceOffloading"
}

// content returns an object's fields without its timestamps.
func content(o *unstructured.Unstructured) map[string]any {
	out := o.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "ownerReferences"} {
		unstructured.RemoveNestedField(out.Object, "metadata", field)
	}
	switch o.GetKind() {
	case "ShadowPod": // tells its phase when its pod has settled; the dump came before
		unstructured.RemoveNestedField(out.Object, "status", "phase")
	case "Configuration": // what was agreed is noted since
		unstructured.RemoveNestedField(out.Object, "status", "agreedCIDRs")
	case "GatewayServer", "GatewayClient", "InternalFabric": // standby pods are named since
		unstructured.RemoveNestedField(out.Object, "status", "internalEndpoint", "standbyIPs")
		unstructured.RemoveNestedField(out.Object, "spec", "standbyIPs")
	case "ResourceSlice": // the provider's nodes are described since; the original drops the field
		unstructured.RemoveNestedField(out.Object, "status", "node")
	case "Renew": // of another key
		unstructured.RemoveNestedField(out.Object, "spec", "publicKey")
	case "Pod": // whose host is the virtual kubelet
		unstructured.RemoveNestedField(out.Object, "status", "hostIP")
		unstructured.RemoveNestedField(out.Object, "status", "hostIPs")
	}
	// Gateways made from templates, and so the owners of what they have, were not dumped.
	unstructured.RemoveNestedField(out.Object, "metadata", "labels", "ctl.liqo.io/owner-uid")
	timeless(out.Object)
	return out.Object
}

// timeless drops times, and objects that held nothing else.
func timeless(object map[string]any) {
	for key, value := range object {
		switch value := value.(type) {
		case map[string]any:
			if timeless(value); len(value) == 0 {
				delete(object, key)
			}
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					timeless(item)
				}
			}
		}
		if key == "lastTransitionTime" || key == "observedGeneration" {
			delete(object, key)
		}
	}
}

// chart is what an installation has of its own, as another recording has it.
func chart(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	return slices.DeleteFunc(recording(t, "milan"), func(o unstructured.Unstructured) bool {
		return o.GetNamespace() != "liqo" && !slices.Contains([]string{"StorageClass", "RuntimeClass", "Node"}, o.GetKind()) && o.GetName() != "liqo"
	})
}

// dumped reads a cluster of testdata/interop, with what was not dumped in its namespaces.
func dumped(t *testing.T, name string) []unstructured.Unstructured {
	t.Helper()
	objects := lists(t, name)
	namespaces := map[string]bool{}
	for _, o := range objects {
		namespaces[o.GetNamespace()] = true
	}
	for _, o := range lists(t, "not-dumped") {
		if namespaces[cmpx.Or(o.GetNamespace(), o.GetName())] {
			objects = append(objects, o)
		}
	}
	return objects
}

// lists reads the objects of a file of testdata/interop.
func lists(t *testing.T, name string) []unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "interop", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var objects []unstructured.Unstructured
	for _, document := range strings.Split(string(text), "\n---\n") {
		var list unstructured.UnstructuredList
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---\n")), &list); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, list.Items...)
	}
	return objects
}
