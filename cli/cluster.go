// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/liqo-go/liqo/api"
)

const (
	// reachTimeout bounds the first request to a cluster: later ones have the verb's own timeout.
	reachTimeout = 15 * time.Second
)

// cluster is one of the clusters a verb works on.
type cluster struct {
	client.WithWatch
	side   side
	config *rest.Config
	// namespace is where Liqo is installed.
	namespace string
	// current is the namespace the kubeconfig chooses; "default" if it says nothing.
	current string
	// id is the cluster ID; empty where Liqo need not be installed.
	id string
	// tenant is the tenant namespace for the other cluster; empty until ensured.
	tenant string
	// chosen is the namespace the user named for the objects; empty when they are to be found.
	chosen string
	// network is the namespace of gateways, keys and ranges for the other cluster, all of which must
	// lie in one: the tenant namespace, unless they were made elsewhere. Empty until found.
	network string
	// other is the other cluster of a pair; gateway is the name of the gateway for it.
	other   *cluster
	gateway string
	// ranges holds the CIDRs of this cluster; empty until read.
	ranges ranges
	// flags are those by which the user chose the cluster, the kubeconfig's first, for messages to quote.
	flags []string
	env   *env
}

// access are the connection flags of a cluster.
type access struct {
	*genericclioptions.ConfigFlags
	// quoted are the names of those that choose the cluster, the kubeconfig's first.
	quoted []string
}

// addLiqoFlag adds the flag that says where Liqo is installed.
func addLiqoFlag(flags *pflag.FlagSet, name, short, of string) *pflag.Flag {
	flags.StringP(name, short, api.Namespace, "Namespace Liqo is installed in"+of)
	return flags.Lookup(name)
}

// hideFlags hides the connection flags that few users need.
func hideFlags(flags *pflag.FlagSet, prefix string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(shownFlags[:], strings.TrimPrefix(f.Name, prefix)) {
			f.Hidden = true
		}
	})
}

// addRemoteFlags adds the connection flags of the second cluster.
func addRemoteFlags(cmd *cobra.Command) access {
	const prefix = "remote-"
	remoteFlags := genericclioptions.NewConfigFlags(true)
	remoteFlags.Namespace = nil
	all := pflag.NewFlagSet("remote", pflag.ContinueOnError)
	remoteFlags.AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		f.Name, f.Shorthand, f.Usage = prefix+f.Name, "", f.Usage+ofRemote
		f.Hidden = !slices.Contains(shownFlags[:], strings.TrimPrefix(f.Name, prefix))
		cmd.PersistentFlags().AddFlag(f)
	})
	return access{remoteFlags, []string{"--remote-kubeconfig", "--remote-context"}}
}

// ofRemote ends the usage of flags about the second cluster.
const ofRemote = " (remote cluster)"

// pair are the flags of verbs that work on two clusters.
type pair struct {
	remote                           access
	liqo, remoteLiqo                 *pflag.Flag
	objectNamespace, remoteNamespace string
}

// addPairFlags is for verbs whose namespace flags mean where Liqo is installed.
func addPairFlags(cmd *cobra.Command) *pair {
	return &pair{
		remote:     addRemoteFlags(cmd),
		liqo:       addLiqoFlag(cmd.Flags(), "namespace", "n", ""),
		remoteLiqo: addLiqoFlag(cmd.Flags(), "remote-namespace", "", ofRemote),
	}
}

// connect reaches both clusters and learns who they are. It returns both also when one does not answer.
func (e *env) connect(ctx context.Context, p *pair) (here, there *cluster, err error) {
	here, err = e.cluster(e.local, local, p.liqo.Value.String())
	if err != nil {
		return nil, nil, err
	}
	there, err = e.cluster(p.remote, remote, p.remoteLiqo.Value.String())
	if err != nil {
		return nil, nil, err
	}
	here.other, there.other = there, here
	e.busy(nowhere, func() string { return "Contacting the clusters" })
	err = together(func() error { return here.identify(ctx, p.liqo) },
		func() error { return there.identify(ctx, p.remoteLiqo) })
	e.quiet()
	if err != nil {
		return here, there, err
	}
	if here.id == there.id {
		return nil, nil, here.notTwo(ctx, there)
	}
	here.chosen, there.chosen = p.objectNamespace, p.remoteNamespace
	here.tenant, there.tenant = here.chosen, there.chosen
	return here, there, nil
}

