// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package deploy embeds the files of an installation: the Helm chart with the
// CustomResourceDefinitions. It only returns them; package cli applies them.
package deploy

import (
	"embed"
	"fmt"
	"io/fs"
	"path"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

//go:embed all:liqo
var files embed.FS

// ChartFiles returns the files of the chart by their path inside it. A release's chart has its version and image.
func ChartFiles() (map[string][]byte, error) {
	out := map[string][]byte{}
	err := fs.WalkDir(files, "liqo", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := files.ReadFile(name)
		out[name[len("liqo/"):]] = data
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the chart: %w", err)
	}
	if version == "" {
		return out, nil
	}
	return out, StampChart(out, version, image, digest)
}

// CRDs returns the CustomResourceDefinitions, ordered by name.
func CRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(files, "liqo/crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the definitions: %w", err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read definition %s: %w", path.Base(name), err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return nil, fmt.Errorf("parse definition %s: %w", path.Base(name), err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}
