// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// CertificateType says where the serving certificate of the kubelet API comes from.
type CertificateType string

const (
	// CertificateKubelet asks the cluster's kubelet-serving signer.
	CertificateKubelet CertificateType = "kubelet"
	// CertificateAWS asks the signer of EKS.
	CertificateAWS CertificateType = "aws"
	// CertificateSelfSigned creates a self-signed certificate, which clients cannot verify.
	CertificateSelfSigned CertificateType = "self-signed"
)

// String returns the flag's value.
func (c *CertificateType) String() string { return string(*c) }

// Set parses the flag's value.
func (c *CertificateType) Set(value string) error {
	for _, known := range []CertificateType{CertificateKubelet, CertificateAWS, CertificateSelfSigned} {
		if value == string(known) {
			*c = known
			return nil
		}
	}
	return fmt.Errorf("unknown certificate type %s, use kubelet, aws or self-signed", value)
}

// Type returns the name of the value in help texts.
func (c *CertificateType) Type() string { return "type" }

// Flags holds the documented flags of the kubelet role. Labels, taints and resources, which may
// change while the process runs, are read from the VirtualNode instead.
type Flags struct {
	HomeKubeconfig, HomeClusterID                 string
	ForeignClusterID, ForeignKubeconfigSecretName string
	NodeName, NodeIP                              string
	TenantNamespace, LiqoNamespace                string
	LocalPodCIDRs                                 []string
	DisableIPReflection                           bool
	RuntimeClass                                  string
	CertificateType                               CertificateType
	ListenPort                                    uint16
	EnableProfiling                               bool
	// NodeLeaseDuration is how long the node counts as alive after a renewal of its lease.
	// NodePingInterval is the time between two checks of the provider's API server; 0 = a check
	// before each renewal. NodePingTimeout limits one check.
	NodeLeaseDuration, NodePingInterval, NodePingTimeout time.Duration
	NodeCheckNetwork                                     bool
	NodeExtraLabels, NodeExtraAnnotations                map[string]string
	CreateNode                                           bool
	// Reflectors holds the settings by kind, as in VkOptionsTemplate: pod, service, endpointslice,
	// …
	Reflectors map[string]*offloadingv1beta1.ReflectorConfig
	// CustomReflectors maps custom resources, <plural>.<version>.<group>, to
	// <kind>:<workers>[:<type>].
	CustomReflectors                            map[string]string
	LabelsNotReflected, AnnotationsNotReflected []string
	EnableAPIServerSupport                      bool
	RemoteRealIngressClassName                  string
	RemoteRealLoadBalancerClassName             string
	MetricsEnabled                              bool
	MetricsAddress                              string
	HomeAPIServerHost, HomeAPIServerPort        string
	RemotePodCIDRs, RemotePodCIDRRemaps         []string
	// Replicas is the number of processes for this virtual node. With more than one, the leader
	// acts.
	Replicas                                            int
	LeaseEnabled                                        bool
	LeaseDuration, LeaseRenewInterval, LeaseRetryPeriod time.Duration
	// PodName is the name of the process's pod, from the environment.
	PodName string
}

// NewFlags returns the defaults. The node's name and address come from the environment of the pod.
func NewFlags() *Flags {
	reflectors := map[string]*offloadingv1beta1.ReflectorConfig{}
	for key, config := range offloadingv1beta1.DefaultReflectors() {
		reflectors[key] = &config
	}
	return &Flags{
		NodeName: os.Getenv("VIRTUALNODE_NAME"), NodeIP: os.Getenv("POD_IP"),
		PodName:         os.Getenv("POD_NAME"),
		TenantNamespace: os.Getenv("POD_NAMESPACE"), LiqoNamespace: api.Namespace,
		CertificateType: CertificateKubelet, ListenPort: api.KubeletPort,
		// 40 s, as in kubelets, which also renew after a quarter of it.
		NodeLeaseDuration: 40 * time.Second, NodePingTimeout: 5 * time.Second,
		NodeCheckNetwork: true, CreateNode: true, Reflectors: reflectors,
		EnableAPIServerSupport: true,
		MetricsAddress:         ":5872", LeaseEnabled: true, Replicas: 1,
		LeaseDuration: 15 * time.Second, LeaseRenewInterval: 10 * time.Second, LeaseRetryPeriod: 5 * time.Second,
	}
}

// AddFlags adds all flags to fs; their current values are the defaults.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	f.addIdentity(fs)
	f.addNode(fs)
	f.addReflection(fs)
	f.addProcess(fs)
}

func (f *Flags) addIdentity(fs *pflag.FlagSet) {
	fs.StringVar(&f.HomeKubeconfig, "home-kubeconfig", f.HomeKubeconfig,
		"kubeconfig of this cluster; empty = in-cluster")
	fs.StringVar(&f.HomeClusterID, "home-cluster-id", f.HomeClusterID, "ID of this cluster")
	fs.StringVar(&f.ForeignClusterID, "foreign-cluster-id", f.ForeignClusterID, "ID of the provider")
	fs.StringVar(&f.ForeignKubeconfigSecretName, "foreign-kubeconfig-secret-name", f.ForeignKubeconfigSecretName,
		"Secret in the tenant namespace with the provider's kubeconfig")
	fs.StringVar(&f.TenantNamespace, "tenant-namespace", f.TenantNamespace,
		"tenant namespace of the provider in this cluster")
	fs.StringVar(&f.LiqoNamespace, "liqo-namespace", f.LiqoNamespace, "namespace Liqo is installed in")
	fs.StringVar(&f.HomeAPIServerHost, "home-api-server-host", f.HomeAPIServerHost,
		"host by which remote pods reach this cluster's API server")
	fs.StringVar(&f.HomeAPIServerPort, "home-api-server-port", f.HomeAPIServerPort,
		"port by which remote pods reach this cluster's API server")
}

