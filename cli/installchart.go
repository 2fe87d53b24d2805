// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/getter"
	"helm.sh/helm/v4/pkg/registry"
	repo "helm.sh/helm/v4/pkg/repo/v1"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/deploy"
)

// webGetters returns what reads values and charts by HTTP. A request may take a minute.
func webGetters() getter.Providers {
	get := func(options ...getter.Option) (getter.Getter, error) {
		return getter.NewHTTPGetter(append(options, getter.WithTimeout(time.Minute))...)
	}
	return getter.Providers{{Schemes: []string{"http", "https"}, New: get}}
}

// chart loads the chart from disk, from a repository, or the one embedded in liqoctl. It refuses
// another version than that of --version.
func (o *installOptions) chart() (c *chart.Chart, err error) {
	switch {
	case o.chartPath != "":
		if c, err = loader.Load(o.chartPath); err != nil {
			return nil, fmt.Errorf("load chart %s: %w", o.chartPath, err)
		}
	case o.repoURL != "":
		if c, err = o.download(); err != nil {
			return nil, hint(fmt.Errorf("download the chart from %s: %w", o.repoURL, err),
				"check --repo-url and --version")
		}
	default:
		if c, err = embeddedChart(); err != nil {
			return nil, err
		}
	}
	if of := c.Metadata.Name + "-" + c.Metadata.Version; isOriginalChart(of) || c.Metadata.Name != api.ReleaseName {
		return nil, fmt.Errorf("chart %s is not one of this Liqo; correct --repo-url or --local-chart-path", of)
	}
	versions := []string{"", bare(c.Metadata.Version), bare(c.Metadata.AppVersion)}
	if o.repoURL == "" && !slices.Contains(versions, bare(o.version)) {
		if o.chartPath != "" {
			return nil, fmt.Errorf("chart %s is of version %s, not %s; correct --version or leave it out", o.chartPath,
				c.Metadata.AppVersion, o.version)
		}
		return nil, fmt.Errorf("this liqoctl installs %s, not %s; use the liqoctl of that version, or its chart with "+
			"--repo-url or --local-chart-path", c.Metadata.AppVersion, o.version)
	}
	return c, nil
}

// bare returns a version without the letter that it may begin with.
func bare(version string) string { return strings.TrimPrefix(version, "v") }

// embeddedChart loads the chart in liqoctl.
func embeddedChart() (*chart.Chart, error) {
	files, err := deploy.ChartFiles()
	if err != nil {
		return nil, err
	}
	var buffered []*archive.BufferedFile
	for _, name := range slices.Sorted(maps.Keys(files)) {
		buffered = append(buffered, &archive.BufferedFile{Name: name, Data: files[name]})
	}
	c, err := loader.LoadFiles(buffered)
	if err != nil {
		return nil, fmt.Errorf("load the chart: %w", err)
	}
	return c, nil
}

// download reads the chart of --version, or of liqoctl's own version, from the repository: a
// registry if the URL begins with oci://, else a Helm repository with an index.
func (o *installOptions) download() (*chart.Chart, error) {
	version := bare(o.version)
	if version == "" {
		own, err := embeddedChart()
		if err != nil {
			return nil, err
		}
		version = own.Metadata.Version
	}
	at, err := url.Parse(o.repoURL)
	readers := map[string]func(url, version string) ([]byte, error){
		"https": readRepository, "http": readRepository, registry.OCIScheme: readRegistry,
	}
	if err != nil || at.Hostname() == "" || readers[at.Scheme] == nil {
		return nil, errors.New("it is no URL like https://charts.example.com/liqo or oci://registry.example.com/charts")
	}
	data, err := readers[at.Scheme](strings.TrimSuffix(at.String(), "/"), version)
	if err != nil {
		return nil, err
	}
	return loader.LoadArchive(bytes.NewReader(data))
}

// readRegistry pulls a chart from a registry, with the credentials of the user's registry
// configuration.
func readRegistry(url, version string) ([]byte, error) {
	c, err := registry.NewClient(registry.ClientOptWriter(io.Discard))
	if err != nil {
		return nil, err
	}
	repository := strings.TrimPrefix(url, registry.OCIScheme+"://")
	pulled, err := c.Pull(fmt.Sprintf("%s/%s:%s", repository, api.ReleaseName, version))
	if err != nil {
		return nil, err
	}
	return pulled.Chart.Data, nil
}

// readRepository downloads a chart by the index of a Helm repository, and compares the digest that
// the index names.
func readRepository(url, version string) ([]byte, error) {
	scheme, _, _ := strings.Cut(url, "://")
	get, err := webGetters().ByScheme(scheme)
	if err != nil {
		return nil, err
	}
	text, err := get.Get(url + "/index.yaml")
	if err != nil {
		return nil, err
	}
	index := &repo.IndexFile{}
	if err := yaml.Unmarshal(text.Bytes(), index); err != nil {
		return nil, fmt.Errorf("read its index.yaml: %w", err)
	}
	index.Entries = map[string]repo.ChartVersions{api.ReleaseName: slices.DeleteFunc(index.Entries[api.ReleaseName],
		func(v *repo.ChartVersion) bool { return v == nil || v.Metadata == nil })}
	index.SortEntries()
	found, err := index.Get(api.ReleaseName, version)
	if err != nil {
		return nil, err
	}
	if len(found.URLs) == 0 {
		return nil, fmt.Errorf("its index.yaml has no URL for version %s", found.Version)
	}
	at, err := repo.ResolveReferenceURL(url, found.URLs[0])
	if err != nil {
		return nil, err
	}
	archive, err := get.Get(at)
	if err != nil {
		return nil, err
	}
	if is := fmt.Sprintf("%x", sha256.Sum256(archive.Bytes())); is != cmp.Or(found.Digest, is) {
		return nil, fmt.Errorf("%s has digest %s, but its index.yaml says %s", at, is, found.Digest)
	}
	return archive.Bytes(), nil
}
