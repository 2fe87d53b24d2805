// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/bundle"
	"github.com/liqo-go/liqo/view"
)

// Bounds of what pages show of an archive, which may come from a stranger.
const (
	// mostObjects and mostPeers bound the objects of a cluster: the time that a page takes grows with both.
	mostObjects, mostPeers = 50000, 1000
	// mostRows bounds the rows of each table and list of the page Bundle.
	mostRows = 1000
	// linesOfPage is the number of lines of a file that one page shows.
	linesOfPage = 1000
	// longestLine bounds what is shown of a line, in bytes, before it is made printable.
	longestLine = 4 << 10
)

// bundlePath is the path of the page Bundle. Those of files begin with it.
const bundlePath = "/bundle"

// Archive holds what an archive of 'liqoctl gather' has of one cluster.
type Archive struct {
	bundle  *bundle.Bundle
	cluster bundle.Cluster
}

// NewArchive returns what an archive has of one of the clusters in its index.
func NewArchive(b *bundle.Bundle, cluster bundle.Cluster) *Archive { return &Archive{b, cluster} }

// NewOfArchive returns a server of an archive: of the pages of a cluster as it was, and of the page Bundle with what
// else the archive has. The listener must be on loopback; Serve closes it.
func NewOfArchive(a *Archive, listener net.Listener) *Server {
	s := New(NewSnapshots(a.Snapshot()), listener)
	s.archive = a
	return s
}

// Snapshot returns the objects of the archive. Kinds that could not be gathered or are not readable are hidden. What
// is incomplete is said in Stale: it is a state of the past anyway.
func (a *Archive) Snapshot() *view.Snapshot {
	c := a.cluster
	out := &view.Snapshot{ClusterID: c.ID, Namespace: cmp.Or(c.Namespace, api.Namespace), Command: "liqoctl",
		Hidden: map[string]string{}}
	left, known := mostObjects, scheme.New()
	var partly, odd []string
	for _, list := range out.Lists() {
		resource, err := resourceOf(list, known)
		if err == nil {
			err = a.bundle.Objects(c.Name, resource, list)
		}
		limit := left
		if list == runtime.Object(&out.ForeignClusters) {
			limit = min(limit, mostPeers)
		}
		n, missing := meta.LenList(list), a.missing(resource)
		switch {
		case err == nil && n > limit:
			err = fmt.Errorf("the archive has %d %s, and pages show %d at most", n, resource, limit)
			fallthrough
		case err != nil:
			_ = meta.SetList(list, nil) // fails on no list
			out.Hidden[view.KindOf(list)] = err.Error()
			continue
		}
		if dropped := dropIllegal(list); dropped > 0 {
			odd = append(odd, fmt.Sprintf("%d %s", dropped, resource))
			if n -= dropped; n == 0 {
				missing = cmp.Or(missing, "no API server stores those of the archive")
			}
		}
		switch {
		case n == 0 && missing != "":
			out.Hidden[view.KindOf(list)] = missing
		case missing != "":
			partly = append(partly, resource)
		}
		left -= n
	}
	at := a.bundle.Index.Time.UTC().Format(time.DateTime + " UTC")
	out.Stale = fmt.Sprintf("This is the state at %s, from an archive of 'liqoctl gather'. Of pods, Services and "+
		"volumes it has only Liqo's own and the offloaded ones.", at)
	if len(partly) > 0 {
		out.Stale += " It does not have all of: " + strings.Join(partly, ", ") + "."
	}
	if len(odd) > 0 {
		out.Stale += " Left out are objects with a name, label or cluster ID that no API server stores: " +
			strings.Join(odd, ", ") + "."
	}
	out.Sort()
	return out
}

// dropIllegal removes objects that no API server stores from a list, and returns how many: remedies quote their names,
// and would hold what a stranger wants a shell to do.
func dropIllegal(list runtime.Object) int {
	all := items(list)
	n := len(all)
	all = slices.DeleteFunc(all, func(item runtime.Object) bool { return !isLegal(item.(view.Object)) })
	_ = meta.SetList(list, all) // fails on no list
	return n - len(all)
}

