// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/identity/plan"
)

// facts holds what the installation needs to know of the cluster.
type facts struct {
	id string
	// installed is the ID of the existing installation; empty if there is none.
	installed    string
	pods         []string
	services     string
	apiServerURL string
	// reserved holds the ranges of nodes, which are never used for peers.
	reserved []string
}

const (
	// Ranges assumed for kubeadm clusters without a readable controller manager.
	kubeadmPods     = "172.16.0.0/16"
	kubeadmServices = "10.96.0.0/12"
	// K3s' own defaults.
	k3sPods     = "10.42.0.0/16"
	k3sServices = "10.43.0.0/16"
)

// facts reads the facts from the cluster; flags override them.
func (c *cluster) facts(ctx context.Context, o *installOptions) (facts, error) {
	f := facts{id: string(o.id), pods: o.pods, services: string(o.services), apiServerURL: o.apiServerURL}
	var err error
	if f.installed, err = c.installedID(ctx); err != nil {
		return f, err
	}
	if err := c.checkForeign(ctx); err != nil {
		return f, err
	}
	if o.provider == "gke" { // where the flag names GKE's cluster
		f.id = cmp.Or(f.installed, f.id)
	}
	if err := c.checkID(f.installed, f.id); err != nil {
		return f, err
	}
	f.id = cmp.Or(f.id, f.installed, randomID())
	switch o.provider {
	case "kubeadm", "kind":
		if f.pods, f.services, err = c.kubeadmRanges(ctx); err != nil {
			return f, err
		}
	case "k3s":
		if len(f.pods) == 0 {
			f.pods = []string{k3sPods}
		}
		f.services = cmp.Or(f.services, k3sServices)
	case "aks", "eks", "gke", "openshift":
		if err := c.readCloud(ctx, o, &f); err != nil {
			return f, err
		}
	}
	if len(f.pods) == 0 && !o.setsValue("ipam.podCIDR") {
		return f, fmt.Errorf("the address range of the pods is not known; give %s", o.podsBy())
	}
	if f.services == "" && !o.setsValue("ipam.serviceCIDR") {
		return f, fmt.Errorf("the address range of the Services is not known; give %s", o.servicesBy())
	}
	if host := c.config.Host; f.apiServerURL == "" && o.provider != "kind" && !isInternalURL(host) {
		f.apiServerURL = host
	}
	return f, nil
}

// podsBy returns how to set the pods' ranges.
func (o *installOptions) podsBy() string {
	return o.flagOr("--pod-cidr", "--set 'ipam.podCIDRs={…}'")
}

// servicesBy returns how to set the Services' range.
func (o *installOptions) servicesBy() string {
	return o.flagOr("--service-cidr", "--set ipam.serviceCIDR=…")
}

// flagOr returns the flag of a range, or instead if the provider has no such flag, since its ranges
// are read from the cluster.
func (o *installOptions) flagOr(flag, instead string) string {
	if hasCIDRFlags(o.provider) {
		return flag
	}
	return instead
}

// setsValue reports whether the user sets a chart value, by --set or in a file.
func (o *installOptions) setsValue(key string) bool {
	sets := append(o.values.Values, o.values.StringValues...)
	return len(o.values.ValueFiles) > 0 ||
		slices.ContainsFunc(sets, func(set string) bool { return strings.Contains(set, key) })
}

// installedID returns the cluster ID of an earlier installation; empty if there is none.
func (c *cluster) installedID(ctx context.Context) (string, error) {
	stored, err := c.storedID(ctx)
	if err != nil {
		return "", err
	}
	return stored.Data[api.ClusterIDConfigMapKey], nil
}

// randomID returns a random name that is easy to pronounce.
func randomID() string {
	adjectives := strings.Fields("amber bold brisk calm clear coral crisp dawn deep dry early fair fresh gentle " +
		"golden green keen light lively lucid mellow misty noble pale quick quiet rapid red round sharp silent " +
		"silver soft still sunny swift warm wild winter young")
	nouns := strings.Fields("bay beach bird breeze brook canyon cliff cloud dune dust falls feather field fire fjord " +
		"forest glade grove harbor haze hill island lake leaf meadow mist moon moor ocean paper pine pond rain reef " +
		"ridge river sea shore sky snow spring star stone stream sun surf tide valley water wave wind wood")
	return adjectives[rand.IntN(len(adjectives))] + "-" + nouns[rand.IntN(len(nouns))]
}

