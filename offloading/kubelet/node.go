// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apply"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes;namespacemaps,verbs=get;list;watch
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=nodes/status,verbs=patch

// Options holds the settings and clients of one virtual node.
type Options struct {
	Flags *Flags
	// Home is the configuration for the local cluster.
	Home *rest.Config
	// Peer is the provider.
	Peer *remote.Peer
	// Pods lists the pods of the node with their status; a part of their specs suffices.
	Pods client.Reader
	// Metrics gathers the metrics of this process, which the kubelet API serves.
	Metrics prometheus.Gatherer
	// Upgraded gets a value when the version of the local API server has changed; nil = nobody waits.
	Upgraded chan<- struct{}
}

// fallbackVersion is the version of the Node until the API server has returned its own.
const fallbackVersion = "v1.25.0"

// retry is the time until a failed write is retried.
const retry = 2 * time.Second

// RunNode maintains the Node of a virtual node and serves its kubelet API until ctx ends. If
// CreateNode is false it only waits. It retries all errors that may be temporary, and returns
// others.
func RunNode(ctx context.Context, o Options) error {
	if !o.Flags.CreateNode {
		<-ctx.Done()
		return nil
	}
	n, err := newNode(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tasks := map[string]func(context.Context) error{
		"caches":      n.cache.Start,
		"certificate": n.certificates.run,
		"kubelet API": n.serve,
		"lease":       n.lease.run,
		"node":        n.run,
	}
	var group sync.WaitGroup
	failed := make(chan error, len(tasks))
	for name, task := range tasks {
		group.Go(func() {
			defer cancel()
			if err := task(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("run %s: %w", name, err)
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed // nil if none failed before ctx ended
}

// node is one virtual node.
type node struct {
	Options
	cache        cache.Cache
	home         kubernetes.Interface
	writer       client.Client
	objects      *apply.Applier
	lease        *lease
	certificates *certificates
	meter        meter
	// betaMetrics is whether the provider served metrics.k8s.io/v1beta1 last, and not v1.
	betaMetrics atomic.Bool
	// version is the version of the local API server, and versionRead is the time it was last read.
	version     string
	versionRead time.Time
	// wake holds a value when something the Node depends on has changed.
	wake chan struct{}
}

func newNode(o Options) (*node, error) {
	home, err := kubernetes.NewForConfig(o.Home)
	if err != nil {
		return nil, fmt.Errorf("make client of the home cluster: %w", err)
	}
	f := o.Flags
	named := func(namespace, name string) cache.ByObject {
		by := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
		if namespace != "" {
			by.Namespaces = map[string]cache.Config{namespace: {}}
		}
		return by
	}
	s := scheme.New()
	c, err := cache.New(o.Home, cache.Options{Scheme: s, ByObject: map[client.Object]cache.ByObject{
		&offloadingv1beta1.VirtualNode{}:  named(f.TenantNamespace, f.NodeName),
		&offloadingv1beta1.NamespaceMap{}: named(f.TenantNamespace, f.ForeignClusterID),
		&corev1beta1.ForeignCluster{}:     named("", f.ForeignClusterID),
		&corev1.Node{}:                    named("", f.NodeName),
	}})
	if err != nil {
		return nil, fmt.Errorf("make caches: %w", err)
	}
	writer, err := client.New(o.Home, client.Options{Scheme: s})
	if err != nil {
		return nil, fmt.Errorf("make writer: %w", err)
	}
	n := &node{
		Options: o, cache: c, home: home, writer: writer, objects: apply.New(writer, writer, "liqo/kubelet"),
		certificates: newCertificates(home, f), version: fallbackVersion,
		wake: make(chan struct{}, 1),
	}
	n.lease = newLease(home.CoordinationV1().Leases(corev1.NamespaceNodeLease), o.Peer, f, n.poke)
	return n, nil
}

// readVersion reads the version of the local API server once per heartbeat, because it may be
// upgraded meanwhile. The last one stays while it cannot be read.
func (n *node) readVersion(ctx context.Context) {
	if time.Since(n.versionRead) < plan.Heartbeat {
		return
	}
	v, err := n.home.Discovery().ServerVersion()
	if err != nil {
		log.FromContext(ctx).Error(err, "read version of the API server, announcing another", "version", n.version)
		return
	}
	if !n.versionRead.IsZero() && v.GitVersion != n.version {
		select {
		case n.Upgraded <- struct{}{}:
		default:
		}
	}
	n.version, n.versionRead = v.GitVersion, time.Now()
}

// poke triggers a sync of the Node.
func (n *node) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// watch triggers a sync when an object changes that sync reads.
func (n *node) watch(ctx context.Context) error {
	changed := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { n.poke() },
		UpdateFunc: func(any, any) { n.poke() },
		DeleteFunc: func(any) { n.poke() },
	}
	for _, kind := range []client.Object{
		&offloadingv1beta1.VirtualNode{}, &offloadingv1beta1.NamespaceMap{}, &corev1beta1.ForeignCluster{},
		&corev1.Node{},
	} {
		informer, err := n.cache.GetInformer(ctx, kind)
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(changed); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

// run syncs the Node after changes, and when its heartbeat is due.
func (n *node) run(ctx context.Context) error {
	if err := n.watch(ctx); err != nil {
		return err
	}
	for {
		after := plan.Heartbeat
		if err := n.sync(ctx); err != nil {
			if !apierrors.IsConflict(err) { // conflicts come from a stale cache
				log.FromContext(ctx).Error(err, "keep node")
			}
			after = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		case <-time.After(after):
		}
	}
}

// sync writes the desired Node. It does not create one if the virtual node is to have none. While
// the provider does not answer, the node controller writes the status after the lease has expired.
func (n *node) sync(ctx context.Context) error {
	key := types.NamespacedName{Namespace: n.Flags.TenantNamespace, Name: n.Flags.NodeName}
	vn, err := ctl.Optional(ctx, n.cache, key, &offloadingv1beta1.VirtualNode{})
	if err != nil || vn == nil {
		return err
	}
	key = types.NamespacedName{Name: n.Flags.NodeName}
	live, err := ctl.Optional(ctx, n.cache, key, &corev1.Node{})
	if err != nil || live == nil && !plan.HasNode(vn) {
		return err
	}
	if live != nil && live.Labels[api.LabelType] != api.TypeVirtualNode {
		return fmt.Errorf("node %s exists and is not a virtual node; create the virtual node under another name",
			live.Name)
	}
	key = types.NamespacedName{Name: n.Flags.ForeignClusterID}
	peer, err := ctl.Optional(ctx, n.cache, key, &corev1beta1.ForeignCluster{})
	if err != nil {
		return err
	}
	if live == nil {
		return n.create(ctx, plan.NewNode(vn))
	}
	n.readVersion(ctx)
	return n.write(ctx, live, plan.Node(plan.NodeInput{
		VirtualNode: vn, Node: live, Peer: peer, CheckNetwork: n.Flags.NodeCheckNetwork,
		Address: n.Flags.NodeIP, Port: int32(n.Flags.ListenPort), Version: n.version,
		ExtraLabels: n.Flags.NodeExtraLabels, ExtraAnnotations: n.Flags.NodeExtraAnnotations, Now: time.Now(),
	}))
}

// write updates the Node. Taints, which the node controller and users write as well, are patched
// with the resource version as precondition, and so is the provider's ID: an earlier version, after
// a rollback, would remove what it finds applied, and an ID cannot be removed. Everything else is
// applied.
func (n *node) write(ctx context.Context, live, desired *corev1.Node) error {
	n.lease.own(live)
	if !slices.Equal(live.Spec.Taints, desired.Spec.Taints) || live.Spec.ProviderID != desired.Spec.ProviderID {
		patched := live.DeepCopy()
		patched.Spec.Taints, patched.Spec.ProviderID = desired.Spec.Taints, desired.Spec.ProviderID
		patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
		if err := n.writer.Patch(ctx, patched, patch); err != nil {
			return fmt.Errorf("patch node %s: %w", live.Name, err)
		}
	}
	desired.Spec = corev1.NodeSpec{}
	desired.UID = live.UID // so that the apply does not create a Node that was deleted meanwhile
	if _, err := n.objects.Object(ctx, live, desired); err != nil {
		return err
	}
	if !n.lease.answers.Load() {
		return nil
	}
	_, err := n.objects.Status(ctx, live, desired)
	return err
}

// create creates the Node.
func (n *node) create(ctx context.Context, node *corev1.Node) error {
	if err := n.writer.Create(ctx, node); err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	log.FromContext(ctx).Info("node created", "node", node.Name)
	return nil
}

// remoteNamespace returns the remote namespace of a local one, also while it is being deleted, and whether it
// exists.
func (n *node) remoteNamespace(ctx context.Context, local string) (string, bool) {
	m, err := n.namespaceMap(ctx)
	if err != nil || m == nil {
		return "", false
	}
	entry, ok := m.Status.CurrentMapping[local]
	former := entry.Phase == offloadingv1beta1.NamespaceTerminating && m.Spec.DesiredMapping[local] != ""
	return entry.RemoteNamespace, ok && entry.Exists() && !former
}

// namespaceMap returns the NamespaceMap of the provider; nil if there is none.
func (n *node) namespaceMap(ctx context.Context) (*offloadingv1beta1.NamespaceMap, error) {
	key := types.NamespacedName{Namespace: n.Flags.TenantNamespace, Name: n.Flags.ForeignClusterID}
	return ctl.Optional(ctx, n.cache, key, &offloadingv1beta1.NamespaceMap{})
}
