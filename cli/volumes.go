// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
	storage "github.com/liqo-go/liqo/storage/plan"
)

// claimFilter selects claims by their provider.
type claimFilter func(claim *corev1.ObjectReference, provider string) bool

// warnOfLoss names the chosen claims with volumes at providers. If the user may not list them, it
// warns that there may be some, and returns true.
func (s *script) warnOfLoss(c *cluster, chosen claimFilter) (lost bool, err error) {
	claims, err := c.claimsAtProviders(s.ctx, chosen)
	return s.warnOfLostClaims(c, claims, err, fmt.Sprintf("; '%s move volume' keeps what you need", c.env.name))
}

// claimsAtProviders returns the chosen claims with volumes at providers.
func (c *cluster) claimsAtProviders(ctx context.Context, chosen claimFilter) ([]string, error) {
	offloadings, err := c.all(ctx, &offv1beta1.NamespaceOffloadingList{})
	if err != nil {
		return nil, err
	}
	offloaded := map[string]bool{} // the remote namespaces of others are gone
	for _, offloading := range offloadings {
		offloaded[offloading.GetNamespace()] = true
	}
	volumes, err := c.all(ctx, &corev1.PersistentVolumeList{}, client.HasLabels{api.LabelRemoteClusterID})
	if err != nil {
		return nil, err
	}
	var claims []string
	for _, object := range volumes {
		claim := object.(*corev1.PersistentVolume).Spec.ClaimRef
		if claim != nil && offloaded[claim.Namespace] && chosen(claim, object.GetLabels()[api.LabelRemoteClusterID]) {
			claims = append(claims, claimAt(claim.Namespace, claim.Name, object.GetLabels()[api.LabelRemoteClusterID]))
		}
	}
	return claims, nil
}

// claimAt returns the name in messages of a claim with its volume at a provider.
func claimAt(namespace, name, provider string) string {
	return fmt.Sprintf("%s/%s at %s", namespace, name, provider)
}

// confirmUnpeer asks before the volumes of all namespaces at a provider are lost, including those
// of claims that the consumer does not have.
func (s *script) confirmUnpeer(consumer, provider *cluster) error {
	known, err := consumer.claimsAtProviders(s.ctx,
		func(_ *corev1.ObjectReference, at string) bool { return at == provider.id })
	lost, err := s.warnOfLostClaims(consumer, known, err,
		fmt.Sprintf("; '%s move volume' keeps what you need", consumer.env.name))
	if err != nil {
		return err
	}
	others, err := consumer.otherClaims(s.ctx, provider, known)
	if err != nil {
		return err
	}
	more, err := s.warnOfLostClaims(provider, others, nil, "")
	if err != nil || !lost && !more {
		return err
	}
	return s.confirm("unpeer")
}

// otherClaims returns the claims in the remote namespaces at a provider that are not known: others
// created them, or a policy kept them. It leaves out claims that are owned by a pod. A
// peering user may not list any.
func (c *cluster) otherClaims(ctx context.Context, provider *cluster, known []string) ([]string, error) {
	if c.tenant == "" || provider.tenant == "" { // there is none, or the provider does not answer
		return nil, nil
	}
	maps, err := c.all(ctx, &offv1beta1.NamespaceMapList{}, client.InNamespace(c.tenant),
		client.MatchingLabels{api.LabelReplication: api.True, api.LabelRemoteClusterID: provider.id})
	if err != nil || len(maps) == 0 {
		return nil, err
	}
	local := map[string]string{} // by remote namespace
	for _, m := range maps {
		for namespace, at := range m.(*offv1beta1.NamespaceMap).Status.CurrentMapping {
			if at.Phase == offv1beta1.NamespaceAccepted {
				local[at.RemoteNamespace] = namespace
			}
		}
	}
	claims, err := provider.all(ctx, &corev1.PersistentVolumeClaimList{})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	var names []string
	for _, claim := range claims {
		namespace, ours := local[claim.GetNamespace()]
		owner := metav1.GetControllerOf(claim)
		if ours && (owner == nil || owner.Kind != "Pod") &&
			!slices.Contains(known, claimAt(namespace, claim.GetName(), provider.id)) {
			names = append(names, provider.nameOf(claim))
		}
	}
	return names, err
}

