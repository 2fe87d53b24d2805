// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command metrics-server is metrics-server built with the libraries of the clusters' Kubernetes, which are
// compiled once. Kubernetes 1.35 looks up OpenAPI schemas by name; metrics-server registers them by Go path.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"

	"github.com/spf13/pflag"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"sigs.k8s.io/metrics-server/cmd/metrics-server/app/options"
	"sigs.k8s.io/metrics-server/pkg/api"
	generatedopenapi "sigs.k8s.io/metrics-server/pkg/api/generated/openapi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "metrics-server:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o := options.NewOptions()
	flags := pflag.NewFlagSet("metrics-server", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(o.Validate()...); err != nil {
		return err
	}
	config, err := o.ServerConfig()
	if err != nil {
		return err
	}
	namer := openapinamer.NewDefinitionNamer(api.Scheme)
	config.Apiserver.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(schemas, namer)
	config.Apiserver.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(schemas, namer)
	s, err := config.Complete()
	if err != nil {
		return err
	}
	return s.RunUntil(genericapiserver.SetupSignalHandler())
}

// schemas returns the schemas by Go path and by name.
func schemas(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	byPath := generatedopenapi.GetOpenAPIDefinitions(ref)
	all := maps.Clone(byPath)
	for path, schema := range byPath {
		all[util.ToRESTFriendlyName(path)] = schema
	}
	return all
}
