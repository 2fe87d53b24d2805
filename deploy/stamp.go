// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"regexp"
	"strings"
)

// The linker sets these when a release is made: the version of the release that this program belongs to, like v0.2.0,
// the name of its image with the registry but without a tag, and the digest of that image. Programs inside the image
// know only the version. All are empty in builds for development.
var version, image, digest string

// StampChart writes a release into the files of the chart: its version, and if they are not empty the name and digest
// of its image. Comments and all other lines stay. An error names a key that the chart lacks.
func StampChart(files map[string][]byte, version, image, digest string) error {
	for _, s := range []struct{ file, block, key, value string }{
		{"Chart.yaml", "", "version", strings.TrimPrefix(version, "v")},
		{"Chart.yaml", "", "appVersion", version},
		{"values.yaml", "image", "name", image},
		{"values.yaml", "image", "digest", digest},
	} {
		if s.value == "" {
			continue
		}
		start := `(?m)^`
		if s.block != "" {
			start += s.block + `:\n(?:[ #].*\n)*?  `
		}
		found := regexp.MustCompile(start + s.key + `: (.*)$`).FindSubmatchIndex(files[s.file])
		if found == nil {
			return fmt.Errorf("%s of the chart has no key %q", s.file, strings.TrimPrefix(s.block+"."+s.key, "."))
		}
		text := files[s.file]
		files[s.file] = []byte(string(text[:found[2]]) + s.value + string(text[found[3]:]))
	}
	return nil
}
