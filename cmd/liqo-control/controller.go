// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy/defaults"
	"github.com/liqo-go/liqo/identity"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/elect"
	"github.com/liqo-go/liqo/internal/packed"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/network"
	"github.com/liqo-go/liqo/offloading"
	"github.com/liqo-go/liqo/peering"
	"github.com/liqo-go/liqo/reflection/replication"
	"github.com/liqo-go/liqo/storage"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update;patch
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// controllerFlags holds the documented flags of the process, which include those of several
// processes of the original Liqo. Most are options of a room; complete fills in the others.
type controllerFlags struct {
	clusterID, liqoNamespace string

	peering    peering.Options
	identity   identity.Options
	network    network.Options
	offloading offloading.Options
	storage    storage.Options
	defaults   defaults.Options

	pools, ingressClasses, lbClasses     []string
	defaultResources                     map[string]string
	limitsEnforcement, vkOptionsTemplate string
	ceilings, guestPods, namespaceBounds string // JSON
	tell                                 string // likewise
	ca                                   string // base64
	clusterLabels                        string // pairs or JSON
	globalLabels, globalAnnotations      string // likewise
	leaderElection                       bool
	leaseDuration                        time.Duration
	podName                              string
	metricsAddress, healthAddress        string
}

func controller() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Runs identity, peering, networking and offloading controllers, and admission",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	f.add(cmd)
	return cmd
}

func (f *controllerFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.addProcess(fs)
	f.addIdentity(fs)
	f.addNetwork(fs)
	f.addOffloading(fs)
	ignore(cmd, "virtual-storage-class-name",
		"aws-access-key-id", "aws-secret-access-key", "aws-region", "aws-cluster-name",
		"foreign-cluster-workers", "ip-ctrl-workers", "network-ctrl-workers",
		"ipam-server", "geneve-port", "fabric-route-rule-priority", "fabric-full-masquerade-enabled",
		"gateway-masquerade-bypass-enabled", "gateway-template-watch-enabled",
		"gateway-server-resources", "gateway-client-resources",
		"wg-gateway-server-cluster-role-name", "wg-gateway-client-cluster-role-name",
		"enable-api-server-proxy-ip-remapping", "resync-period", "client-qps", "client-max-burst", "client-timeout",
		"resource-validator-refresh-interval")
}

// addProcess adds the flags of the process and of the modules as a whole.
func (f *controllerFlags) addProcess(fs *pflag.FlagSet) {
	fs.StringVar(&f.clusterID, "cluster-id", os.Getenv("CLUSTER_ID"), "ID of this cluster")
	fs.StringVar(&f.liqoNamespace, "liqo-namespace", "liqo", "namespace Liqo is installed in")
	fs.StringVar(&f.defaults.Dir, "defaults", "", "directory of objects to make, one in a file; empty makes none")
	fs.BoolVar(&f.peering.Modules.Networking, "networking-enabled", true, "run the networking module")
	fs.BoolVar(&f.peering.Modules.Authentication, "authentication-enabled", true, "run the authentication module")
	fs.BoolVar(&f.peering.Modules.Offloading, "offloading-enabled", true, "run the offloading module")
	fs.DurationVar(&f.peering.ProbeInterval, "foreign-cluster-ping-interval", 15*time.Second,
		"time between two liveness checks of a peer's API server; 0 disables")
	fs.DurationVar(&f.peering.ProbeTimeout, "foreign-cluster-ping-timeout", 5*time.Second,
		"time a liveness check may take")
	fs.BoolVar(&f.leaderElection, "enable-leader-election", false, "let one of several replicas act")
	fs.DurationVar(&f.leaseDuration, "leader-election-lease-duration", standardLease,
		"time after which another replica follows one that fell silent; 2 s or more")
	f.podName = os.Getenv("POD_NAME")
	fs.StringVar(&f.globalLabels, "global-labels", "",
		"labels of all objects made in this cluster, as `k=v,k=v` or JSON")
	fs.StringVar(&f.globalAnnotations, "global-annotations", "",
		"annotations of all objects made in this cluster, as `k=v,k=v` or JSON")
	fs.StringVar(&f.metricsAddress, "metrics-address", ":8082", "address of /metrics; 0 disables")
	fs.StringVar(&f.healthAddress, "health-probe-address", ":8081", "address of /healthz and /readyz")
}

