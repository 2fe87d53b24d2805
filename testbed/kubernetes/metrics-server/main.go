// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command metrics-server is metrics-server v0.8.0 on the libraries of the Kubernetes beside it, with which it shares
// what is compiled: alone it takes three minutes. Those libraries look up OpenAPI schemas by name, not by Go path.
package main

import (
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
	if errs := o.Validate(); len(errs) > 0 {
		return errs[0]
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
