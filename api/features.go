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
	// featureWebSockets is exec, attach and port-forward by WebSocket between API server and kubelet. A
	// virtual kubelet forwards the stream to the provider's API server, which has accepted WebSockets for
	// longer than nodes declare this.
	featureWebSockets = "ExtendWebSocketsToKubelet"
)

// CarriedFeatures returns those of the declared features that Liqo carries, sorted.
func CarriedFeatures(declared []string) []string {
	carried := []string{featureWebSockets, featurePodLevelResize, featureInitContainerResize,
		featureRestartAllContainers}
	return slices.DeleteFunc(carried, func(f string) bool { return !slices.Contains(declared, f) })
}