// addIdentity adds the flags about credentials and resources of consumers.
func (f *controllerFlags) addIdentity(fs *pflag.FlagSet) {
	fs.StringVar(&f.clusterLabels, "cluster-labels", "",
		"labels peers put on the virtual nodes of this cluster, as `k=v,k=v` or JSON")
	amounts := map[string]string{"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}
	fs.StringToStringVar(&f.defaultResources, "default-node-resources", amounts,
		"amounts granted for resources a slice does not name")
	fs.StringSliceVar(&f.ingressClasses, "ingress-classes", nil,
		"ingress classes offered to consumers; `name;default` marks the default")
	fs.StringSliceVar(&f.lbClasses, "load-balancer-classes", nil,
		"load balancer classes offered to consumers; `name;default` marks the default")
	fs.StringVar(&f.limitsEnforcement, "default-limits-enforcement", "None",
		"enforcement of new quotas: None, Soft or Hard")
	fs.StringVar(&f.ceilings, "ceilings", "{}",
		"what slices are granted at most, as `JSON` of the chart value offloading.ceilings")
	fs.StringVar(&f.tell, "tell", `{"declaredFeatures": true, "architecture": true, "system": true}`,
		"what consumers are told about this cluster's nodes, as `JSON` of the chart value offloading.tell")
	fs.BoolVar(&f.identity.DefaultResourceSliceClassEnabled, "default-resource-slice-class-enabled", true,
		"grant slices of class default")
	fs.BoolVar(&f.identity.TLSCompatibility, "tls-compatibility-mode", false, "RSA instead of Ed25519 keys")
	fs.StringVar(&f.identity.APIServerAddress, "api-server-address-override", "", "API server URL announced to peers")
	fs.StringVar(&f.ca, "ca-override", "", "base64 PEM bundle announced to peers")
	fs.BoolVar(&f.identity.TrustedCA, "trusted-ca", false,
		"announce no CA: the API server's certificate is publicly trusted")
	fs.DurationVar(&f.identity.CertificateLifetime, "certificate-lifetime", identityplan.DefaultLifetime,
		"lifetime asked for certificates of consumers, 10m or more; the cluster's signer may give less")
}

// addNetwork adds the flags of the networking module.
func (f *controllerFlags) addNetwork(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.pools, "ipam-pools", []string{"10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"},
		"networks remapped CIDRs are taken from")
	fs.StringSliceVar(&f.network.ProtectedNamespaces, "protected-namespaces", []string{metav1.NamespaceSystem},
		"namespaces to whose pods gateways let no peer open a connection, beside that of Liqo")
	fs.StringVar(&f.network.GatewayImage, "gateway-image", "",
		"image of gateways whose template is written for several containers; empty keeps the template's")
	fs.BoolVar(&f.network.APIServerEndpoints, "api-server-ip-use-endpointslices", false,
		"let peers reach the API server at its endpoints, not by its Service")
}

