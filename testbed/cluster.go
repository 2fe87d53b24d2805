// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
)

// upOptions are what the user asks of clusters. Zero values leave an existing cluster
// as it is and give a new one the defaults.
type upOptions struct {
	clusters     []string
	nodes        int // -1: not given; 2 for a new cluster
	distinct     bool
	podCIDRs     []string // "10.10.0.0/16" for all, or "rome=10.10.0.0/16"
	serviceCIDRs []string
	cnis         []string // "pool" for all, or "rome=pool"
	kubernetes   []string // "1.36" for all, or "rome=1.36"
	images       []string // archives or names of built images, besides the default ones
	args         map[string][]string
}

// defaultNodes are the workers of a new cluster.
const defaultNodes = 2

// firstPort is where the loopback ports of API servers begin; below the kernel's range
// of ports for outgoing connections (32768).
const firstPort = 16443

// desired merges what exists with what is asked, and refuses what cannot change while a
// cluster exists. It decides everything but the loopback port of new clusters, 0.
func desired(existing []Cluster, o upOptions, images []string) ([]Cluster, error) {
	var all []Cluster
	taken := map[int]bool{}
	for _, c := range existing {
		taken[c.Index] = true
	}
	for _, name := range o.clusters {
		i := slices.IndexFunc(existing, func(c Cluster) bool { return c.Name == name })
		if i >= 0 {
			c, err := grown(existing[i], o, images)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
			continue
		}
		index := 0
		for taken[index] {
			index++
		}
		taken[index] = true
		c, err := newCluster(name, index, o, images)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

func newCluster(name string, index int, o upOptions, images []string) (Cluster, error) {
	c := Cluster{Name: name, Index: index, Nodes: o.nodes, Images: images, Args: o.args}
	if o.nodes < 0 {
		c.Nodes = defaultNodes
	}
	c.PodCIDR, c.ServiceCIDR = defaultCIDRs(index, o.distinct)
	c.CNI = chosenFor(name, o.cnis)
	r, err := releaseOf(chosenFor(name, o.kubernetes))
	if err != nil {
		return Cluster{}, fmt.Errorf("cluster %s: %w", name, err)
	}
	c.Kubernetes = r.version
	if err := errors.Join(choose(&c.PodCIDR, name, o.podCIDRs), choose(&c.ServiceCIDR, name, o.serviceCIDRs)); err != nil {
		return Cluster{}, err
	}
	return c, c.validate()
}

// choose sets a prefix when one of the values is for the cluster.
func choose(p *netip.Prefix, cluster string, values []string) error {
	v := chosenFor(cluster, values)
	if v == "" {
		return nil
	}
	chosen, err := netip.ParsePrefix(v)
	if err != nil {
		return fmt.Errorf("CIDR %q: %w", v, err)
	}
	*p = chosen
	return nil
}

// chosenFor is the last of the values, v or cluster=v, that is for the cluster; "" when
// none is.
func chosenFor(cluster string, values []string) string {
	chosen := ""
	for _, v := range values {
		name, value, named := strings.Cut(v, "=")
		if !named {
			name, value = cluster, v
		}
		if name == cluster {
			chosen = value
		}
	}
	return chosen
}

// grown is an existing cluster with more nodes or newer Kubernetes; everything else stays as it was made.
func grown(c Cluster, o upOptions, images []string) (Cluster, error) {
	pods, services := c.PodCIDR, c.ServiceCIDR
	if err := errors.Join(choose(&pods, c.Name, o.podCIDRs), choose(&services, c.Name, o.serviceCIDRs)); err != nil {
		return Cluster{}, err
	}
	if pods != c.PodCIDR || services != c.ServiceCIDR {
		return Cluster{}, fmt.Errorf("cluster %s exists with pods %s and services %s; run 'down %s' first", c.Name, c.PodCIDR, c.ServiceCIDR, c.Name)
	}
	if cni := chosenFor(c.Name, o.cnis); cni != "" && cni != cmp.Or(c.CNI, cniBridge) {
		return Cluster{}, fmt.Errorf("cluster %s exists with CNI %s; run 'down %s' first", c.Name, cmp.Or(c.CNI, cniBridge), c.Name)
	}
	if o.nodes >= 0 && o.nodes < c.Nodes {
		return Cluster{}, fmt.Errorf("cluster %s exists with %d nodes; stop one with 'node stop', or run 'down %s' first", c.Name, c.Nodes, c.Name)
	}
	for _, image := range images {
		if !slices.Contains(c.Images, image) {
			return Cluster{}, fmt.Errorf("cluster %s exists without image %s; use 'load'", c.Name, image)
		}
	}
	for program, args := range o.args {
		if !slices.Equal(c.Args[program], args) {
			return Cluster{}, fmt.Errorf("cluster %s exists with %s arguments %q; run 'down %s' first", c.Name, program, c.Args[program], c.Name)
		}
	}
	c.Nodes = max(c.Nodes, o.nodes)
	former, errFormer := releaseOf(c.Kubernetes)
	next, err := releaseOf(cmp.Or(chosenFor(c.Name, o.kubernetes), c.Kubernetes))
	switch {
	case errors.Join(errFormer, err) != nil:
		return Cluster{}, fmt.Errorf("cluster %s: %w", c.Name, errors.Join(errFormer, err))
	case !next.canFollow(former):
		return Cluster{}, fmt.Errorf("cluster %s exists with Kubernetes %s, and %s is not the next minor version; run 'down %s' first", c.Name, former.version, next.version, c.Name)
	}
	c.Kubernetes = next.version
	return c, c.validate()
}

// up brings clusters to what is asked, whatever state they are in: what runs is left
// alone, what is missing is made.
func (t Testbed) up(ctx context.Context, o upOptions) error {
	if err := t.checkMachine(); err != nil {
		return err
	}
	// A port is free until a cluster listens on it, so two starts at once could choose the same one.
	cache, err := t.lockCache(ctx)
	if err != nil {
		return err
	}
	defer cache.Close()
	if err := t.build(ctx, append(defaultArtifacts(), namedArtifacts(o.images)...)); err != nil {
		return err
	}
	images, err := t.imageFiles(append(defaultImages(), o.images...))
	if err != nil {
		return err
	}
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := t.installTools(); err != nil {
		return err
	}
	clusters, err := t.settle(o, images)
	if err != nil {
		return err
	}
	for _, c := range clusters {
		if err := t.build(ctx, c.artifacts()); err != nil {
			return err
		}
	}
	if err := t.ensureInternet(); err != nil {
		return err
	}
	var starts []func() error
	for _, c := range clusters {
		starts = append(starts, func() error { return t.upCluster(ctx, c) })
	}
	return parallel(starts...)
}

// settle writes down what the clusters are before anything of them exists, so that a
// crash leaves nothing that is not known.
func (t Testbed) settle(o upOptions, images []string) ([]Cluster, error) {
	existing, err := t.clusters()
	if err != nil {
		return nil, err
	}
	if len(o.clusters) == 0 {
		o.clusters = clusterNames(existing)
	}
	if len(o.clusters) == 0 {
		o.clusters = []string{"rome", "milan"}
	}
	clusters, err := desired(existing, o, images)
	if err != nil {
		return nil, err
	}
	for i, c := range clusters {
		if c.Port == 0 {
			c.Port = freePort(c.Index, append(existing, clusters...))
			clusters[i] = c
		}
		if err := t.save(c); err != nil {
			return nil, err
		}
	}
	return clusters, nil
}

// freePort is a loopback port that nobody has: 16443, 17443, … when they are free.
func freePort(index int, known []Cluster) int {
	for port := firstPort + 1000*index; ; port++ {
		if slices.ContainsFunc(known, func(c Cluster) bool { return c.Port == port }) {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
}

// upCluster starts all nodes of a cluster at once and waits until it serves.
func (t Testbed) upCluster(ctx context.Context, c Cluster) error {
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("%-11s %5.1fs  %s\n", c.Name, time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	if err := t.writeAdmin(c); err != nil {
		return err
	}
	if err := t.ensureBridge(c); err != nil {
		return err
	}
	for _, node := range c.nodes() {
		if err := t.startNode(c, node); err != nil {
			return err
		}
	}
	say("%d nodes run", len(c.nodes()))
	admin, err := adminClient(t.pkiDir(c), fmt.Sprintf("127.0.0.1:%d", c.Port))
	if err != nil {
		return err
	}
	if err := t.renewPrograms(c, controlPlane); err != nil {
		return err
	}
	if err := t.watching(ctx, c, func() error { return serverIsReady(ctx, admin, c.release()) }); err != nil {
		return fmt.Errorf("wait for the API server of %s: %w", c.Name, err)
	}
	say("API server ready")
	if err := t.bootstrap(ctx, c, admin); err != nil {
		return err
	}
	for _, node := range c.workers() { // kubelets after the API server, which they may not be newer than
		if err := t.renewPrograms(c, node); err != nil {
			return err
		}
		if err := t.watching(ctx, c, func() error { return nodeIsReady(ctx, admin, c.nodeName(node), c.release()) }); err != nil {
			return fmt.Errorf("wait for node %s: %w", c.nodeName(node), err)
		}
	}
	say("nodes Ready")
	if c.Nodes == 0 {
		return nil
	}
	if err := t.watching(ctx, c, func() error { return dnsIsAvailable(ctx, admin) }); err != nil {
		return fmt.Errorf("wait for CoreDNS of %s: %w", c.Name, err)
	}
	say("CoreDNS serves; kubeconfig %s", t.kubeconfig(c))
	return nil
}

func serverIsReady(ctx context.Context, admin client, r release) error {
	version, err := admin.version(ctx)
	if err == nil && version != "v"+r.version {
		err = fmt.Errorf("its version is %s", version)
	}
	return errors.Join(err, admin.get(ctx, "/readyz", nil))
}

func nodeIsReady(ctx context.Context, admin client, name string, r release) error {
	ready, version, err := admin.nodeReady(ctx, name)
	switch {
	case err != nil:
		return err
	case !ready:
		return errors.New("not Ready")
	case version != "v"+r.version:
		return fmt.Errorf("its kubelet has version %s", version)
	}
	return nil
}

func dnsIsAvailable(ctx context.Context, admin client) error {
	n, err := admin.available(ctx, "kube-system", "coredns")
	if err == nil && n == 0 {
		err = errors.New("no replica available; see 'kubectl describe pod' in kube-system")
	}
	return err
}

// watching polls f while the cluster's nodes run, as long as tests wait. A node that ended on its
// own says in its log why.
func (t Testbed) watching(ctx context.Context, c Cluster, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience.Limit, fmt.Errorf("not within %s", patience.Limit))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	return poll(ctx, func() error {
		for _, node := range c.nodes() {
			if _, running := t.initOf(c, node); !running {
				stop(fmt.Errorf("node %s ended; last lines of %s:\n%s", c.nodeName(node), t.logFile(c, node, "init"), t.lastLines(c, node, "init", 5)))
				return errors.New("node ended")
			}
		}
		return f()
	})
}

// writeAdmin makes the cluster's authority and its administrator's kubeconfig, once.
func (t Testbed) writeAdmin(c Cluster) error {
	if _, err := os.Stat(t.kubeconfig(c)); err == nil {
		return nil
	}
	ca, err := openAuthority(t.pkiDir(c), c, time.Now())
	if err != nil {
		return err
	}
	cert, key, err := ca.issue(adminIdentity())
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(t.pkiDir(c), "admin.crt"), cert, 0o644); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(t.pkiDir(c), "admin.key"), key, 0o600); err != nil {
		return err
	}
	server := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(c.Port))
	return writeFile(t.kubeconfig(c), []byte(kubeconfig(c, server, ca.certPEM(), cert, key)), 0o600)
}

//go:embed coredns.yaml
var coreDNS string

//go:embed metrics-server.yaml
var metricsManifest string

// bootstrap applies what a cluster has from its beginning: Node objects, a storage class, CoreDNS,
// and the metrics server if its nodes have the image.
func (t Testbed) bootstrap(ctx context.Context, c Cluster, admin client) error {
	type object struct{ path, body string }
	var objects []object
	for _, node := range c.workers() {
		objects = append(objects, object{"/api/v1/nodes/" + c.nodeName(node), nodeObject(c, node)})
	}
	replacer := strings.NewReplacer("__DNS__", c.dns().String(), "__NAMES__", t.inetDir())
	manifests := coreDNS
	if slices.Contains(c.Images, t.imageFile(metricsServer)) {
		manifests += metricsManifest[strings.Index(metricsManifest, "\n---\n"):]
	}
	if c.Nodes > 0 {
		objects = append(objects, object{storageClassPath, storageClass})
		for _, document := range strings.Split(manifests, "\n---\n")[1:] {
			path, body, _ := strings.Cut(document, "\n")
			objects = append(objects, object{strings.TrimPrefix(path, "# "), replacer.Replace(body)})
		}
	}
	for _, o := range objects {
		// The API server makes kube-system and the first roles after it is ready.
		if err := t.watching(ctx, c, func() error { return admin.apply(ctx, o.path, o.body) }); err != nil {
			return fmt.Errorf("apply %s in %s: %w", o.path, c.Name, err)
		}
	}
	return nil
}

// down removes clusters wholly. Without names it removes everything of this testbed,
// also what no file knows of.
func (t Testbed) down(names []string) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	existing, err := t.leftovers()
	if err != nil {
		return err
	}
	var stops []func() error
	for cluster, nodes := range existing {
		if len(names) == 0 || slices.Contains(names, cluster) {
			stops = append(stops, func() error { return t.downCluster(cluster, nodes) })
		}
	}
	if err := parallel(stops...); err != nil {
		return err
	}
	rest, err := t.leftovers()
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return t.forgetRemoved()
	}
	return t.removeRest()
}

