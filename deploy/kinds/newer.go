// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kinds

import (
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
)

// Newer says which kind in the cluster is newer than the definitions of a version: the API server
// would drop the fields that these do not have. It is empty if none is, and if an older version is
// installed in the namespace: then fields may go.
func Newer(ctx context.Context, c client.Reader, namespace, version string,
	crds []*apiextensionsv1.CustomResourceDefinition) (string, error) {
	installed, err := installedVersion(ctx, c, namespace)
	if err != nil {
		return "", err
	}
	if older(installed, version) {
		return "", nil
	}
	live := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(ctx, live); err != nil {
		return "", fmt.Errorf("list kinds: %w", err)
	}
	for i := range live.Items {
		at := slices.IndexFunc(crds, func(own *apiextensionsv1.CustomResourceDefinition) bool {
			return own.Name == live.Items[i].Name
		})
		if at < 0 {
			continue
		}
		if part := newerPart(&live.Items[i], crds[at]); part != "" {
			return fmt.Sprintf("kind %s in the cluster is newer than that of version %s, which has no %s",
				crds[at].Name, version, part), nil
		}
	}
	return "", nil
}

// installedVersion returns the version of Liqo that is installed in a namespace; empty = none.
func installedVersion(ctx context.Context, c client.Reader, namespace string) (string, error) {
	d := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: namespace, Name: api.ControllerManagerName}
	if err := client.IgnoreNotFound(c.Get(ctx, key, d)); err != nil {
		return "", fmt.Errorf("read deployment %s: %w", key, err)
	}
	return d.Labels[api.LabelAppVersion], nil
}

// newerPart returns a version or field that live serves and crd lacks, or "" if crd has all of them.
func newerPart(live, crd *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range live.Spec.Versions {
		at := slices.IndexFunc(crd.Spec.Versions, func(own apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return own.Name == v.Name
		})
		if at < 0 && v.Served {
			return "version " + v.Name
		}
		if at < 0 || v.Schema == nil || crd.Spec.Versions[at].Schema == nil {
			continue
		}
		if path := missingField(v.Schema.OpenAPIV3Schema, crd.Spec.Versions[at].Schema.OpenAPIV3Schema); path != "" {
			return "field " + path
		}
	}
	return ""
}

// missingField returns the path of the first field of a schema that another lacks. It ignores the
// fields of pod specs: they follow the Kubernetes version that Liqo is built with, and Kubernetes also
// removes fields, such as workloadRef after 1.35.
func missingField(have, other *apiextensionsv1.JSONSchemaProps) string {
	if have == nil || other == nil || other.XPreserveUnknownFields != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(have.Properties)) {
		field := have.Properties[name]
		if _, podSpec := field.Properties["containers"]; podSpec {
			continue
		}
		match, ok := other.Properties[name]
		if !ok {
			return name
		}
		if below := missingField(&field, &match); below != "" {
			return name + "." + below
		}
	}
	if have.Items != nil && other.Items != nil {
		return missingField(have.Items.Schema, other.Items.Schema)
	}
	if have.AdditionalProperties != nil && other.AdditionalProperties != nil {
		return missingField(have.AdditionalProperties.Schema, other.AdditionalProperties.Schema)
	}
	return ""
}