// kubeadmRanges reads the ranges from the arguments of the controller manager's pod.
func (c *cluster) kubeadmRanges(ctx context.Context) (pods []string, services string, err error) {
	found := &corev1.PodList{}
	err = c.List(ctx, found, client.InNamespace("kube-system"),
		client.MatchingLabels{"component": "kube-controller-manager"})
	if err != nil {
		return nil, "", fmt.Errorf("list pods of the controller manager: %w", err)
	}
	pods, services = []string{kubeadmPods}, kubeadmServices
	for _, pod := range found.Items {
		if value := flagIn(pod.Spec, "cluster-cidr"); value != "" {
			pods = strings.Split(value, ",")
		}
		if value := flagIn(pod.Spec, "service-cluster-ip-range"); value != "" {
			services, _, _ = strings.Cut(value, ",")
		}
	}
	return pods, services, nil
}

// chartValues returns the computed values, without those that the user sets.
func (o *installOptions) chartValues(f facts) map[string]any {
	labels := map[string]any{}
	if o.provider != "" && o.provider != "generic" {
		labels["liqo.io/provider"] = o.provider
	}
	for k, v := range o.labels {
		labels[k] = v
	}
	vals := map[string]any{
		"discovery": map[string]any{"config": map[string]any{"clusterID": f.id, "clusterLabels": labels}},
		"ipam":      map[string]any{"reservedSubnets": anys(append(o.reserved, f.reserved...))},
		"apiServer": map[string]any{"address": f.apiServerURL},
		"metrics":   map[string]any{"enabled": o.metrics},
	}
	ipam := vals["ipam"].(map[string]any)
	if len(f.pods) > 0 {
		ipam["podCIDRs"] = anys(f.pods)
	}
	if f.services != "" {
		ipam["serviceCIDR"] = f.services
	}
	if o.provider == "openshift" {
		vals["openshiftConfig"] = map[string]any{"enabled": true}
	}
	if o.anyKernel {
		vals["requirements"] = map[string]any{"kernel": map[string]any{"enabled": false}}
	}
	return vals
}

func anys(list []string) []any {
	out := []any{}
	for _, item := range list {
		out = append(out, item)
	}
	return out
}

// valueAt returns a text in nested values; empty if it does not exist.
func valueAt(vals map[string]any, path ...string) string {
	text, _, _ := unstructured.NestedString(vals, path...)
	return text
}

// isInternalURL reports whether an API server's URL is valid only in this cluster or on this
// machine.
func isInternalURL(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return true
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast()
	}
	return host == "" || host == "localhost" || host == "kubernetes" || strings.HasPrefix(host, "kubernetes.default") ||
		strings.HasSuffix(host, ".svc") || strings.HasSuffix(host, ".cluster.local")
}

// checkID refuses to rename a cluster, since its peers refer to it by its ID.
func (c *cluster) checkID(installed, wanted string) error {
	if installed == "" || wanted == installed || wanted == "" {
		return nil
	}
	return fmt.Errorf("this cluster's ID is %q and cannot become %q: peers know the cluster by it; leave "+
		"--cluster-id out, or run '%s uninstall' first",
		installed, wanted, c.env.name)
}

const remedyURL = "give the URL at which peers reach this cluster with --api-server-url"

// checkURL refuses a URL of the API server that peers cannot use. An empty one is valid.
func checkURL(address string, sane bool) error {
	u, err := url.Parse(address)
	switch {
	case address == "":
		return nil
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("the API server's URL %q is not an https URL; %s", address, remedyURL)
	case sane && isInternalURL(address):
		return fmt.Errorf("the API server's URL %s cannot be used from other clusters; %s", address, remedyURL)
	}
	return nil
}

// checkAPIServer checks the URL for peers. Without one the controller uses the address of a
// control-plane node, so there must be such a node.
func (c *cluster) checkAPIServer(ctx context.Context, address string, sane bool) error {
	if err := checkURL(address, sane); err != nil || !sane {
		return err
	}
	if address != "" {
		if u, _ := url.Parse(address); c.isServiceAddress(ctx, u.Hostname()) {
			return fmt.Errorf("the API server's URL %s is a Service address of this cluster; %s", address, remedyURL)
		}
		return nil
	}
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return plan.ControlPlaneNode(&n) }) {
		return nil
	}
	return fmt.Errorf("the URL of this cluster's API server is not known: the kubeconfig says %s, and no node is a "+
		"control plane; %s", c.config.Host, remedyURL)
}

