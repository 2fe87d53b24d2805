// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// This file says how every program of a cluster is configured. Nothing here does
// anything: the same cluster gives the same text. Paths are those inside a node, where
// /etc, /var/lib, /var/log and /run are the node's own (see mount.go).

// process is a program that a node keeps running.
type process struct {
	name string // also the name of its log, <name>.log
	args []string
	// asNobody runs the program as user nobody with CAP_DAC_OVERRIDE. A cluster of two nodes takes 28 of the
	// 128 inotify instances of a user. 11 of them then count for nobody, and root's suffice for three pairs.
	asNobody bool
}

func etcd() process {
	return process{name: "etcd", args: []string{
		"--name=testbed", "--data-dir=/var/lib/etcd", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=testbed=http://127.0.0.1:2380",
		"--unsafe-no-fsync", // a test cluster may lose its data with the machine
	}}
}

func apiServer(c Cluster) process {
	const pki = "/etc/kubernetes/pki/"
	return c.process("kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379",
		"--advertise-address="+c.apiAddr().String(), "--bind-address=0.0.0.0", fmt.Sprintf("--secure-port=%d", apiPort),
		"--service-cluster-ip-range="+c.ServiceCIDR.String(),
		"--allow-privileged=true", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--client-ca-file="+pki+"ca.crt", "--tls-cert-file="+pki+"apiserver.crt", "--tls-private-key-file="+pki+"apiserver.key",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+pki+"sa.pub", "--service-account-signing-key-file="+pki+"sa.key",
		// Kubelets, also virtual ones, must show a certificate of the cluster's CA.
		"--kubelet-certificate-authority="+pki+"ca.crt",
		"--kubelet-client-certificate="+pki+"kubelet-client.crt", "--kubelet-client-key="+pki+"kubelet-client.key",
		"--kubelet-preferred-address-types=InternalIP",
		"--enable-aggregator-routing=true", // the control plane has no kube-proxy: webhooks are called by pod address
		"--requestheader-client-ca-file="+pki+"ca.crt", "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+pki+"front-proxy-client.crt", "--proxy-client-key-file="+pki+"front-proxy-client.key",
		"--event-ttl=30m",
	)
}

func controllerManager(c Cluster) process {
	const kubeconfig, pki = "/etc/kubernetes/controller-manager.kubeconfig", "/etc/kubernetes/pki/"
	return c.process("kube-controller-manager",
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--root-ca-file="+pki+"ca.crt", "--service-account-private-key-file="+pki+"sa.key", "--use-service-account-credentials=true",
		// Signs for all built-in signers: kube-apiserver-client, kubelet-serving, …
		"--cluster-signing-cert-file="+pki+"ca.crt", "--cluster-signing-key-file="+pki+"ca.key",
		"--allocate-node-cidrs=true", "--cluster-cidr="+c.nodeCIDR().String(), fmt.Sprintf("--node-cidr-mask-size=%d", nodeMaskBits),
		"--service-cluster-ip-range="+c.ServiceCIDR.String(), "--cluster-name="+c.Name,
		"--leader-elect=false", "--bind-address=127.0.0.1",
		// It makes the directory, and its usual place is the machine's.
		"--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
		// The default of 20 requests per second makes 7 pods per second; measured: 37 with these.
		"--kube-api-qps=500", "--kube-api-burst=1000",
	)
}

func scheduler(c Cluster) process {
	const kubeconfig = "/etc/kubernetes/scheduler.kubeconfig"
	return c.process("kube-scheduler",
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--leader-elect=false", "--bind-address=127.0.0.1", "--kube-api-qps=1000", "--kube-api-burst=2000",
	)
}

func containerd() process {
	return process{name: "containerd", args: []string{"--config=/etc/containerd/config.toml"}}
}

func kubelet(c Cluster, node string) process {
	return c.process("kubelet",
		"--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
		"--hostname-override="+c.nodeName(node), "--node-ip="+c.nodeAddr(node).String(),
		"--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki",
	)
}

func kubeProxy(c Cluster, node string) process {
	return c.process("kube-proxy",
		"--config=/etc/kubernetes/kube-proxy.yaml", "--hostname-override="+c.nodeName(node))
}

// networkProgram is what a worker runs for its pod network; false: nothing.
func networkProgram(c Cluster, node string) (process, bool) {
	name, last := networkPrograms[c.CNI], c.ServiceCIDR.String()
	if c.CNI == cniFlannel {
		last = "/etc/kubernetes/net-conf.json"
	}
	return c.process(name, c.nodeName(node), "/etc/kubernetes/"+name+".kubeconfig", last), name != ""
}

func (c Cluster) process(name string, args ...string) process {
	asNobody := name == "kube-apiserver" || name == "kube-controller-manager"
	return process{name, append(args, c.Args[name]...), asNobody}
}

