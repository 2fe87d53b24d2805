// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"regexp"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// software is something that a release has, and what it consists of.
type software struct {
	name, version string
	purl          string // package URL; empty for what only this release has
	sum           string // SHA-256 of the file, in hexadecimal; empty if it is no single file
	parts         []software
}

// clientSoftware lists what liqoctl was made of, for each platform.
func clientSoftware(version string, programs []program) (software, error) {
	out := software{name: "liqoctl", version: version}
	for _, p := range programs {
		part, err := goSoftware("liqoctl-"+p.os+"-"+p.arch, version, p.binary)
		if err != nil {
			return software{}, err
		}
		out.parts = append(out.parts, part)
	}
	return out, nil
}

// writeSBOM writes an SPDX document that describes a piece of software.
func (r *release) writeSBOM(name string, s software) error {
	var buf bytes.Buffer
	if err := json.Write(document(r.url+"/"+name, r.time, s), &buf, json.Indent(" ")); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return r.write(name, buf.Bytes())
}

// document describes a piece of software and, once each, its parts. namespace is the document's own URI.
func document(namespace string, at time.Time, s software) *spdx.Document {
	d := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: s.name,
		DocumentNamespace: namespace,
		CreationInfo: &spdx.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "The Liqo Authors"}},
			Created:  at.Format(time.RFC3339),
		},
	}
	relate := func(from common.ElementID, kind string, to common.ElementID) {
		d.Relationships = append(d.Relationships, &spdx.Relationship{RefA: common.MakeDocElementID("", string(from)),
			Relationship: kind, RefB: common.MakeDocElementID("", string(to))})
	}
	known := map[common.ElementID]bool{}
	var add func(software) common.ElementID
	add = func(s software) common.ElementID {
		p := spdxPackage(s)
		if known[p.PackageSPDXIdentifier] {
			return p.PackageSPDXIdentifier
		}
		known[p.PackageSPDXIdentifier] = true
		d.Packages = append(d.Packages, p)
		for _, part := range s.parts {
			relate(p.PackageSPDXIdentifier, common.TypeRelationshipContains, add(part))
		}
		return p.PackageSPDXIdentifier
	}
	relate("DOCUMENT", common.TypeRelationshipDescribe, add(s))
	return d
}

// unsaid stands in fields of SPDX that a document makes no statement about.
const unsaid = "NOASSERTION"

// notInID are characters that an SPDX identifier cannot have.
var notInID = regexp.MustCompile("[^A-Za-z0-9.-]+")

func spdxPackage(s software) *spdx.Package {
	id := s.name + "-" + s.version
	p := &spdx.Package{PackageName: s.name, PackageVersion: s.version, PackageDownloadLocation: unsaid,
		PackageLicenseConcluded: unsaid, PackageLicenseDeclared: unsaid, PackageCopyrightText: unsaid}
	if s.sum != "" {
		p.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: s.sum}}
	}
	if s.purl != "" {
		id = s.purl
		p.PackageExternalReferences = []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager,
			RefType: common.TypePackageManagerPURL, Locator: s.purl}}
	}
	p.PackageSPDXIdentifier = common.ElementID(notInID.ReplaceAllString(id, "-"))
	return p
}
