// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
)

// access holds the connection flags of a cluster.
type access struct {
	*genericclioptions.ConfigFlags
	// quoted holds the names of the flags that select the cluster; the flag for the kubeconfig is
	// first.
	quoted []string
}

// addLiqoFlag adds the flag for the namespace in which Liqo is installed.
func addLiqoFlag(flags *pflag.FlagSet, name, short, of string) {
	flags.StringP(name, short, api.Namespace, "Namespace Liqo is installed in"+of)
}

// liqoFlag returns the flag of a verb for the namespace in which Liqo is installed: "liqo-namespace"
// if the verb has one, else "namespace".
func liqoFlag(cmd *cobra.Command) *pflag.Flag {
	return cmp.Or(cmd.Flag("liqo-namespace"), cmd.Flag("namespace"))
}

// remoteLiqoFlag is liqoFlag for the second cluster.
func remoteLiqoFlag(cmd *cobra.Command) *pflag.Flag {
	return cmp.Or(cmd.Flag("remote-liqo-namespace"), cmd.Flag("remote-namespace"))
}

// remotePrefix begins the names of flags about the second cluster.
const remotePrefix = "remote-"

// ofRemote ends the usage of flags about the second cluster.
const ofRemote = " (remote cluster)"

// shownFlags lists the connection flags of kubectl that help texts show; the others work too.
var shownFlags = [...]string{"kubeconfig", "context", "cluster", "user"}

// addConnectionFlags adds the connection flags of a cluster. prefix is empty, or remotePrefix for
// the second cluster.
func addConnectionFlags(flags *pflag.FlagSet, prefix string) access {
	config, all := genericclioptions.NewConfigFlags(true), pflag.NewFlagSet("", pflag.ContinueOnError)
	config.Namespace = nil
	config.AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.Contains(shownFlags[:], f.Name)
		if prefix != "" {
			f.Name, f.Shorthand, f.Usage = prefix+f.Name, "", f.Usage+ofRemote
		}
		flags.AddFlag(f)
	})
	return access{config, []string{"--" + prefix + "kubeconfig", "--" + prefix + "context"}}
}

// pair holds the flags of verbs that work on two clusters.
type pair struct {
	remote                           access
	objectNamespace, remoteNamespace string
}

// addPairFlags adds the flags of verbs whose namespace flags name the namespaces of Liqo.
func addPairFlags(cmd *cobra.Command, timeout time.Duration) *pair {
	p := &pair{remote: addConnectionFlags(cmd.PersistentFlags(), remotePrefix)}
	addLiqoFlag(cmd.Flags(), "namespace", "n", "")
	addLiqoFlag(cmd.Flags(), "remote-namespace", "", ofRemote)
	addTimeoutFlag(cmd.Flags(), timeout)
	return p
}

// addTimeoutFlag adds the flag of verbs that limit their time.
func addTimeoutFlag(flags *pflag.FlagSet, value time.Duration) {
	flags.Duration("timeout", value, "How long to wait in all")
}

// scriptOf returns a script that ends after the verb's timeout.
func (e *env) scriptOf(cmd *cobra.Command) (*script, func()) {
	timeout, err := cmd.Flags().GetDuration("timeout")
	if err != nil {
		panic(err) // a verb without addTimeoutFlag: a programming error
	}
	e.suffix = e.dryRun.suffix()
	return e.newScript(cmd.Context(), timeout)
}

// onCluster runs do with the only cluster of a verb, within its timeout.
func (e *env) onCluster(cmd *cobra.Command, do func(*script, *cluster) error) error {
	s, stop := e.scriptOf(cmd)
	defer stop()
	c, err := e.onlyCluster(cmd)
	if err != nil {
		return err
	}
	return do(s, c)
}

// onInstallation is onCluster for verbs that need Liqo in the cluster.
func (e *env) onInstallation(cmd *cobra.Command, do func(*script, *cluster) error) error {
	return e.onCluster(cmd, func(s *script, c *cluster) error {
		if err := c.identify(s.ctx, liqoFlag(cmd)); err != nil {
			return err
		}
		return do(s, c)
	})
}