// addOffloading adds the flags about offloaded pods, for consumers and providers, and about their
// storage.
func (f *controllerFlags) addOffloading(fs *pflag.FlagSet) {
	fs.IntVar(&f.offloading.WebhookPort, "webhook-port", 9443, "port of the admission server")
	fs.BoolVar(&f.offloading.EnforceResources, "enable-resource-enforcement", true, "check ShadowPods against quotas")
	fs.StringVar(&f.offloading.PodSecurity, "pod-security", "baseline",
		"Pod Security level of namespaces made for consumers; empty sets none")
	fs.StringVar(&f.guestPods, "guest-pods", "{}",
		"what pods of consumers may have beyond what any workload needs, as `JSON` of the chart value "+
			"offloading.guestPods")
	fs.StringSliceVar(&f.offloading.Namespaces.Allowed, "allowed-namespaces", nil,
		"patterns of names that namespaces of consumers may have; none allows all")
	fs.StringSliceVar(&f.offloading.Namespaces.Denied, "denied-namespaces", nil,
		"patterns of names that namespaces of consumers may not have")
	fs.StringVar(&f.namespaceBounds, "namespace-bounds", "{}",
		"what a consumer may have in each of its namespaces, as `JSON` of the chart value offloading.namespaceBounds")
	fs.BoolVar(&f.offloading.ReplaceLostPods, "enable-node-failure-controller", false,
		"force-delete offloaded pods that terminate on a lost node")
	fs.StringSliceVar((*[]string)(&f.offloading.Replacing), "replacing-controllers", nil,
		"further `kinds` of controllers, as Kind.group, that create another pod for each one that is deleted")
	fs.BoolVar(&f.offloading.DenyDirectConnections, "deny-direct-connections", false,
		"refuse direct provider-to-provider endpoints")
	fs.StringVar(&f.vkOptionsTemplate, "vk-options-default-template", api.Namespace+"/"+api.VkOptionsTemplateName,
		"`namespace/name` of the default VkOptionsTemplate")
	fs.StringVar(&f.offloading.WebhookSecret, "secret-name", api.WebhookCertsSecret,
		"Secret with the admission server's certificate")
	fs.BoolVar(&f.identity.StorageEnabled, "enable-storage", true, "offer storage across clusters")
	fs.StringVar(&f.storage.RealClass, "real-storage-class-name", "",
		"storage class offered as default; empty means the cluster's own")
	fs.StringSliceVar(&f.offloading.Kubelet.PodCIDRs, "podcidr", nil, "pod CIDRs of this cluster; repeatable")
	fs.StringVar(&f.offloading.Kubelet.RuntimeClass, "liqo-runtime-class", api.RuntimeClassName,
		"runtime class that sends pods to virtual nodes, whatever their namespace says")
	fs.IntVar(&f.offloading.ShadowPodWorkers, "shadow-pod-ctrl-workers", 0,
		"ShadowPods worked on at once; 0 = the default")
	fs.IntVar(&f.offloading.ShadowEndpointSliceWorkers, "shadow-endpointslice-ctrl-workers", 0,
		"ShadowEndpointSlices worked on at once; 0 = the default")
	fs.BoolVar(&f.offloading.Kubelet.ReflectIPs, "reflect-ips", true, "show addresses of remote pods")
	fs.StringVar(&f.storage.Namespace, "storage-namespace", api.StorageNamespace,
		"namespace of the claims that back those of the virtual storage class")
}

// ignore accepts documented flags that mean nothing in this build, so that scripts keep working.
func ignore(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		cmd.Flags().StringArray(name, nil, "accepted and ignored")
		flag := cmd.Flags().Lookup(name)
		flag.Hidden, flag.NoOptDefVal = true, "true"
	}
}

func (f *controllerFlags) run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("load kubeconfig: %w", err)
	}
	config.QPS = -1 // the API server's own priority and fairness is the limit
	if err := await(ctx, config, f.healthAddress); err != nil {
		return err
	}
	mgr, err := f.assemble(config, f.manager())
	if err != nil {
		return err
	}
	return runManager(ctx, mgr)
}

