// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks;ips,verbs=get;list;watch;create;patch;delete

// configuration turns a peer's CIDRs into Networks.
func (o Options) configuration() ctl.Registrar {
	all := &netv1beta1.ConfigurationList{}
	return ctl.Controller[*netv1beta1.Configuration, plan.ConfigurationInput]{
		Name: "configuration", EndsWithNamespace: []client.Object{},
		Owns: []client.Object{&ipamv1alpha1.Network{}, &ipamv1alpha1.IP{}},
		Watches: []ctl.Watch{
			{Kind: &netv1beta1.Configuration{}, Map: ctl.SameLabel(all, api.LabelRemoteClusterID)},
			{Kind: &ipamv1alpha1.Network{}, Map: o.onOwnNetworks(ctl.All(all))},
		},
		Gather: func(ctx context.Context, r ctl.Reader,
			root *netv1beta1.Configuration) (plan.ConfigurationInput, error) {
			in := plan.ConfigurationInput{Root: root, LiqoNamespace: o.LiqoNamespace, Now: time.Now()}
			var configurations netv1beta1.ConfigurationList
			if err := list(ctx, r, &configurations, ofPeer(root)); err != nil {
				return in, err
			}
			in.Configurations = configurations.Items
			for _, namespace := range slices.Compact([]string{root.Namespace, o.LiqoNamespace}) {
				var networks ipamv1alpha1.NetworkList
				if err := list(ctx, r, &networks, client.InNamespace(namespace)); err != nil {
					return in, err
				}
				in.Networks = append(in.Networks, networks.Items...)
			}
			var fields metav1.PartialObjectMetadata // the cache holds no owners of fields
			fields.SetGroupVersionKind(netv1beta1.GroupVersion.WithKind("Configuration"))
			_, err := ctl.Optional(ctx, r.Live, client.ObjectKeyFromObject(root), &fields)
			if err != nil {
				return in, err
			}
			in.UsersLocal = plan.UserOwns(&fields, "local")
			unknown := client.ObjectKey{Namespace: root.Namespace, Name: api.UnknownSourceIPName(root.Name)}
			in.UnknownSource, err = ctl.Optional(ctx, r, unknown, &ipamv1alpha1.IP{})
			return in, err
		},
		Plan: plan.Configuration,
	}
}