// leftovers are the nodes by cluster that have a file, a namespace or a cgroup.
func (t Testbed) leftovers() (map[string][]string, error) {
	found := map[string][]string{}
	cgroups, err := t.cgroupNodes()
	if err != nil {
		return nil, err
	}
	for _, nodeName := range append(t.netnsList(), cgroups...) {
		if i := strings.LastIndexByte(nodeName, '-'); i > 0 && !slices.Contains(found[nodeName[:i]], nodeName) {
			found[nodeName[:i]] = append(found[nodeName[:i]], nodeName)
		}
	}
	files, err := filepath.Glob(filepath.Join(t.Dir, "*", "cluster.json"))
	for _, f := range files {
		cluster := filepath.Base(filepath.Dir(f))
		found[cluster] = found[cluster][:len(found[cluster]):len(found[cluster])]
	}
	return found, err
}

func (t Testbed) downCluster(cluster string, nodeNames []string) error {
	began := time.Now()
	var stops []func() error
	for _, nodeName := range nodeNames {
		stops = append(stops, func() error { return t.stopNode(nodeName) })
	}
	if err := parallel(stops...); err != nil {
		return err
	}
	if err := t.removeBridge(cluster); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(t.Dir, cluster)); err != nil {
		return err
	}
	fmt.Printf("%-11s %5.1fs  removed\n", cluster, time.Since(began).Seconds())
	return nil
}

// removeRest takes away what the clusters shared.
func (t Testbed) removeRest() error {
	if err := errors.Join(t.registryDown(), t.endProcesses(relayName), t.removeCgroups(relayName)); err != nil {
		return err
	}
	if slices.Contains(t.netnsList(), inetSpace) {
		if err := t.deleteNetns(inetSpace); err != nil {
			return err
		}
	}
	return errors.Join(t.removeCgroups(""), os.RemoveAll(t.Dir))
}

// checkMachine refuses a machine on which clusters cannot start, and says what to do.
func (t Testbed) checkMachine() error {
	if missing := missingPrograms(); len(missing) > 0 {
		return fmt.Errorf("programs are missing: %s; run 'go run ./testbed deps'", strings.Join(missing, " "))
	}
	if err := os.MkdirAll(t.Dir, 0o755); err != nil {
		return err
	}
	var fs syscall.Statfs_t
	if err := syscall.Statfs(t.Dir, &fs); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", t.Dir, err)
	}
	const overlayMagic = 0x794c7630
	if fs.Type == overlayMagic {
		return fmt.Errorf("%s lies on an overlay file system, on which containers cannot have theirs; choose a directory on a disk with --dir", t.Dir)
	}
	return nil
}