// isLegal reports whether name, namespace, labels and cluster IDs of an object are such as API servers store.
func isLegal(o view.Object) bool {
	wrong := validation.IsDNS1123Subdomain(o.GetName())
	for key, value := range o.GetLabels() {
		wrong = slices.Concat(wrong, validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
	}
	ids := []string{o.GetNamespace()}
	switch o := o.(type) {
	case *corev1beta1.ForeignCluster:
		ids = append(ids, o.Spec.ClusterID)
	case *authv1beta1.Tenant:
		ids = append(ids, o.Spec.ClusterID)
	case *authv1beta1.Identity:
		ids = append(ids, o.Spec.ClusterID)
	case *authv1beta1.ResourceSlice:
		ids = append(ids, o.Spec.ConsumerClusterID, o.Spec.ProviderClusterID)
	case *offv1beta1.VirtualNode:
		ids = append(ids, o.Spec.ClusterID)
	}
	for _, id := range ids {
		if id != "" {
			wrong = append(wrong, validation.IsDNS1123Label(id)...) // as cluster IDs are, too
		}
	}
	return len(wrong) == 0
}

// resourceOf returns the name of a list's resource in an archive.
func resourceOf(list runtime.Object, known *runtime.Scheme) (string, error) {
	gvk, err := apiutil.GVKForObject(view.NewItem(list), known)
	if err != nil {
		return "", fmt.Errorf("find the kind of %T: %w", list, err)
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.GroupResource().String(), nil
}

// missing returns why objects of a resource are missing; empty if they are not.
func (a *Archive) missing(resource string) string {
	for _, m := range a.cluster.Missing {
		if m.What == resource || strings.HasSuffix(m.What, " "+resource) || // "5 of 10 pods"
			strings.HasPrefix(m.What, resource+" in ") { // "events in namespace liqo"
			return m.Why
		}
	}
	return ""
}

// bundlePage holds the content of the page Bundle.
type bundlePage struct {
	Client  string
	Time    time.Time
	Cluster bundle.Cluster
	// Missing is cut; Unlisted counts the rest.
	Missing  []bundle.Missing
	Unlisted int
	// Texts are the page on top of the archive, conditions and Events.
	Texts   []fileLink
	Rules   []ruleRow
	Figures []figure
	Groups  []fileGroup
}

// ruleRow links to what one pod wants in the kernel, finds there, and what differs. Links are nil if there is no such
// file.
type ruleRow struct {
	Pod                     string
	Desired, Observed, Diff *fileLink
	Differs                 bool
}

// figure is one value that a gateway measures.
type figure struct{ Pod, Name, Value string }

// fileGroup is a list of files. Unlisted counts those that are not listed.
type fileGroup struct {
	Title    string
	Files    []fileLink
	Unlisted int
}

// fileLink is a link to the page of a file.
type fileLink struct {
	Name, Address string
	Size          int
	Cut           bool
}

// find returns the page at a path of the archive. ok is false for other paths.
func (a *Archive) find(path string) (name, title string, data any, ok bool) {
	if path == bundlePath {
		return "bundle", "Bundle", a.page(), true
	}
	rest, ok := strings.CutPrefix(path, bundlePath+"/")
	if !ok {
		return "", "", nil, false
	}
	number, file, _ := strings.Cut(rest, "/")
	page := a.filePage(number, file)
	return "file", file, page, page != nil
}

func (a *Archive) page() *bundlePage {
	index := a.bundle.Index
	out := &bundlePage{Client: index.Client, Time: index.Time, Cluster: a.cluster, Missing: a.cluster.Missing}
	out.Missing, out.Unlisted = bounded(out.Missing)
	cut := map[string]bool{}
	for _, f := range index.Files {
		cut[f.Path] = f.Cut
	}
	for _, file := range []string{bundle.Readme, a.cluster.Name + "/conditions.txt", a.cluster.Name + "/events.txt"} {
		if a.bundle.Text(file) != nil {
			out.Texts = append(out.Texts, a.link(file, cut))
		}
	}
	out.Rules = a.rules(cut)
	out.Figures = a.figures()
	for _, folder := range []string{"logs", "metrics", "objects"} {
		group := fileGroup{Title: strings.ToUpper(folder[:1]) + folder[1:]}
		files, unlisted := bounded(a.bundle.Files(a.cluster.Name + "/" + folder))
		for _, file := range files {
			group.Files = append(group.Files, a.link(file, cut))
		}
		group.Unlisted = unlisted
		out.Groups = append(out.Groups, group)
	}
	return out
}

// bounded returns the first rows, and how many others there are.
func bounded[T any](rows []T) ([]T, int) {
	n := min(len(rows), mostRows)
	return rows[:n], len(rows) - n
}

// link returns the link to a file: to the last page of a log, and the first one of all others.
func (a *Archive) link(file string, cut map[string]bool) fileLink {
	text, page := a.bundle.Text(file), 1
	if strings.HasPrefix(file, a.cluster.Name+"/logs/") {
		page = pagesOf(text)
	}
	name := strings.TrimPrefix(file, a.cluster.Name+"/")
	return fileLink{Name: name, Address: addressOf(page, file), Size: len(text), Cut: cut[file]}
}

func addressOf(page int, file string) string {
	return (&url.URL{Path: bundlePath + "/" + strconv.Itoa(page) + "/" + file}).EscapedPath()
}

// rules returns a row for each pod that has rules, those with differences first.
func (a *Archive) rules(cut map[string]bool) []ruleRow {
	rows := map[string]*ruleRow{}
	var out []*ruleRow
	folder := a.cluster.Name + "/rules/"
	for _, file := range a.bundle.Files(strings.TrimSuffix(folder, "/")) {
		pod, what := strings.TrimPrefix(file, folder), ""
		if i := strings.LastIndexByte(pod, '/'); i >= 0 {
			pod, what = pod[:i], pod[i+1:]
		}
		row := rows[pod]
		if row == nil && len(rows) < mostRows {
			row = &ruleRow{Pod: pod}
			rows[pod], out = row, append(out, row)
		}
		link := a.link(file, cut)
		switch {
		case row == nil:
		case what == "desired.txt":
			row.Desired = &link
		case what == "observed.txt":
			row.Observed = &link
		case what == "diff.txt":
			row.Diff, row.Differs = &link, string(a.bundle.Text(file)) != "nothing\n"
		}
	}
	slices.SortStableFunc(out, func(x, y *ruleRow) int { return cmp.Compare(order(x.Differs), order(y.Differs)) })
	list := make([]ruleRow, len(out))
	for i, row := range out {
		list[i] = *row
	}
	return list
}

// order sorts what is bad first.
func order(bad bool) int {
	if bad {
		return 0
	}
	return 1
}

// pathMetrics are the metrics of gateways about the path to a peer.
var pathMetrics = []string{"liqo_peer_is_connected", "liqo_peer_latency_us", "liqo_peer_receive_bytes_total",
	"liqo_peer_transmit_bytes_total"}

// figures returns the metrics about paths.
func (a *Archive) figures() (out []figure) {
	folder := a.cluster.Name + "/metrics"
	for _, file := range a.bundle.Files(folder) {
		pod := strings.TrimSuffix(strings.TrimPrefix(file, folder+"/"), ".txt")
		for line := range bytes.Lines(a.bundle.Text(file)) {
			name, _, ok := bytes.Cut(line, []byte("{"))
			if !ok || !slices.Contains(pathMetrics, string(name)) {
				continue
			}
			series := shortened(line)
			i := strings.LastIndexByte(series, ' ')
			if i < 0 {
				continue
			}
			if out = append(out, figure{pod, series[:i], series[i+1:]}); len(out) == mostRows {
				return out
			}
		}
	}
	return out
}

// filePage is a page of a file of the archive.
type filePage struct {
	Cut bool
	// First is the number of the first line.
	First int
	Lines []string
	// Page is the number of the page, from 1 to Pages. Others are the addresses of the first page, the one before, the
	// one behind and the last one; of those that are this one, they are empty.
	Page, Pages                int
	Begin, Before, Behind, End string
}

// filePage returns a page of a file of this cluster by its number, or nil if the archive has no such file or page.
func (a *Archive) filePage(number, file string) *filePage {
	page, err := strconv.Atoi(number)
	text, own := a.bundle.Text(file), strings.HasPrefix(file, a.cluster.Name+"/") || file == bundle.Readme
	if err != nil || text == nil || !own || page < 1 || page > pagesOf(text) || number != strconv.Itoa(page) {
		return nil
	}
	out := &filePage{First: (page-1)*linesOfPage + 1, Page: page, Pages: pagesOf(text)}
	at := 0
	for line := range bytes.Lines(text) {
		if at++; at >= out.First+linesOfPage {
			break
		}
		if at >= out.First {
			out.Lines = append(out.Lines, shortened(line))
		}
	}
	if page > 1 {
		out.Begin, out.Before = addressOf(1, file), addressOf(page-1, file)
	}
	if page < out.Pages {
		out.Behind, out.End = addressOf(page+1, file), addressOf(out.Pages, file)
	}
	for _, f := range a.bundle.Index.Files {
		out.Cut = out.Cut || f.Path == file && f.Cut
	}
	return out
}

// pagesOf returns the number of pages of a text, at least 1.
func pagesOf(text []byte) int {
	lines := bytes.Count(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) + 1
	return (lines + linesOfPage - 1) / linesOfPage
}

// shortened returns a line without its end, and with spaces for tabs.
func shortened(line []byte) string {
	line = bytes.TrimRight(line[:min(len(line), longestLine)], "\r\n")
	return strings.ReplaceAll(string(line), "\t", "    ")
}
