// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bytes"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// TestKinds: a kind that an older version defined becomes as this version has it, one of a newer version stays.
func TestKinds(t *testing.T) {
	known := scheme.New()
	if err := apiextensionsv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(apitest.Start(t).Config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	const name = "ips.ipam.liqo.io"
	key := client.ObjectKey{Name: name}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := c.Get(t.Context(), key, &crd); err != nil {
		t.Fatal(err)
	}
	columns := len(crd.Spec.Versions[0].AdditionalPrinterColumns)
	older := crd.DeepCopy()
	older.Spec.Versions[0].AdditionalPrinterColumns = nil
	if err := c.Update(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), c, "liqo", "v0.1.0", &out); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, &crd); err != nil {
		t.Fatal(err)
	}
	if got := len(crd.Spec.Versions[0].AdditionalPrinterColumns); got != columns || columns == 0 {
		t.Errorf("%d columns, want %d; %s", got, columns, &out)
	}

	newer := crd.DeepCopy()
	newer.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["later"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
	if err := c.Update(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	want := "kind " + name + " in the cluster is newer than that of version v0.1.0, which has no field later; " +
		"upgrade to the version of the cluster's kinds or a newer one, or roll back"
	if err := run(t.Context(), c, "liqo", "v0.1.0", &out); err == nil || err.Error() != want {
		t.Errorf("an older version applies its kinds: %v, want %s", err, want)
	}
}