func (f *Flags) addNode(fs *pflag.FlagSet) {
	fs.StringVar(&f.NodeName, "nodename", f.NodeName, "name of the virtual node")
	fs.StringVar(&f.NodeIP, "node-ip", f.NodeIP, "address of the virtual node: that of this pod")
	fs.BoolVar(&f.CreateNode, "create-node", f.CreateNode, "make a Node; false only reflects")
	fs.Var(&f.CertificateType, "certificate-type",
		"where the serving certificate comes from: kubelet, aws or self-signed")
	fs.Uint16Var(&f.ListenPort, "listen-port", f.ListenPort, "port of the kubelet API")
	fs.DurationVar(&f.NodeLeaseDuration, "node-lease-duration", f.NodeLeaseDuration,
		"how long the node counts as alive after a sign of life")
	fs.DurationVar(&f.NodePingInterval, "node-ping-interval", f.NodePingInterval,
		"time between two checks of the provider's API server; 0 = before each renewal of the lease")
	fs.DurationVar(&f.NodePingTimeout, "node-ping-timeout", f.NodePingTimeout,
		"time a check of the provider's API server may take")
	fs.BoolVar(&f.NodeCheckNetwork, "node-check-network", f.NodeCheckNetwork,
		"the node is ready only while the tunnel is")
	fs.StringToStringVar(&f.NodeExtraLabels, "node-extra-labels", f.NodeExtraLabels, "labels put on the Node")
	fs.StringToStringVar(&f.NodeExtraAnnotations, "node-extra-annotations", f.NodeExtraAnnotations,
		"annotations put on the Node")
}

func (f *Flags) addReflection(fs *pflag.FlagSet) {
	for kind, r := range f.Reflectors {
		fs.IntVar(&r.Workers, kind+"-reflection-workers", r.Workers, "objects of the kind worked on at once; 0 = off")
		fs.StringVar((*string)(&r.Type), kind+"-reflection-type", string(r.Type),
			"AllowList or DenyList, for kinds that offer the choice")
	}
	fs.StringToStringVar(&f.CustomReflectors, "custom-reflection", f.CustomReflectors,
		"custom resources to reflect, <plural>.<version>.<group>=<kind>:<workers>[:<type>]; repeatable")
	fs.StringSliceVar(&f.LocalPodCIDRs, "local-podcidr", f.LocalPodCIDRs, "pod CIDRs of this cluster")
	fs.StringVar(&f.RuntimeClass, "liqo-runtime-class", api.RuntimeClassName,
		"runtime class that sends pods to virtual nodes, which the provider does not need")
	fs.BoolVar(&f.DisableIPReflection, "disable-ip-reflection", f.DisableIPReflection, "remote pods show no addresses")
	fs.StringSliceVar(&f.LabelsNotReflected, "labels-not-reflected", f.LabelsNotReflected, "label keys never reflected")
	fs.StringSliceVar(&f.AnnotationsNotReflected, "annotations-not-reflected", f.AnnotationsNotReflected,
		"annotation keys never reflected")
	fs.BoolVar(&f.EnableAPIServerSupport, "enable-apiserver-support", f.EnableAPIServerSupport,
		"let remote pods reach this cluster's API server")
	fs.StringVar(&f.RemoteRealIngressClassName, "remote-real-ingress-class-name", f.RemoteRealIngressClassName,
		"ingress class at the provider")
	fs.StringVar(&f.RemoteRealLoadBalancerClassName, "remote-real-load-balancer-class-name",
		f.RemoteRealLoadBalancerClassName, "load balancer class at the provider")
	fs.StringSliceVar(&f.RemotePodCIDRs, "remote-pod-cidr", f.RemotePodCIDRs,
		"pod CIDRs of the provider; empty = from its Configuration")
	fs.StringSliceVar(&f.RemotePodCIDRRemaps, "remote-pod-cidr-remap", f.RemotePodCIDRRemaps, "the same as seen here")
}

func (f *Flags) addProcess(fs *pflag.FlagSet) {
	fs.BoolVar(&f.EnableProfiling, "enable-profiling", f.EnableProfiling, "serve /debug/pprof in the kubelet API")
	fs.BoolVar(&f.MetricsEnabled, "metrics-enabled", f.MetricsEnabled, "serve /metrics")
	fs.StringVar(&f.MetricsAddress, "metrics-address", f.MetricsAddress, "address of /metrics")
	fs.IntVar(&f.Replicas, "vk-replicas", f.Replicas,
		"processes that keep this virtual node; of more than one the holder of a lease acts")
	fs.BoolVar(&f.LeaseEnabled, "vk-lease-enabled", f.LeaseEnabled,
		"elect among replicas and among the virtual kubelets of one provider")
	fs.DurationVar(&f.LeaseDuration, "vk-lease-duration", f.LeaseDuration, "how long a leader's word holds")
	fs.DurationVar(&f.LeaseRenewInterval, "vk-lease-renew-interval", f.LeaseRenewInterval,
		"how long a leader tries to renew before it stops")
	fs.DurationVar(&f.LeaseRetryPeriod, "vk-lease-retry-period", f.LeaseRetryPeriod, "time between two attempts")
}
