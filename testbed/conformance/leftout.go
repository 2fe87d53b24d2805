// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// reason says why specs are not run, or why they fail on the virtual node.
type reason struct {
	specs string // regular expression on their full names
	why   string
}

// leftOut lists the specs that are not run.
func leftOut() []reason {
	return []reason{
		{`\[Serial\]|\[Disruptive\]`, "runs alone: it needs all nodes of a cluster, or stops some"},
		{`should cap back-off at MaxContainerBackOff`, "takes half an hour, which the kubelet that restarts the container spends waiting"},
	}
}

// forbidden lists the specs that cannot pass on a virtual node, by the fact of the Kubernetes API or of the kernel
// that forbids it.
func forbidden() []reason {
	const clusterIP = "pods are told the Service's ClusterIP. The API server of each cluster assigns ClusterIPs from its own range, " +
		"and the Service has another one at the provider; its name leads there"
	return []reason{
		{`Services should (serve|be able to (switch session|create a functioning)|have session affinity|be able to change the type from ExternalName)`, clusterIP},
		{`EndpointSlice should support a Service with multiple`, clusterIP},
		{`KubeletManagedEtcHosts`, "one of its pods uses the host's network, which is a network namespace of another cluster's machine; the pod has its own"},
	}
}
