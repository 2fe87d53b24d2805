// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"embed"
	"fmt"
	"text/template"
)

//go:embed templates
var templates embed.FS

// writePackages writes what installs liqoctl: a manifest for krew, as plugin "liqo" of kubectl, and a formula for
// Homebrew.
func (r *release) writePackages(programs []program) error {
	type archive struct{ OS, Arch, URL, Sum, Program string }
	data := struct {
		Version, Number, URL string
		Archives             []archive
	}{Version: r.version, Number: r.version[len("v"):], URL: r.url}
	for _, p := range programs {
		data.Archives = append(data.Archives, archive{p.os, p.arch, r.url + "/" + p.archive(), p.sum, p.program()})
	}
	parsed, err := template.ParseFS(templates, "templates/*")
	if err != nil {
		return err
	}
	for _, name := range []string{"krew.yaml", "liqoctl.rb"} {
		var buf bytes.Buffer
		if err := parsed.ExecuteTemplate(&buf, name, data); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := r.write(name, buf.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