// runManager runs mgr until ctx ends, and returns when all that it runs has ended. While caches fill
// nothing acts yet, so it returns at once: mgr.Start would go on until the API server answers, and
// take a core (controller-runtime v0.25.2).
func runManager(ctx context.Context, mgr manager.Manager) error {
	filled := make(afterCaches)
	if err := mgr.Add(filled); err != nil {
		return fmt.Errorf("add a task: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-filled:
		return <-ended
	case <-ctx.Done():
		return nil
	}
}

// afterCaches is closed when the caches of its manager are filled.
type afterCaches chan struct{}

func (a afterCaches) Start(context.Context) error {
	close(a)
	return nil
}

// NeedLeaderElection makes followers start it, too.
func (a afterCaches) NeedLeaderElection() bool { return false }

// assemble returns a manager with everything that runs in the controller role.
func (f *controllerFlags) assemble(config *rest.Config, o manager.Options) (manager.Manager, error) {
	lock, err := f.lock(config)
	if err != nil {
		return nil, err
	}
	o.LeaderElectionResourceLockInterface = lock
	mgr, err := ctrl.NewManager(config, o)
	if err != nil {
		return nil, fmt.Errorf("set up manager: %w", err)
	}
	//lint:ignore SA1019 client-go's election takes a recorder of the former events API only
	lock.LockConfig.EventRecorder = mgr.GetEventRecorderFor(lock.Identity())
	registrars, err := f.registrars(config)
	if err != nil {
		return nil, err
	}
	global, err := f.global()
	if err != nil {
		return nil, err
	}
	mgr = ctl.Marked(ctl.Indexed(mgr), global)
	for _, r := range registrars {
		if err := r.Register(mgr); err != nil {
			return nil, fmt.Errorf("register controller: %w", err)
		}
	}
	return mgr, f.addChecks(mgr, lock)
}

// addChecks adds the health checks: the process is alive while it responds, and ready when the
// admission server responds and a leader was observed.
func (f *controllerFlags) addChecks(mgr manager.Manager, lock *elect.Lock) error {
	ready := healthz.Checker(healthz.Ping)
	if f.peering.Modules.Offloading {
		ready = cached(f.admits)
	}
	err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("admission", ready))
	if f.leaderElection {
		err = errors.Join(err, mgr.AddReadyzCheck("leader", led(lock, f.liqoNamespace, mgr.GetClient())))
	}
	if err != nil {
		return fmt.Errorf("add health checks: %w", err)
	}
	return nil
}

// standardLease is the lease duration of Kubernetes' components, with a renewal every 2 s and a
// deadline of 10 s. Other durations keep these proportions.
const standardLease = 15 * time.Second

func (f *controllerFlags) renewDeadline() time.Duration { return f.leaseDuration * 10 / 15 }

// manager returns the options of the manager, with limits for what the caches hold. Of pods that
// have started and are not Liqo's they hold the place, and of those for consumers a part of the
// status. Of Secrets
// they hold the data of those with a label of Liqo, and none that are reflected for consumers. They
// hold leases of gateways only, each with its holder and nothing else. Pods and ShadowPods, which
// may be thousands, are kept encoded.
func (f *controllerFlags) manager() manager.Options {
	notReflected, err := labels.Parse("!" + api.LabelOrigin)
	utilruntime.Must(err) // a constant
	gateways := labels.SelectorFromSet(labels.Set{api.LabelNetworkingComponent: api.GatewayComponent})
	retry := f.leaseDuration * 2 / 15
	if f.leaseDuration < standardLease { // followers check at up to 2.2 times this interval
		retry /= 2
	}
	return manager.Options{
		Scheme:                        scheme.New(),
		Metrics:                       metricsserver.Options{BindAddress: f.metricsAddress},
		HealthProbeBindAddress:        f.healthAddress,
		LeaderElection:                f.leaderElection,
		LeaseDuration:                 new(f.leaseDuration),
		RenewDeadline:                 new(f.renewDeadline()),
		RetryPeriod:                   &retry,
		LeaderElectionID:              "liqo-controller-manager",
		LeaderElectionNamespace:       f.liqoNamespace,
		LeaderElectionReleaseOnCancel: true,
		Controller:                    ctl.Queues(),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			NewInformer:      packed.InformerOf(&corev1.Pod{}, &offv1beta1.ShadowPod{}),
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}:           {Transform: stripPod},
				&corev1.ConfigMap{}:     identity.CachedConfigMaps(),
				&corev1.Secret{}:        {Label: notReflected, Transform: stripForeignSecret},
				&coordinationv1.Lease{}: {Label: gateways, Transform: stripLease},
				&appsv1.DaemonSet{}:     f.network.CachedDaemonSets(),
			},
		},
	}
}

