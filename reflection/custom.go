// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/liqo-go/liqo/reflection/translate"
)

// CustomResource is a resource that is reflected without knowing more of it than its names. They
// are given, not asked for: a cluster that is away, or does not have the resource yet, is waited
// for like any other.
type CustomResource struct {
	Resource schema.GroupVersionResource
	Kind     string
	Reflector
}

// ParseCustomResource reads a resource, <plural>.<version>.<group>, and how it is reflected,
// <kind>:<workers>[:<type>].
func ParseCustomResource(resource, how string) (CustomResource, error) {
	gvr, _ := schema.ParseResourceArg(resource)
	parts := strings.Split(how, ":")
	if gvr == nil || len(parts) < 2 || parts[0] == "" {
		return CustomResource{}, fmt.Errorf("read %s=%s: want <plural>.<version>.<group>=<kind>:<workers>[:<type>]", resource, how)
	}
	workers, err := strconv.Atoi(parts[1])
	if err != nil {
		return CustomResource{}, fmt.Errorf("read workers of %s: %w", resource, err)
	}
	allowList := len(parts) > 2 && parts[2] == "AllowList"
	return CustomResource{Resource: *gvr, Kind: parts[0], Reflector: Reflector{Workers: workers, AllowList: allowList}}, nil
}

// kind is the row of the resource in the table of kinds.
func (c CustomResource) kind(o Options) Kind {
	prototype := &unstructured.Unstructured{}
	prototype.SetGroupVersionKind(c.Resource.GroupVersion().WithKind(c.Kind))
	return Kind{
		Name: c.Kind, Workers: c.Workers, AllowList: c.AllowList,
		Home: prototype, Remote: prototype.DeepCopy(), Marks: marks(o),
		Push: Typed(translate.Custom),
	}
}

// add lets a mapper know the resource: its kind, and that of lists of it.
func (c CustomResource) add(mapper *meta.DefaultRESTMapper) {
	singular := c.Resource.GroupVersion().WithResource(strings.ToLower(c.Kind))
	for _, kind := range []string{c.Kind, c.Kind + "List"} {
		mapper.AddSpecific(c.Resource.GroupVersion().WithKind(kind), c.Resource, singular, meta.RESTScopeNamespace)
	}
}
