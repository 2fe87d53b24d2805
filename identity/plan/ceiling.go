// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// ceilingInterval is how long to wait before a slice above a ceiling is checked again. No event of
// the slice shows that another one, of any consumer, has been reduced or deleted.
const ceilingInterval = time.Minute

// Ceilings bound what slices of the default class are granted. A resource that is not named is not
// bounded.
type Ceilings struct {
	// Slice bounds each slice, Consumer all slices of one consumer, and Total those of all
	// consumers.
	Slice    corev1.ResourceList `json:"slice,omitempty"`
	Consumer corev1.ResourceList `json:"consumer,omitempty"`
	Total    corev1.ResourceList `json:"total,omitempty"`
}

// Changes reports whether the slice is to be granted other amounts than it has. Other slices and
// the nodes matter only then.
func (in GrantedSlice) Changes() bool {
	return in.Root.DeletionTimestamp == nil && defaultClass(in.Root) &&
		!equality.Semantic.DeepEqual(in.amounts(), in.granted())
}

// granted returns the amounts granted to the slice; nil while it is not accepted.
func (in GrantedSlice) granted() corev1.ResourceList {
	if accepted(in.Root, authv1beta1.ResourceSliceResources) {
		return in.Root.Status.Resources
	}
	return nil
}

// Exceeded describes the ceiling that the slice would exceed; it is empty if there is none. Amounts
// up to those already granted exceed no ceiling.
func (in GrantedSlice) Exceeded() string {
	amounts, granted := in.amounts(), in.granted()
	for _, level := range []struct {
		name, beside string
		ceiling      corev1.ResourceList
		counts       func(authv1beta1.ResourceSlice) bool
	}{
		{"slice", "", in.Offer.Ceilings.Slice, func(authv1beta1.ResourceSlice) bool { return false }},
		{"consumer", "beside the consumer's other slices ", in.Offer.Ceilings.Consumer,
			func(s authv1beta1.ResourceSlice) bool { return s.Namespace == in.Root.Namespace }},
		{"total", "beside the slices of all consumers ", in.Offer.Ceilings.Total,
			func(authv1beta1.ResourceSlice) bool { return true }},
	} {
		used := in.others(level.counts)
		for _, name := range slices.Sorted(maps.Keys(level.ceiling)) {
			ceiling, amount := level.ceiling[name], amounts[name].DeepCopy()
			asked := amount.String()
			if within(name, amounts, granted) {
				continue
			}
			if _, bounded := amounts[name]; !bounded && name == corev1.ResourcePods {
				asked = "any number" // of what a Quota does not name, only pods are not refused
			} else if amount.Add(used[name]); amount.Cmp(ceiling) <= 0 {
				continue
			}
			return fmt.Sprintf("the slice asks for %s of %s, %sabove the ceiling of %s in the provider's chart value "+
				"offloading.ceilings.%s; ask for less, or have the provider raise it",
				asked, name, level.beside, ceiling.String(), level.name)
		}
	}
	return ""
}

// within reports whether a slice requests no more of a resource than it was granted. An accepted
// slice that does not name pods may have any number of them.
func within(name corev1.ResourceName, amounts, granted corev1.ResourceList) bool {
	amount, named := amounts[name]
	has, had := granted[name]
	if name == corev1.ResourcePods && !had {
		return granted != nil
	}
	return had && (named || name != corev1.ResourcePods) && amount.Cmp(has) <= 0
}

// others returns the sum of the grants of other accepted slices for which counts returns true.
func (in GrantedSlice) others(counts func(authv1beta1.ResourceSlice) bool) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for i := range in.All {
		s := &in.All[i]
		self := s.Namespace == in.Root.Namespace && s.Name == in.Root.Name
		if self || !Replicated(s) || !accepted(s, authv1beta1.ResourceSliceResources) || !counts(*s) {
			continue
		}
		add(sum, s.Status.Resources)
	}
	return sum
}

// add adds the positive amounts of more to sum.
func add(sum, more corev1.ResourceList) {
	for name, amount := range more {
		if amount.Sign() > 0 {
			total := sum[name].DeepCopy()
			total.Add(amount)
			sum[name] = total
		}
	}
}

// aboveCapacity returns an event about a new grant that exceeds the sum of this cluster's nodes.
// Virtual nodes do not count, because they stand for other clusters.
func (in GrantedSlice) aboveCapacity() []desired.Event {
	if !in.Changes() || len(in.Nodes) == 0 {
		return nil
	}
	capacity := corev1.ResourceList{}
	for i := range in.Nodes {
		if in.Nodes[i].Labels[api.LabelType] != api.TypeVirtualNode {
			add(capacity, in.Nodes[i].Status.Allocatable)
		}
	}
	var above []string
	amounts := in.amounts()
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		if amount, has := amounts[name], capacity[name]; amount.Cmp(has) > 0 && !in.ofDevices(name) {
			above = append(above, fmt.Sprintf("%s of %s, of which the nodes have %s", amount.String(), name,
				has.String()))
		}
	}
	if len(above) == 0 {
		return nil
	}
	return []desired.Event{{Type: corev1.EventTypeWarning, Reason: reasonGrantAboveCapacity, Message: "granted " +
		strings.Join(above, "; ") +
		"; set the chart's value offloading.ceilings to bound what is granted"}}
}

// ofDevices reports whether devices stand for a resource: those of a DeviceClass, which no node counts. Schedulers find
// them by expressions over their attributes, so they are not counted here either. Each class has a resource without
// being asked, and may name another.
func (in GrantedSlice) ofDevices(name corev1.ResourceName) bool {
	return slices.ContainsFunc(in.DeviceClasses, func(class resourcev1.DeviceClass) bool {
		implicit, chosen := resourcev1.ResourceDeviceClassPrefix+class.Name, class.Spec.ExtendedResourceName
		return string(name) == implicit || chosen != nil && string(name) == *chosen
	})
}