// stripPod reduces pods that have started and are not Liqo's to the fields about their node,
// addresses and owner. Of the status of those for consumers it keeps phase, addresses and
// disruption: consumers read the rest themselves.
func stripPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	p.ManagedFields = nil
	if p.Status.Phase == corev1.PodPending {
		return p, nil // few are, and admission may have to be made up for
	}
	if p.Labels[api.LabelManaged] == api.True {
		if p.Labels[api.LabelManagedBy] == api.ManagedByShadowPod {
			status := corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.DisruptionTarget {
					status.Conditions = append(status.Conditions, c)
				}
			}
			p.Status = status
		}
		return p, nil
	}
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
			DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork, RuntimeClassName: p.Spec.RuntimeClassName,
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
	}
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if v, ok := p.Labels[api.LabelShadowPod]; ok {
		out.Labels = map[string]string{api.LabelShadowPod: v}
	}
	return out, nil
}

// stripLease reduces a lease to its holder.
func stripLease(obj any) (any, error) {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return obj, nil
	}
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: l.Name, Namespace: l.Namespace, UID: l.UID, ResourceVersion: l.ResourceVersion, Labels: l.Labels,
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: l.Spec.HolderIdentity},
	}, nil
}

// stripForeignSecret removes the data of Secrets without a label of Liqo.
func stripForeignSecret(obj any) (any, error) {
	if s, ok := obj.(*corev1.Secret); ok {
		s.ManagedFields = nil
		for key := range s.Labels {
			if strings.Contains(key, "liqo.io/") {
				return s, nil
			}
		}
		s.Data = nil
	}
	return obj, nil
}

// admits checks that the admission server accepts connections. It does not verify the certificate,
// because it connects to its own process.
func (f *controllerFlags) admits(r *http.Request) error {
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	address := net.JoinHostPort("localhost", strconv.Itoa(f.offloading.WebhookPort))
	conn, err := dialer.DialContext(r.Context(), "tcp", address)
	if err != nil {
		return fmt.Errorf("reach the admission server: %w", err)
	}
	return conn.Close()
}

// readyFor is how long a positive check is cached: the kubelet checks every 2 s.
const readyFor = time.Minute

// cached returns a check whose positive result is cached for readyFor.
func cached(check healthz.Checker) healthz.Checker {
	var yes atomic.Pointer[time.Time]
	return func(r *http.Request) error {
		if at := yes.Load(); at != nil && time.Since(*at) < readyFor {
			return nil
		}
		if err := check(r); err != nil {
			return err
		}
		yes.Store(new(time.Now()))
		return nil
	}
}

// registrars returns everything that runs in the controller role.
func (f *controllerFlags) registrars(config *rest.Config) ([]ctl.Registrar, error) {
	if err := f.complete(config); err != nil {
		return nil, err
	}
	links, modules := &remote.Fleet{}, f.peering.Modules
	f.peering.Links, f.network.Links = links, links
	all := append([]ctl.Registrar{links}, peering.Controllers(f.peering)...)
	all = append(all, defaults.Controllers(f.defaults)...)
	if modules.Authentication {
		all = append(all, identity.Controllers(f.identity)...)
		all = append(all, replication.Controllers(replication.Options{ClusterID: f.clusterID, Links: links})...)
	}
	if modules.Networking {
		all = append(all, network.Controllers(f.network)...)
	}
	if modules.Offloading {
		all = append(all, offloading.Controllers(f.offloading)...)
	}
	if f.identity.StorageEnabled {
		all = append(all, storage.Controllers(f.storage)...)
	}
	return all, nil
}
