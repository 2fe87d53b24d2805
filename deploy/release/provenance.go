// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	attestation "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	provenanceFile = "provenance.json"
	provenanceType = "https://slsa.dev/provenance/v1"
	// buildType names how releases are made: by this program.
	buildType = "urn:liqo:deploy:release:v1"
)

// writeProvenance writes which commit, packages and parameters the files of the release come from, as an in-toto
// statement with a predicate of SLSA.
func (r *release) writeProvenance(image *madeImage) error {
	subjects, err := r.subjects(image.digest)
	if err != nil {
		return err
	}
	statement, err := r.statement(subjects, image.debian)
	if err != nil {
		return err
	}
	text, err := protojson.Marshal(statement)
	if err != nil {
		return fmt.Errorf("write provenance: %w", err)
	}
	var buf bytes.Buffer // protojson puts spaces where it likes, differently in each build of the program
	if err := json.Compact(&buf, text); err != nil {
		return fmt.Errorf("write provenance: %w", err)
	}
	return r.write(provenanceFile, append(buf.Bytes(), '\n'))
}

// subjects are the files of the release so far, and the image.
func (r *release) subjects(digest string) ([]*attestation.ResourceDescriptor, error) {
	entries, err := os.ReadDir(r.dist)
	if err != nil {
		return nil, err
	}
	list := []*attestation.ResourceDescriptor{descriptor(r.imageName(), "", digest[len("sha256:"):])}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		sum, err := sumOf(filepath.Join(r.dist, entry.Name()))
		if err != nil {
			return nil, err
		}
		list = append(list, descriptor(entry.Name(), "", sum))
	}
	return list, nil
}

func descriptor(name, uri, sum string) *attestation.ResourceDescriptor {
	return &attestation.ResourceDescriptor{Name: name, Uri: uri, Digest: map[string]string{"sha256": sum}}
}

func (r *release) statement(subjects []*attestation.ResourceDescriptor, debian []debianPackage) (
	*attestation.Statement, error) {
	parameters, err := structpb.NewStruct(map[string]any{"version": r.version, "registry": r.registry, "url": r.url})
	if err != nil {
		return nil, err
	}
	toolchain, err := structpb.NewStruct(map[string]any{"go": runtime.Version()})
	if err != nil {
		return nil, err
	}
	materials := map[string]*attestation.ResourceDescriptor{}
	for _, d := range debian {
		materials[d.purl()] = descriptor("", d.purl(), d.sum)
	}
	source := &attestation.ResourceDescriptor{Name: "source", Digest: map[string]string{"gitCommit": r.commit}}
	dependencies := []*attestation.ResourceDescriptor{source}
	for _, purl := range slices.Sorted(maps.Keys(materials)) {
		dependencies = append(dependencies, materials[purl])
	}
	text, err := protojson.Marshal(&provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{BuildType: buildType, ExternalParameters: parameters,
			InternalParameters: toolchain, ResolvedDependencies: dependencies},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: r.url}},
	})
	if err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return nil, err
	}
	return &attestation.Statement{Type: attestation.StatementTypeUri, Subject: subjects, PredicateType: provenanceType,
		Predicate: predicate}, nil
}
