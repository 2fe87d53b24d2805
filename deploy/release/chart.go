// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	repo "helm.sh/helm/v4/pkg/repo/v1"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/deploy"
)

// releaseChart returns the files of the chart of a release, whose values name its image.
func releaseChart(version, image, digest string) (map[string][]byte, error) {
	files, err := deploy.ChartFiles()
	if err != nil {
		return nil, err
	}
	return files, deploy.StampChart(files, version, image, digest)
}

// indexFile has the index of the Helm repository.
const indexFile = "index.yaml"

// writeChart writes the packed chart and the index of a Helm repository that has only this version.
func (r *release) writeChart(files map[string][]byte) error {
	metadata := &chart.Metadata{}
	if err := yaml.Unmarshal(files["Chart.yaml"], metadata); err != nil {
		return fmt.Errorf("parse Chart.yaml: %w", err)
	}
	if err := metadata.Validate(); err != nil {
		return err
	}
	name := chartFile(r.version)
	var buf bytes.Buffer
	if err := tarGzip(&buf, sortedFiles(metadata.Name+"/", files), r.time); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	index, err := yaml.Marshal(repo.IndexFile{APIVersion: repo.APIVersionV1, Generated: r.time,
		Entries: map[string]repo.ChartVersions{metadata.Name: {{
			Metadata: metadata, URLs: []string{r.url + "/" + name}, Created: r.time, Digest: sumOfBytes(buf.Bytes()),
		}}},
	})
	if err != nil {
		return err
	}
	if err := r.write(name, buf.Bytes()); err != nil {
		return err
	}
	return r.write(indexFile, index)
}

// chartFile is the file name of the chart.
func chartFile(version string) string { return "liqo-" + version[len("v"):] + ".tgz" }