// onPair runs do with the two clusters of a verb, within its timeout.
func (e *env) onPair(cmd *cobra.Command, p *pair, do func(s *script, local, remote *cluster) error) error {
	s, stop := e.scriptOf(cmd)
	defer stop()
	localCluster, remoteCluster, err := e.connect(s.ctx, cmd, p)
	if err != nil {
		return err
	}
	return do(s, localCluster, remoteCluster)
}

// connect connects to both clusters and reads their IDs. It returns both even if one does not
// answer.
func (e *env) connect(
	ctx context.Context, cmd *cobra.Command, p *pair,
) (localCluster, remoteCluster *cluster, err error) {
	liqo, remoteLiqo := liqoFlag(cmd), remoteLiqoFlag(cmd)
	localCluster, err = e.cluster(e.local, local, liqo.Value.String())
	if err != nil {
		return nil, nil, err
	}
	remoteCluster, err = e.cluster(p.remote, remote, remoteLiqo.Value.String())
	if err != nil {
		return nil, nil, err
	}
	localCluster.other, remoteCluster.other = remoteCluster, localCluster
	e.busy(noCluster, func() string { return "Contacting the clusters" })
	err = inParallel(func() error { return localCluster.identify(ctx, liqo) },
		func() error { return remoteCluster.identify(ctx, remoteLiqo) })
	if err != nil {
		return localCluster, remoteCluster, err
	}
	if localCluster.id == remoteCluster.id {
		return nil, nil, localCluster.sameIDError(ctx, remoteCluster)
	}
	localCluster.chosen, remoteCluster.chosen = p.objectNamespace, p.remoteNamespace
	localCluster.tenant, remoteCluster.tenant = localCluster.chosen, remoteCluster.chosen
	return localCluster, remoteCluster, nil
}

// sameIDError returns why two clusters with the same ID cannot be peers: they are one cluster with
// two addresses, or two clusters whose IDs clash. The UID of namespace kube-system identifies a
// cluster. A user who may not read it has only the rights of a peering user, so the clusters
// differ.
func (c *cluster) sameIDError(ctx context.Context, other *cluster) error {
	mine, others := &corev1.Namespace{}, &corev1.Namespace{}
	read := func(c *cluster, into *corev1.Namespace) error {
		into.Name = metav1.NamespaceSystem
		if err := c.read(ctx, into); err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		return nil
	}
	err := inParallel(func() error { return read(c, mine) }, func() error { return read(other, others) })
	if err != nil {
		return err
	}
	if mine.UID == others.UID && (mine.UID != "" || sameServer(c.config, other.config)) {
		return errors.New("local and remote clusters must be different")
	}
	return fmt.Errorf("both clusters use the cluster ID %q; give one of them a new one: run '%s uninstall' there, "+
		"then '%s install --cluster-id <new ID>'",
		c.id, c.env.name, c.env.name)
}

// sameServer reports whether two configurations name the same API server. It can still be the proxy
// of two clusters that selects one by the credentials.
func sameServer(a, b *rest.Config) bool {
	return a.Host == b.Host && a.APIPath == b.APIPath && a.Proxy == nil && b.Proxy == nil &&
		bytes.Equal(a.CAData, b.CAData) && a.CAFile == b.CAFile
}

// localCluster connects to the only cluster of a verb and reads its ID.
func (e *env) localCluster(ctx context.Context, cmd *cobra.Command) (*cluster, error) {
	c, err := e.onlyCluster(cmd)
	if err != nil {
		return nil, err
	}
	return c, c.identify(ctx, liqoFlag(cmd))
}

// onlyCluster makes a client for the only cluster of a verb, without a request. It shows that the
// cluster is contacted, which the verb does next.
func (e *env) onlyCluster(cmd *cobra.Command) (*cluster, error) {
	e.busy(noCluster, func() string { return "Contacting the cluster" })
	return e.cluster(e.local, noCluster, liqoFlag(cmd).Value.String())
}

// cluster makes a client from connection flags, without a request.
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
	config.Wrap(func(t http.RoundTripper) http.RoundTripper { return persistent{t} })
	c, err := client.NewWithWatch(config, client.Options{Scheme: e.scheme})
	if err != nil {
		return nil, kubeconfigError(err, flags, at)
	}
	return &cluster{WithWatch: e.dryRun.rehearse(c), side: at, config: config, namespace: namespace, current: current,
		flags: flags.quoted, env: e}, nil
}

