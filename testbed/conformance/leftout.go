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
		{`should cap back-off at MaxContainerBackOff`,
			"takes half an hour, which the kubelet that restarts the container spends waiting"},
	}
}

// forbidden lists the specs that cannot pass on a virtual node, by the fact of the Kubernetes API or of the kernel
// that forbids it.
func forbidden() []reason {
	const nodePort = "asks for the node port at the node's address. That is the address of the virtual kubelet, where the API " +
		"server fetches logs; kube-proxy answers for node ports on real nodes only"
	const hostNetwork = "one of its pods uses the host's network, which is a network namespace of another cluster's " +
		"machine; the pod has its own"
	return []reason{
		{`Services should .* NodePort`, nodePort},
		{`HostPort|KubeletManagedEtcHosts`, hostNetwork},
	}
}
