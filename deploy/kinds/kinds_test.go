// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bytes"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/internal/apitest"
)

// TestKinds: a kind that an older version defined is as this version has it.
func TestKinds(t *testing.T) {
	known := runtime.NewScheme()
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
	if err := run(t.Context(), c, &out); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), key, &crd); err != nil {
		t.Fatal(err)
	}
	if got := len(crd.Spec.Versions[0].AdditionalPrinterColumns); got != columns || columns == 0 {
		t.Errorf("%d columns, want %d; %s", got, columns, &out)
	}
}
