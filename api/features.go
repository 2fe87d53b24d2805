// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import "slices"

// Features of kubelets, as in status.declaredFeatures of Nodes, that Liqo carries to pods at providers. Their names are
// those of k8s.io/component-helpers/nodedeclaredfeatures, release 1.37.
const (
	// featurePodLevelResize is the resize of a pod's own resources, spec.resources.
	featurePodLevelResize = "InPlacePodLevelResourcesVerticalScaling"
	// featureInitContainerResize is the resize of init containers that are no sidecars.
	featureInitContainerResize = "InPlacePodVerticalScalingInitContainers"
	// featureRestartAllContainers is the action of restart rules that restarts all containers of a pod.
	featureRestartAllContainers = "RestartAllContainersOnContainerExits"
)

// CarriedFeatures returns those of the declared features that Liqo carries, sorted.
func CarriedFeatures(declared []string) []string {
	carried := []string{featurePodLevelResize, featureInitContainerResize, featureRestartAllContainers}
	return slices.DeleteFunc(carried, func(f string) bool { return !slices.Contains(declared, f) })
}
