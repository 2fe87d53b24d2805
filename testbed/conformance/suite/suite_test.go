// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suite builds the part of Kubernetes' e2e.test that runs pods: its areas apps, auth, network, node and common.
// It is a module of its own, because it requires more than the programs of the test clusters.
package suite

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	_ "github.com/onsi/ginkgo/v2" // the ginkgo command accepts no suite without
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/common"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/e2e/node"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/fixtures"
	_ "k8s.io/kubernetes/test/utils/ktesting/format"
)

// TestMain prepares the framework as the e2e_test.go of Kubernetes does.
func TestMain(m *testing.M) {
	offload := flag.Bool("offload", false, "offload each namespace before a spec uses it")
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	if *offload {
		framework.TestContext.CreateTestingNS = createOffloaded
		host, err := withoutTaint(framework.TestContext.KubeConfig, "virtual-node.liqo.io/not-allowed")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		framework.TestContext.Host = host
	}
	os.Exit(m.Run())
}

// createOffloaded creates a namespace whose pods run on virtual nodes only. It has the same name at the provider,
// because specs look names of Services up with that of the namespace.
func createOffloaded(
	ctx context.Context, baseName string, c kubernetes.Interface, labels map[string]string,
) (*corev1.Namespace, error) {
	ns, err := framework.CreateTestingNS(ctx, baseName, c, labels)
	if err != nil {
		return nil, err
	}
	offloadings := "/apis/offloading.liqo.io/v1beta1/namespaces/" + ns.Name + "/namespaceoffloadings"
	err = c.Discovery().RESTClient().Post().AbsPath(offloadings).SetHeader("Content-Type", "application/json").
		Body([]byte(`{"apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceOffloading",
			"metadata": {"name": "offloading"},
			"spec": {"podOffloadingStrategy": "Remote", "namespaceMappingStrategy": "EnforceSameName"}}`)).
		Do(ctx).Error()
	if err != nil {
		return nil, err
	}
	isReady := func(ctx context.Context) (bool, error) {
		got, err := c.Discovery().RESTClient().Get().AbsPath(offloadings + "/offloading").DoRaw(ctx)
		return bytes.Contains(got, []byte(`"offloadingPhase":"Ready"`)), err
	}
	return ns, wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Minute, true, isReady)
}

func TestE2E(t *testing.T) { e2e.RunE2ETests(t) }