// containerdConfig runs in a node without CAP_SYS_RESOURCE as well: nothing lowers an
// oom_score_adj. Pods' sandboxes use the testbed's own pause image.
func containerdConfig(cniBin string) string {
	return fmt.Sprintf(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %q
`, pauseTag, cniBin, registriesDir)
}

// registriesDir has a folder of each registry that containerd must be told about.
const registriesDir = "/etc/containerd/certs.d"

// registryHosts makes containerd pull from the testbed's registry over plain HTTP. containerd 1.6 ignores a file
// without a host, and without a server it asks for what a host lacks over TLS.
func registryHosts() string {
	return fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n", registryAddress)
}

// cniConfig gives a node's pods addresses and links. Traffic between nodes is routed,
// traffic out of the cluster masqueraded by masquerade.
func cniConfig(c Cluster, node string) string {
	link := `"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "ipMasq": false, "hairpinMode": true`
	mtu := 1500
	if c.CNI == cniFlannel {
		mtu -= 50 // the overhead of VXLAN over IPv4
	}
	blocks := c.podBlocks(node)
	ranges := fmt.Sprintf(`{"subnet": "%s"}`, blocks[0])
	if c.CNI == cniPool {
		link = `"type": "ptp", "ipMasq": false`
		// The first block is soon full, so that pods of one node are in both.
		ranges = fmt.Sprintf(`{"subnet": "%s", "rangeEnd": "%s"}, {"subnet": "%s"}`, blocks[0], addrAt(blocks[0], 4), blocks[1])
	}
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "pod", "plugins": [
 {%s, "mtu": %d,
  "ipam": {"type": "host-local", "ranges": [[%s]], "dataDir": "/run/cni-ipam"%s}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, link, mtu, ranges, podRoute(c))
}

// podRoute: the bridge knows by itself that it is the way out.
func podRoute(c Cluster) string {
	if c.CNI == cniPool {
		return `, "routes": [{"dst": "0.0.0.0/0"}]`
	}
	return ""
}

// masquerade is the rule set by which pods reach addresses outside their cluster, its
// own nodes included. With a pool also the ports change.
func masquerade(c Cluster) string {
	rule := fmt.Sprintf("ip saddr %[1]s ip daddr != { %[1]s, %[2]s } masquerade", c.PodCIDR, c.ServiceCIDR)
	if c.CNI == cniPool {
		rule = fmt.Sprintf("ip saddr %[1]s ip daddr != %[1]s masquerade fully-random", c.PodCIDR)
	}
	return fmt.Sprintf(`table ip testbed-masq {
	chain post {
		type nat hook postrouting priority srcnat;
		%s
	}
}
`, rule)
}

// flannelConfig is what flannel knows of the cluster.
func flannelConfig(c Cluster) string {
	return fmt.Sprintf(`{"Network": %q, "EnableNFTables": true, "Backend": {"Type": "vxlan"}}
`, c.PodCIDR)
}

// kubeletConfig keeps kubelet from evicting and collecting on a machine whose disk it
// shares, and from writing outside the node's own directories.
func kubeletConfig(c Cluster) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: /etc/kubernetes/pki/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/kubelet.key
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
volumePluginDir: /var/lib/kubelet/volume-plugins
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: "1%%", imagefs.available: "1%%", nodefs.inodesFree: "1%%", imagefs.inodesFree: "1%%"}
shutdownGracePeriod: 0s
`, c.dns())
}

// kubeProxyConfig leaves the machine's conntrack limits alone: they are read-only
// outside the first network namespace.
func kubeProxyConfig(c Cluster, node string) string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: /etc/kubernetes/kube-proxy.kubeconfig}
clusterCIDR: %s
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
bindAddress: %s
metricsBindAddress: 127.0.0.1:10249
`, c.PodCIDR, c.nodeAddr(node))
}

// kubeconfig is a file for one user of one API server, with everything in it.
func kubeconfig(c Cluster, server netip.AddrPort, ca, cert, key []byte) string {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: %[1]s
  cluster: {server: "https://%[2]s", certificate-authority-data: %[3]s}
users:
- name: %[1]s
  user: {client-certificate-data: %[4]s, client-key-data: %[5]s}
contexts:
- name: %[1]s
  context: {cluster: %[1]s, user: %[1]s}
current-context: %[1]s
`, c.Name, server, b64(ca), b64(cert), b64(key))
}

// nodeObject is the Node that kubelet adopts: created first, so that the pod subnet
// of every node is known before the node runs, and is there for others to read.
func nodeObject(c Cluster, node string) string {
	o := map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{
			"name":   c.nodeName(node),
			"labels": map[string]string{"kubernetes.io/hostname": c.nodeName(node)},
		},
		"spec": map[string]any{"podCIDR": c.podSubnet(node).String(), "podCIDRs": []string{c.podSubnet(node).String()}},
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings only
	}
	return string(b)
}

// hosts is a node's /etc/hosts.
func hosts(c Cluster, node string) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n")
	for _, n := range c.nodes() {
		fmt.Fprintf(&b, "%s %s\n", c.nodeAddr(n), c.nodeName(n))
	}
	return b.String()
}
