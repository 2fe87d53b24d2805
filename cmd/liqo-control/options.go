// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// complete fills in the options that several rooms share, and those that are decoded from texts.
func (f *controllerFlags) complete(config *rest.Config) (err error) {
	f.peering.LiqoNamespace, f.defaults.LiqoNamespace = f.liqoNamespace, f.liqoNamespace
	f.identity.ClusterID, f.identity.LiqoNamespace = f.clusterID, f.liqoNamespace
	f.identity.RealStorageClass = f.storage.RealClass
	f.network.ClusterID, f.network.LiqoNamespace = f.clusterID, f.liqoNamespace
	f.offloading.StorageNamespace = f.storage.Namespace
	kubelet := &f.offloading.Kubelet
	kubelet.ClusterID, kubelet.LiqoNamespace, kubelet.Storage = f.clusterID, f.liqoNamespace, f.identity.StorageEnabled
	if err := f.completeIdentity(config); err != nil {
		return err
	}
	if f.network.Pools, err = prefixes(f.pools); err != nil {
		return fmt.Errorf("flag --ipam-pools: %w", err)
	}
	if f.offloading.DefaultOptions, err = key(f.vkOptionsTemplate); err != nil {
		return fmt.Errorf("flag --vk-options-default-template: %w", err)
	}
	if err := decode("--guest-pods", f.guestPods, &f.offloading.GuestPods); err != nil {
		return err
	}
	if err := f.offloading.Namespaces.Check(); err != nil {
		return fmt.Errorf("flags --allowed-namespaces and --denied-namespaces: %w", err)
	}
	return decode("--namespace-bounds", f.namespaceBounds, &f.offloading.NamespaceBounds)
}

// shortestLifetime is the minimum of CertificateSigningRequestSpec.expirationSeconds.
const shortestLifetime = 10 * time.Minute

// completeIdentity fills in those options of the identity room that are decoded from texts.
func (f *controllerFlags) completeIdentity(config *rest.Config) error {
	o := &f.identity
	if o.CertificateLifetime < shortestLifetime || o.CertificateLifetime.Seconds() > math.MaxInt32 {
		return fmt.Errorf("flag --certificate-lifetime: %s is less than %s or more than 68 years",
			o.CertificateLifetime, shortestLifetime)
	}
	var err error
	if o.ClusterLabels, err = pairs("--cluster-labels", f.clusterLabels); err != nil {
		return err
	}
	o.DefaultNodeResources = corev1.ResourceList{}
	for name, amount := range f.defaultResources {
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return fmt.Errorf("flag --default-node-resources: %s=%s: %w", name, amount, err)
		}
		o.DefaultNodeResources[corev1.ResourceName(name)] = q
	}
	for _, entry := range f.ingressClasses {
		name, isDefault := class(entry)
		o.IngressClasses = append(o.IngressClasses, authv1beta1.IngressType{IngressClassName: name, Default: isDefault})
	}
	for _, entry := range f.lbClasses {
		name, isDefault := class(entry)
		o.LoadBalancerClasses = append(o.LoadBalancerClasses,
			authv1beta1.LoadBalancerType{LoadBalancerClassName: name, Default: isDefault})
	}
	switch e := strings.ToLower(f.limitsEnforcement); e {
	case "none", "soft", "hard":
		o.DefaultLimitsEnforcement = offv1beta1.LimitsEnforcement(strings.ToUpper(e[:1]) + e[1:])
	default:
		return fmt.Errorf("flag --default-limits-enforcement: %q is none of None, Soft, Hard", f.limitsEnforcement)
	}
	if err := decode("--ceilings", f.ceilings, &o.Ceilings); err != nil {
		return err
	}
	if err := decode("--tell", f.tell, &o.Tell); err != nil {
		return err
	}
	return f.loadCA(config)
}

// loadCA uses the bundle of the flag, or the one by which this process verifies its API server.
func (f *controllerFlags) loadCA(config *rest.Config) (err error) {
	if f.ca != "" {
		if f.identity.CA, err = base64.StdEncoding.DecodeString(f.ca); err != nil {
			return fmt.Errorf("flag --ca-override: %w", err)
		}
		return nil
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("load CA of the API server: %w", err)
	}
	f.identity.CA = config.CAData
	return nil
}

// global returns the labels and annotations of all objects made in this cluster.
func (f *controllerFlags) global() (g ctl.Global, err error) {
	if g.Labels, err = pairs("--global-labels", f.globalLabels); err != nil {
		return g, err
	}
	g.Annotations, err = pairs("--global-annotations", f.globalAnnotations)
	return g, err
}

// pairs reads `k=v,k=v` or, because values may contain commas, a JSON object of texts.
func pairs(flag, text string) (map[string]string, error) {
	out := map[string]string{}
	if strings.HasPrefix(text, "{") {
		return out, decode(flag, text, &out)
	}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok && text != "" {
			return nil, fmt.Errorf("flag %s: %q is not k=v", flag, pair)
		}
		if ok {
			out[key] = value
		}
	}
	return out, nil
}

// class splits `name;default`.
func class(entry string) (name string, isDefault bool) {
	name, mark, _ := strings.Cut(entry, ";")
	return name, mark == "default"
}

// decode reads the JSON of a flag, which is a value of the chart. An unknown key is an error.
func decode(flag, text string, into any) error {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("flag %s: %w", flag, err)
	}
	return nil
}

func prefixes(list []string) ([]netip.Prefix, error) {
	out := make([]netip.Prefix, 0, len(list))
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func key(s string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok {
		return types.NamespacedName{}, fmt.Errorf("%q is not namespace/name", s)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