// persistent reads up to three times what an API server gives up, with the status 504 after a minute,
// because it is overloaded. What it writes may have been written, so it is not sent again.
type persistent struct{ http.RoundTripper }

func (p persistent) RoundTrip(r *http.Request) (*http.Response, error) {
	for range 2 {
		answer, err := p.RoundTripper.RoundTrip(r)
		if err != nil || answer.StatusCode != http.StatusGatewayTimeout || r.Method != http.MethodGet {
			return answer, err
		}
		_ = answer.Body.Close() // it is not read
	}
	return p.RoundTripper.RoundTrip(r)
}

// standardInput is the path of a kubeconfig that is read from standard input.
const standardInput = "-"

// load reads the kubeconfig. The client libraries need a file: for standard input it makes one that
// only the user may read, and removes it afterwards.
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
		return "", errors.New("standard input holds none, or it was read already")
	}
	file, err := os.CreateTemp("", "kubeconfig-") // readable by its owner only
	if err != nil {
		return "", fmt.Errorf("keep the kubeconfig: %w", err)
	}
	_, err = file.Write(content)
	return file.Name(), errors.Join(err, file.Close())
}

// noServer is the server that kubectl's flags select without a kubeconfig.
const noServer = "http://localhost:8080"

var errNoKubeconfig = errors.New("none found")

func kubeconfigError(err error, flags access, at side) error {
	if clientcmd.IsEmptyConfig(err) || errors.Is(err, genericclioptions.ErrEmptyConfig) {
		err = errNoKubeconfig
	}
	return hint(fmt.Errorf("cannot use the kubeconfig of the %scluster: %w", at.clusterPrefix(), err), "check %s",
		strings.Join(flags.quoted, " and "))
}

// identify reads the cluster ID. It fails if Liqo is not installed in the namespace of the flag.
func (c *cluster) identify(ctx context.Context, liqo *pflag.Flag) error {
	stored, err := c.storedID(ctx)
	switch {
	case err != nil:
		return err
	case stored.UID == "":
		//lint:ignore ST1005 it begins with a name, and is printed to the user as it is
		return fmt.Errorf("Liqo is not installed in namespace %q of the %scluster; install it with '%s install' or "+
			"name its namespace with --%s",
			c.namespace, c.side.clusterPrefix(), c.env.name, liqo.Name)
	}
	c.id = stored.Data[api.ClusterIDConfigMapKey]
	if err := api.ValidateClusterID(c.id); err != nil {
		return fmt.Errorf("read ConfigMap %s/%s of the %scluster: %w", c.namespace, api.ClusterIDConfigMap,
			c.side.clusterPrefix(), err)
	}
	return nil
}

// storedID reads the ConfigMap with the cluster ID, which is empty if Liqo is not installed.
func (c *cluster) storedID(ctx context.Context) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limits.reach, fmt.Errorf("no answer in %s", limits.reach))
	defer cancel()
	stored, answered := &corev1.ConfigMap{}, make(chan error, 1)
	// The discovery of kinds within the first request does not end with its context.
	go func() {
		answered <- c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: api.ClusterIDConfigMap}, stored)
	}()
	select {
	case <-ctx.Done():
		return nil, c.unreachable(ctx, ctx.Err())
	case err := <-answered:
		if client.IgnoreNotFound(err) != nil {
			return nil, c.unreachable(ctx, err)
		}
		return stored, nil
	}
}

// unreachable returns in one line why the first request failed. The statuses from 500 on come from an
// overloaded API server, or from a load balancer before servers that do not run.
func (c *cluster) unreachable(ctx context.Context, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return hint(fmt.Errorf("the %scluster refuses: %w", c.side.clusterPrefix(), err), "check the user of %s",
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
		hint(fmt.Errorf("cannot reach the %scluster at %s: %w", c.side.clusterPrefix(), c.config.Host, err),
			"check that its API server runs and %s is right", c.flags[0])}
}

// noAnswer is the error of a cluster that cannot be reached.
type noAnswer struct {
	at side
	error
}

func (n *noAnswer) Unwrap() error { return n.error }
