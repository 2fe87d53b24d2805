// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"
)

// Load writes objects into etcd as another cluster had them, with UIDs, owners, statuses and
// managed fields, past the API server, which follows as it follows writes of other API servers. An
// object that exists is replaced.
func (s *Server) Load(ctx context.Context, objects []unstructured.Unstructured) error {
	client, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return fmt.Errorf("read the kinds of the API server: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	var operations []any
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		resource := mapping.Resource.Resource
		switch {
		case object.GetKind() == "Node":
			resource = "minions"
		case object.GetKind() == "Service" && kind.Group == "":
			resource = "services/specs"
		case strings.HasSuffix(kind.Group, ".liqo.io"): // custom resources are kept below their group
			resource = kind.Group + "/" + resource
		}
		object.SetResourceVersion("")
		value, err := json.Marshal(object.Object)
		if err != nil {
			return err
		}
		key := path.Join("/registry", resource, object.GetNamespace(), object.GetName())
		operations = append(operations, map[string]any{"request_put": pair{[]byte(key), value}})
	}
	var answer struct{}
	return s.state.ask(ctx, "/v3/kv/txn", map[string]any{"success": operations}, &answer)
}