// warnOfLostClaims names claims whose data will be lost and reports whether there may be any. If
// err, the error of listing them, is that the user may not, it warns that they are unknown.
func (s *script) warnOfLostClaims(c *cluster, claims []string, err error, remedy string) (lost bool, _ error) {
	switch {
	case apierrors.IsForbidden(err):
		s.warn(c.side, "Which volumes will be lost cannot be told: %v", err)
		return true, nil
	case err != nil || len(claims) == 0:
		return false, err
	}
	noun := "volumes"
	if len(claims) == 1 {
		noun = "volume"
	}
	s.warn(c.side, "The data of %d %s will be lost: %s%s", len(claims), noun, someNames(claims), remedy)
	return true, nil
}

// placement holds what decides to which providers namespaces are extended.
type placement struct {
	offloadings offv1beta1.NamespaceOffloadingList
	nodes       offv1beta1.VirtualNodeList
	byName      map[string]corev1.Node
	maps        offv1beta1.NamespaceMapList
}

func (c *cluster) placement(ctx context.Context) (*placement, error) {
	r, nodes := &placement{byName: map[string]corev1.Node{}}, corev1.NodeList{}
	err := inParallel(
		func() error { return c.List(ctx, &r.offloadings) },
		func() error { return c.List(ctx, &r.nodes) },
		func() error { return c.List(ctx, &r.maps) },
		func() error { return c.List(ctx, &nodes, client.MatchingLabels{api.LabelType: api.TypeVirtualNode}) },
	)
	if err != nil {
		return nil, fmt.Errorf("find where namespaces are extended to: %w", err)
	}
	r.nodes.Items = slices.DeleteFunc(r.nodes.Items,
		func(n offv1beta1.VirtualNode) bool { return n.DeletionTimestamp != nil })
	for _, node := range nodes.Items {
		r.byName[node.Name] = node
	}
	return r, nil
}

// losses returns the providers to which change ends the extension, by namespace.
func (r *placement) losses(change func(*placement)) map[string][]string {
	before := plan.Extended(r.offloadings.Items, r.nodes.Items, r.byName, r.maps.Items)
	change(r)
	after := plan.Extended(r.offloadings.Items, r.nodes.Items, r.byName, r.maps.Items)
	for namespace := range before {
		before[namespace] = slices.DeleteFunc(before[namespace],
			func(id string) bool { return slices.Contains(after[namespace], id) })
	}
	return before
}

// confirmLosses asks before volumes are lost of namespaces that will no longer be extended to a
// provider.
func (s *script) confirmLosses(c *cluster, verb string, losses map[string][]string) error {
	if !slices.ContainsFunc(slices.Collect(maps.Values(losses)), func(ids []string) bool { return len(ids) > 0 }) {
		return nil
	}
	lost, err := s.warnOfLoss(c, func(claim *corev1.ObjectReference, at string) bool {
		return slices.Contains(losses[claim.Namespace], at)
	})
	if !lost || err != nil {
		return err
	}
	return s.confirm(verb)
}

// storedData returns a line about the claims whose data a purge would delete; none if there are no
// such claims.
func (c *cluster) storedData(ctx context.Context) ([]string, error) {
	backing, err := c.all(ctx, &corev1.PersistentVolumeClaimList{}, client.HasLabels{api.LabelVirtualPVCNamespace})
	if err != nil || len(backing) == 0 {
		return nil, err
	}
	var claims []string
	for _, object := range backing {
		claim := storage.BackedBy(object)
		claims = append(claims, claim.Namespace+"/"+cmp.Or(claim.Name, object.GetName()))
	}
	return []string{fmt.Sprintf("data of the claims %s in namespace %s: delete the claims, or leave --purge out",
		someNames(claims), backing[0].GetNamespace())}, nil
}
