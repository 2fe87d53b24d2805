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
	"github.com/liqo-go/liqo/identity"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/network"
	"github.com/liqo-go/liqo/offloading"
	offloadingplan "github.com/liqo-go/liqo/offloading/plan"
)

func (f *controllerFlags) network(pools []netip.Prefix, links *remote.Fleet) network.Options {
	return network.Options{
		ClusterID: f.clusterID, LiqoNamespace: f.liqoNamespace, Pools: pools, APIServerEndpoints: f.apiServerEndpoints,
		GatewayImage:        f.gatewayImage,
		ProtectedNamespaces: f.protectedNamespaces, Links: links,
	}
}

// offload translates flags into the options of the offloading room, but for those that are decoded.
func (f *controllerFlags) offload(defaults types.NamespacedName) offloading.Options {
	return offloading.Options{
		Kubelet: offloadingplan.KubeletSettings{
			ClusterID: f.clusterID, LiqoNamespace: f.liqoNamespace, PodCIDRs: f.podCIDRs, ReflectIPs: f.reflectIPs,
			Storage:      f.storage,
			RuntimeClass: f.runtimeClass,
		},
		DefaultOptions:        defaults,
		EnforceResources:      f.enforceResources,
		PodSecurity:           f.podSecurity,
		StorageNamespace:      f.storageNamespace,
		DenyDirectConnections: f.denyDirectConnections,
		ReplaceLostPods:       f.nodeFailure,
		WebhookPort:           f.webhookPort,
		WebhookSecret:         f.webhookSecret,

		ShadowPodWorkers:           f.shadowPodWorkers,
		ShadowEndpointSliceWorkers: f.shadowEndpointSliceWorkers,
	}
}

// shortestLifetime is the least that may be asked of a signer (CertificateSigningRequestSpec.expirationSeconds).
const shortestLifetime = 10 * time.Minute

// identity translates flags into the options of the identity room.
func (f *controllerFlags) identity(config *rest.Config) (identity.Options, error) {
	o := identity.Options{
		ClusterID:                        f.clusterID,
		LiqoNamespace:                    f.liqoNamespace,
		ClusterLabels:                    f.clusterLabels,
		DefaultNodeResources:             corev1.ResourceList{},
		DefaultResourceSliceClassEnabled: f.defaultClass,
		StorageEnabled:                   f.storage,
		RealStorageClass:                 f.realStorageClass,
		TLSCompatibility:                 f.tlsCompatibility,
		APIServerAddress:                 f.apiServerAddress,
		TrustedCA:                        f.trustedCA,
		CertificateLifetime:              f.certificateLifetime,
	}
	if f.certificateLifetime < shortestLifetime || f.certificateLifetime.Seconds() > math.MaxInt32 {
		return o, fmt.Errorf("flag --certificate-lifetime: %s is less than %s or more than 68 years",
			f.certificateLifetime, shortestLifetime)
	}
	for name, amount := range f.defaultResources {
		q, err := resource.ParseQuantity(amount)
		if err != nil {
			return o, fmt.Errorf("flag --default-node-resources: %s=%s: %w", name, amount, err)
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
		return o, fmt.Errorf("flag --default-limits-enforcement: %q is none of None, Soft, Hard", f.limitsEnforcement)
	}
	var err error
	if o.Ceilings, err = decode[identityplan.Ceilings]("--ceilings", f.ceilings); err != nil {
		return o, err
	}
	return o, f.loadCA(config, &o)
}

// loadCA takes the bundle of the flag, else the one this process trusts its API server with.
func (f *controllerFlags) loadCA(config *rest.Config, o *identity.Options) error {
	if f.ca != "" {
		pem, err := base64.StdEncoding.DecodeString(f.ca)
		if err != nil {
			return fmt.Errorf("flag --ca-override: %w", err)
		}
		o.CA = pem
		return nil
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("load CA of the API server: %w", err)
	}
	o.CA = config.CAData
	return nil
}

// class splits `name;default`.
func class(entry string) (name string, isDefault bool) {
	name, mark, _ := strings.Cut(entry, ";")
	return name, mark == "default"
}

// decode reads the JSON of a flag, which is a value of the chart; a key that is not known is an error.
func decode[T any](flag, text string) (value T, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&value); err != nil {
		return value, fmt.Errorf("flag %s: %w", flag, err)
	}
	return value, nil
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