// notTwo says why two clusters with one ID cannot be peers: they are one cluster, reached at two
// addresses, or two whose IDs clash. The namespace kube-system has one UID as long as its cluster
// lives. Who may not read it holds the narrow rights of a peer, whose cluster is another one.
func (c *cluster) notTwo(ctx context.Context, other *cluster) error {
	mine, others := &corev1.Namespace{}, &corev1.Namespace{}
	read := func(c *cluster, into *corev1.Namespace) error {
		into.Name = metav1.NamespaceSystem
		if err := c.read(ctx, into); err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		return nil
	}
	if err := together(func() error { return read(c, mine) }, func() error { return read(other, others) }); err != nil {
		return err
	}
	if mine.UID == others.UID && (mine.UID != "" || sameServer(c.config, other.config)) {
		return errSameCluster
	}
	return fmt.Errorf("both clusters use the cluster ID %q; give one of them a new one: run '%s uninstall' there, "+
		"then '%s install --cluster-id <new ID>'",
		c.id, c.env.name, c.env.name)
}

var errSameCluster = errors.New("local and remote clusters must be different")

// sameServer reports whether two configurations lead to one API server. They need not lead to one cluster: of a
// proxy before many, the credentials choose.
func sameServer(a, b *rest.Config) bool {
	return a.Host == b.Host && a.APIPath == b.APIPath && a.Proxy == nil && b.Proxy == nil &&
		bytes.Equal(a.CAData, b.CAData) && a.CAFile == b.CAFile
}

// here reaches the only cluster of a verb and learns who it is.
func (e *env) here(ctx context.Context, liqo *pflag.Flag) (*cluster, error) {
	c, err := e.cluster(e.local, nowhere, liqo.Value.String())
	if err != nil {
		return nil, err
	}
	return c, c.identify(ctx, liqo)
}

// cluster makes a client from connection flags; nothing is contacted.
func (e *env) cluster(flags access, at side, namespace string) (*cluster, error) {
	config, current, err := e.load(flags)
	if err == nil && config.Host == noServer {
		err = errNoKubeconfig
	}
	if err != nil {
		return nil, kubeconfigError(err, flags, at)
	}
	config.QPS = -1 // no limit at the client; the API server has priority and fairness
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.NewWithWatch(config, client.Options{Scheme: e.scheme})
	if err != nil {
		return nil, kubeconfigError(err, flags, at)
	}
	return &cluster{WithWatch: c, side: at, config: config, namespace: namespace, current: current, flags: flags.quoted,
		env: e}, nil
}

// standardInput stands for a kubeconfig that is read from there.
const standardInput = "-"

var errNoInput = errors.New("standard input holds none, or it was read already")

// load reads the kubeconfig. One from standard input goes through a file, which only the user may
// read and which is gone afterwards: the client libraries know of nothing else.
func (e *env) load(flags access) (config *rest.Config, namespace string, err error) {
	if *flags.KubeConfig == standardInput {
		if *flags.KubeConfig, err = e.keepInput(); err != nil {
			return nil, "", err
		}
		defer func() { err = errors.Join(err, os.Remove(*flags.KubeConfig)) }()
	}
	config, err = flags.ToRESTConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err = flags.ToRawKubeConfigLoader().Namespace()
	return config, namespace, err
}

// keepInput writes standard input to a new file and returns its name.
func (e *env) keepInput() (string, error) {
	content, err := io.ReadAll(e.In)
	if err != nil {
		return "", fmt.Errorf("read standard input: %w", err)
	}
	if len(content) == 0 {
		return "", errNoInput
	}
	file, err := os.CreateTemp("", "kubeconfig-") // readable by its owner only
	if err != nil {
		return "", fmt.Errorf("keep the kubeconfig: %w", err)
	}
	_, err = file.Write(content)
	return file.Name(), errors.Join(err, file.Close())
}

// named is "local ", "remote " or nothing, to stand before "cluster".
func (s side) named() string {
	if s == nowhere {
		return ""
	}
	return string(s) + " "
}

// noServer is what kubectl's flags lead to when there is no kubeconfig at all.
const noServer = "http://localhost:8080"

var errNoKubeconfig = errors.New("none found")

func kubeconfigError(err error, flags access, at side) error {
	if clientcmd.IsEmptyConfig(err) || errors.Is(err, genericclioptions.ErrEmptyConfig) {
		err = errNoKubeconfig
	}
	return hint(fmt.Errorf("cannot use the kubeconfig of the %scluster: %w", at.named(), err), "check %s",
		strings.Join(flags.quoted, " and "))
}

// identify reads the cluster ID, which tells whether Liqo is installed where that flag says.
func (c *cluster) identify(ctx context.Context, liqo *pflag.Flag) error {
	ctx, cancel := context.WithTimeoutCause(ctx, reachTimeout, fmt.Errorf("no answer in %s", reachTimeout))
	defer cancel()
	stored := &corev1.ConfigMap{}
	err := c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: api.ClusterIDConfigMap}, stored)
	switch {
	case apierrors.IsNotFound(err):
		//lint:ignore ST1005 it begins with a name, and is printed to the user as it is
		return fmt.Errorf("Liqo is not installed in namespace %q of the %scluster; install it with '%s install' or "+
			"name its namespace with --%s",
			c.namespace, c.side.named(), c.env.name, liqo.Name)
	case err != nil:
		return c.unreachable(ctx, err)
	}
	c.id = stored.Data[api.ClusterIDConfigMapKey]
	if err := api.ValidateClusterID(c.id); err != nil {
		return fmt.Errorf("read ConfigMap %s/%s of the %scluster: %w", c.namespace, api.ClusterIDConfigMap,
			c.side.named(), err)
	}
	return nil
}

