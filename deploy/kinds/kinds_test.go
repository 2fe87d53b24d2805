// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy"
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

	// After a rollback from v0.2.0 its kinds are there, and stay until it or a newer version comes.
	for version, stays := range map[string]bool{"v0.1.0": true, "v0.1.1": true, "v0.2.0": false, "v0.3.0": false} {
		out.Reset()
		if err := Apply(t.Context(), c, definition(t, name, func(crd *apiextensionsv1.CustomResourceDefinition) {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["later"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		}), "v0.2.0"); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), c, "liqo", version, &out); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, &crd); err != nil {
			t.Fatal(err)
		}
		_, there := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["later"]
		if told := strings.Contains(out.String(), "kind "+name+" stays as version v0.2.0 made it"); there != stays || told != stays {
			t.Errorf("%s: the kind of v0.2.0 is there: %t, want %t; %s", version, there, stays, &out)
		}
	}
}

// definition returns a definition of this version with a change.
func definition(t *testing.T, name string, change func(*apiextensionsv1.CustomResourceDefinition)) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crds, err := deploy.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == name })
	change(crds[at])
	return crds[at]
}
