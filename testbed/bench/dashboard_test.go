// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	liqoapi "github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/dashboard"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/testbed/browser"
)

// lenience is how many times as long as for 'make bench' views may take in tests, on any machine.
const lenience = 5

// TestTimedDashboardIsQuick: with many peers and pods, views and changes of them are soon there.
func TestTimedDashboardIsQuick(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(stop)
	t.Chdir("../..") // the module with the CRDs
	server := apitest.Start(t)
	http, err := rest.HTTPClientFor(server.Config)
	must(t, err)
	fill(t, server.Config)
	chromium, err := browser.Start(ctx)
	must(t, err)
	t.Cleanup(chromium.Close)
	s, err := dashboards{browser: chromium, api: api{server.Config.Host, http}, namespace: "shop", peers: dashboardPeers,
		pods: dashboardPods, start: inProcess(t, server.Config)}.measure(ctx, 1)
	must(t, err)
	for _, f := range s.figures() {
		t.Logf("%s: %.0f ms, %s", f.Name, f.Value, f.Note)
		var target float64
		if _, err := fmt.Sscanf(f.Target, "< %g", &target); err != nil || f.Value > lenience*target {
			t.Errorf("%s: %.0f ms, more than %d times %q", f.Name, f.Value, lenience, f.Target)
		}
	}
	for _, c := range chromium.Complaints() {
		t.Error(c)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill makes the peers and pods, like those of the recorded clusters that work.
func fill(t *testing.T, config *rest.Config) {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	must(t, err)
	demo, err := dashboard.Demo()
	must(t, err)
	create := func(object client.Object, name string, namespace ...string) error {
		status := object.DeepCopyObject().(client.Object)
		object.SetName(name)
		object.SetNamespace(strings.Join(namespace, ""))
		if err := c.Create(t.Context(), object); err != nil {
			return err
		}
		status.SetName(name)
		status.SetNamespace(object.GetNamespace())
		status.SetUID(object.GetUID())
		status.SetResourceVersion(object.GetResourceVersion())
		return client.IgnoreNotFound(c.Status().Update(t.Context(), status)) // some kinds have no status of their own
	}
	for _, namespace := range []string{"liqo", "shop"} {
		must(t, create(&corev1.Namespace{}, namespace))
	}
	id := &corev1.ConfigMap{Data: map[string]string{liqoapi.ClusterIDConfigMapKey: "rome"}}
	must(t, create(id, liqoapi.ClusterIDConfigMap, "liqo"))
	must(t, create(demo.Offloadings.Items[0].DeepCopy(), "offloading", "shop"))
	must(t, inParallel(dashboardPeers, func(i int) error {
		id := peerName(i)
		peer, link := demo.ForeignClusters.Items[0].DeepCopy(), demo.Connections.Items[0].DeepCopy()
		node := demo.VirtualNodes.Items[0].DeepCopy()
		peer.Spec.ClusterID, node.Spec.ClusterID = id, id
		for _, object := range []client.Object{peer, link, node} {
			object.SetLabels(map[string]string{liqoapi.LabelRemoteClusterID: id})
		}
		if err := create(peer, id); err != nil {
			return err
		}
		if err := create(link, id, "liqo"); err != nil {
			return err
		}
		return create(node, id, "liqo")
	}))
	must(t, inParallel(dashboardPods, func(i int) error {
		pod := demo.Pods.Items[1].DeepCopy()
		pod.Spec.NodeName = peerName(i % dashboardPeers)
		return create(pod, fmt.Sprintf("seen-%03d", i), "shop")
	}))
}

// inProcess returns what runs 'liqoctl dashboard' in this process.
func inProcess(t *testing.T, of *rest.Config) func(context.Context) (string, func() error, error) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["rome"] = &clientcmdapi.Cluster{Server: of.Host, CertificateAuthorityData: of.CAData,
		CertificateAuthority: of.CAFile}
	config.AuthInfos["rome"] = &clientcmdapi.AuthInfo{ClientCertificateData: of.CertData, ClientKeyData: of.KeyData,
		ClientCertificate: of.CertFile, ClientKey: of.KeyFile, Token: of.BearerToken}
	config.Contexts["rome"] = &clientcmdapi.Context{Cluster: "rome", AuthInfo: "rome"}
	config.CurrentContext = "rome"
	kubeconfig := filepath.Join(t.TempDir(), "rome")
	must(t, clientcmd.WriteToFile(*config, kubeconfig))
	return func(ctx context.Context) (string, func() error, error) {
		ctx, cancel := context.WithCancel(ctx)
		reader, writer := io.Pipe()
		ended := make(chan int, 1)
		go func() {
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: writer, ErrOut: writer}
			ended <- cli.Run(ctx, []string{"liqoctl", "dashboard", "--kubeconfig", kubeconfig}, streams)
			_ = writer.Close() // the reader ends
		}()
		line, err := bufio.NewReader(reader).ReadString('\n')
		return line, func() error {
			cancel()
			if code := <-ended; code != 0 {
				return fmt.Errorf("liqoctl dashboard ended with %d", code)
			}
			return nil
		}, err
	}
}