// unreachable tells in one line why the first request failed.
func (c *cluster) unreachable(ctx context.Context, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return hint(fmt.Errorf("the %scluster refuses: %w", c.side.named(), err), "check the user of %s",
			strings.Join(c.flags, " and "))
	}
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return &noAnswer{c.side,
		hint(fmt.Errorf("cannot reach the %scluster at %s: %w", c.side.named(), c.config.Host, err),
			"check that its API server runs and %s is right", c.flags[0])}
}

// noAnswer says that a cluster cannot be reached.
type noAnswer struct {
	at side
	error
}

func (n *noAnswer) Unwrap() error { return n.error }

// apply makes the object exist with at least the fields given; fields others filled in stay, and
// nothing is written when all is there. An object that is being deleted is created again after it is gone. It
// uses get, create and update only: the rights of a peering user do not reach further.
func (c *cluster) apply(ctx context.Context, desired client.Object) error {
	want, err := c.env.manifest(desired)
	if err != nil {
		return err
	}
	changed := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	return retry.OnError(retry.DefaultRetry, changed, func() error {
		have := &unstructured.Unstructured{}
		have.SetGroupVersionKind(want.GroupVersionKind())
		err := c.Get(ctx, client.ObjectKeyFromObject(want), have)
		if apierrors.IsNotFound(err) {
			return c.describe("create", want, c.Create(ctx, want.DeepCopy()))
		}
		if err != nil {
			return c.describe("read", want, err)
		}
		if have.GetDeletionTimestamp() != nil {
			if err := c.awaitGone(ctx, have); err != nil {
				return err
			}
			return c.describe("create", want, c.Create(ctx, want.DeepCopy()))
		}
		merged := have.DeepCopy()
		merge(merged.Object, want.Object)
		if equality.Semantic.DeepEqual(have.Object, merged.Object) {
			return nil
		}
		return c.describe("update", want, c.Update(ctx, merged))
	})
}

// manifest is the object as it is sent and printed: with kind, stamped, without empty status.
func (e *env) manifest(object client.Object) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", object, err)
	}
	out := &unstructured.Unstructured{Object: content}
	gvk, err := apiutil.GVKForObject(object, e.scheme)
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", object, err)
	}
	out.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(out.Object, "status")
	unstructured.RemoveNestedField(out.Object, "metadata", "creationTimestamp")
	ownLabels, ownAnnotations := out.GetLabels(), out.GetAnnotations()
	stamp(&ownLabels, e.labels)
	stamp(&ownAnnotations, e.annotations)
	if len(ownLabels) > 0 {
		out.SetLabels(ownLabels)
	}
	if len(ownAnnotations) > 0 {
		out.SetAnnotations(ownAnnotations)
	}
	return out, nil
}

// merge lays the fields of src over dst, map by map; lists are replaced.
func merge(dst, src map[string]any) {
	for key, value := range src {
		from, isMap := value.(map[string]any)
		into, wasMap := dst[key].(map[string]any)
		if isMap && wasMap {
			merge(into, from)
			continue
		}
		dst[key] = value
	}
}

// describe says which object of which cluster a request was about.
func (c *cluster) describe(verb string, object client.Object, err error) error {
	if err == nil {
		return nil
	}
	gvk, _ := apiutil.GVKForObject(object, c.Scheme())
	if meta.IsNoMatchError(err) {
		return fmt.Errorf("the %scluster does not know %s; install Liqo there with '%s install'", c.side.named(),
			gvk.Kind, c.env.name)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errTimeout
	}
	return fmt.Errorf("%s %s of the %scluster: %w", verb, c.nameOf(object), c.side.named(), err)
}

// nameOf is kind and name as kubectl takes them.
func (c *cluster) nameOf(object client.Object) string {
	gvk, _ := apiutil.GVKForObject(object, c.Scheme())
	name := strings.ToLower(gvk.Kind) + " "
	if gvk.Kind == "ResourceSlice" {
		name = "rslice " // Kubernetes has ResourceSlices of its own
	}
	if object.GetNamespace() != "" {
		name += object.GetNamespace() + "/"
	}
	return name + object.GetName()
}

// read fetches an object.
func (c *cluster) read(ctx context.Context, object client.Object) error {
	return c.describe("read", object, c.Get(ctx, client.ObjectKeyFromObject(object), object))
}

// remove deletes an object and tells whether it was there.
func (c *cluster) remove(ctx context.Context, object client.Object) (bool, error) {
	err := c.Delete(ctx, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, c.describe("delete", object, err)
}
