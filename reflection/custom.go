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

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// CustomResource describes a resource that is reflected knowing only its names. The names are
// configured, not discovered: the engine waits for a cluster that is unreachable or does not have
// the resource yet.
type CustomResource struct {
	Resource schema.GroupVersionResource
	offv1beta1.ReflectorConfig
}

// ParseCustomResource reads a resource, <plural>.<version>.<group>, and how it is reflected,
// <kind>:<workers>[:<type>].
func ParseCustomResource(resource, how string) (CustomResource, error) {
	gvr, _ := schema.ParseResourceArg(resource)
	parts := strings.Split(how, ":")
	if gvr == nil || len(parts) < 2 || parts[0] == "" {
		return CustomResource{}, fmt.Errorf("read %s=%s: want <plural>.<version>.<group>=<kind>:<workers>[:<type>]",
			resource, how)
	}
	workers, err := strconv.Atoi(parts[1])
	if err != nil {
		return CustomResource{}, fmt.Errorf("read workers of %s: %w", resource, err)
	}
	tuning := offv1beta1.ReflectorConfig{Kind: parts[0], Workers: workers}
	if len(parts) > 2 {
		tuning.Type = offv1beta1.ReflectionType(parts[2])
	}
	return CustomResource{*gvr, tuning}, nil
}

// kind returns the resource's row in the table of kinds.
func (c CustomResource) kind(o Options) Kind {
	prototype := &unstructured.Unstructured{}
	prototype.SetGroupVersionKind(c.Resource.GroupVersion().WithKind(c.Kind))
	return Kind{
		Name: c.Kind, Workers: c.Workers, AllowList: c.IsAllowList(),
		Home: prototype, Remote: prototype.DeepCopy(), RemoteSelector: ownSelector(o),
		Push: Typed(translate.Custom),
	}
}

// add registers the resource with a mapper: its kind, and the kind of its lists.
func (c CustomResource) add(mapper *meta.DefaultRESTMapper) {
	singular := c.Resource.GroupVersion().WithResource(strings.ToLower(c.Kind))
	for _, kind := range []string{c.Kind, c.Kind + "List"} {
		mapper.AddSpecific(c.Resource.GroupVersion().WithKind(kind), c.Resource, singular, meta.RESTScopeNamespace)
	}
}