func (c *cluster) isServiceAddress(ctx context.Context, host string) bool {
	service := &corev1.Service{}
	err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "kubernetes"}, service)
	return err == nil && service.Spec.ClusterIP == host
}

// podCIDRs returns the pods' ranges as the chart does: the deprecated ipam.podCIDR counts only
// without ipam.podCIDRs.
func podCIDRs(vals map[string]any) []string {
	if several, _, _ := unstructured.NestedStringSlice(vals, "ipam", "podCIDRs"); len(several) > 0 {
		return several
	}
	return []string{valueAt(vals, "ipam", "podCIDR")}
}

// checkNetworks refuses to replace a range: that of an existing Network never changes. The first
// pod range has the Network pod-cidr, and others can be added after it.
func (c *cluster) checkNetworks(ctx context.Context, vals map[string]any) error {
	pods := podCIDRs(vals)
	wanted := map[string]string{
		api.NetworkPodCIDR:      pods[0],
		api.NetworkServiceCIDR:  valueAt(vals, "ipam", "serviceCIDR"),
		api.NetworkExternalCIDR: valueAt(vals, "ipam", "externalCIDR"),
		api.NetworkInternalCIDR: valueAt(vals, "ipam", "internalCIDR"),
	}
	networks, err := c.all(ctx, &ipamv1alpha1.NetworkList{}, client.InNamespace(c.namespace))
	if err != nil {
		return err
	}
	for _, object := range networks {
		have, want := object.(*ipamv1alpha1.Network).Spec.CIDR, wanted[object.GetName()]
		if want == "" || want == have {
			continue
		}
		remedy := "keep it"
		if object.GetName() == api.NetworkPodCIDR && slices.Contains(pods, have) {
			remedy = "name it first"
		}
		return fmt.Errorf("the %s range is %s and cannot become %s; %s, or run '%s uninstall' first",
			strings.TrimSuffix(object.GetName(), "-cidr"), have, want, remedy, c.env.name)
	}
	return nil
}

// checkRanges compares the ranges with the addresses in use, since a wrong range breaks the network
// without an error.
func (c *cluster) checkRanges(ctx context.Context, o *installOptions, vals map[string]any) error {
	podRanges, err := prefixes(podCIDRs(vals))
	if err != nil {
		return fmt.Errorf("ipam.podCIDRs: %w", err)
	}
	serviceRanges, err := prefixes([]string{valueAt(vals, "ipam", "serviceCIDR")})
	if err != nil {
		return fmt.Errorf("ipam.serviceCIDR: %w", err)
	}
	pods, services := &corev1.PodList{}, &corev1.ServiceList{}
	if err := c.List(ctx, pods); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for _, pod := range pods.Items {
		if pod.Spec.HostNetwork || pod.Status.Phase != corev1.PodRunning || pod.Labels[api.LabelShadowPod] != "" ||
			pod.Status.PodIP == "" {
			continue
		}
		if !inRanges(pod.Status.PodIP, podRanges) {
			return fmt.Errorf(
				"pod %s/%s has address %s, outside the pod range %v; correct %s, or use --skip-validation",
				pod.Namespace, pod.Name, pod.Status.PodIP, podRanges, o.podsBy())
		}
	}
	if err := c.List(ctx, services); err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	for _, service := range services.Items {
		if address := service.Spec.ClusterIP; address != "" && address != corev1.ClusterIPNone &&
			!inRanges(address, serviceRanges) {
			return fmt.Errorf(
				"service %s/%s has address %s, outside the Service range %v; correct %s, or use --skip-validation",
				service.Namespace, service.Name, address, serviceRanges, o.servicesBy())
		}
	}
	return nil
}

func prefixes(texts []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range texts {
		if text == "" {
			continue
		}
		p, err := parseCIDR(text)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func inRanges(address string, ranges []netip.Prefix) bool {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return false
	}
	return len(ranges) == 0 || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// ignoredValues returns the lines of the chart's notes that name values without effect.
func ignoredValues(notes string) []string {
	var out []string
	for _, line := range strings.Split(notes, "\n") {
		if text, ok := strings.CutPrefix(line, "Ignored: "); ok {
			out = append(out, "Value "+text)
		}
	}
	return out
}
