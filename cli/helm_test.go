// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestHelmUpgradesWhatFormerVersionsApplied: Helm 4 finds no conflict after liqoctl has upgraded a release that has
// fields of a former version of it, also if Helm 4 has upgraded in between, on either side; and liqoctl finds none with
// somebody who has scaled a Deployment. No node runs the workloads,
// so liqoctl is interrupted while it waits for them, and rolls back.
func TestHelmUpgradesWhatFormerVersionsApplied(t *testing.T) {
	t.Parallel()
	kubeconfig := kubeconfigOf(t, apitest.Start(t))
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &kubeconfig
	helm := action.NewConfiguration()
	if err := helm.Init(flags, api.Namespace, "secret"); err != nil {
		t.Fatal(err)
	}
	chart, err := embeddedChart()
	if err != nil {
		t.Fatal(err)
	}
	vals := map[string]any{"ipam": map[string]any{"podCIDRs": []any{"10.10.0.0/16"}, "serviceCIDR": "10.96.0.0/16"}}
	install := action.NewInstall(helm)
	install.ReleaseName, install.Namespace, install.CreateNamespace, install.SkipCRDs = api.ReleaseName, api.Namespace, true, true
	install.DisableHooks, install.ServerSideApply, install.WaitStrategy = true, false, kube.HookOnlyStrategy
	made, err := install.RunWithContext(t.Context(), chart, vals)
	if err != nil {
		t.Fatal(err)
	}
	manifest := made.(*release.Release).Manifest
	upgrade := func(tag string) error {
		run := action.NewUpgrade(helm)
		run.Namespace, run.SkipCRDs, run.DisableHooks = api.Namespace, true, true
		run.ServerSideApply, run.WaitStrategy = "true", kube.HookOnlyStrategy
		vals["tag"] = tag
		_, err := run.RunWithContext(t.Context(), api.ReleaseName, chart, vals)
		return err
	}
	clients, err := helm.KubernetesClientSet()
	if err != nil {
		t.Fatal(err)
	}
	renameManager(t, helm, manifest, "liqoctl")
	if err := upgrade("first"); err == nil || !strings.Contains(err.Error(), `conflict with "liqoctl"`) {
		t.Errorf("a former version's fields can be upgraded as they are: %v", err)
	}
	for _, method := range []string{string(release.ApplyMethodClientSideApply), string(release.ApplyMethodServerSideApply)} {
		renameManager(t, helm, manifest, "liqoctl")
		if _, err := clients.AppsV1().Deployments(api.Namespace).Patch(t.Context(), api.ControllerManagerName, types.MergePatchType,
			[]byte(`{"spec": {"replicas": 3}}`), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
			t.Fatal(err)
		}
		latest, err := helm.Releases.Last(api.ReleaseName)
		if err != nil {
			t.Fatal(err)
		}
		last := latest.(*release.Release)
		last.ApplyMethod, last.Info.Status = method, made.(*release.Release).Info.Status
		if err := helm.Releases.Update(last); err != nil {
			t.Fatal(err)
		}
		if text := interruptedInstall(t, clients, kubeconfig); !strings.Contains(text, "upgrade Liqo: ") || strings.Contains(text, "conflict") || strings.Contains(text, "roll back") {
			t.Errorf("after %q liqoctl says:\n%s", method, text)
		}
		if err := upgrade("after" + method); err != nil {
			t.Errorf("after %q and liqoctl: %v", method, err)
		}
	}
}

// interruptedInstall runs liqoctl until it has applied the chart, and returns what it printed.
func interruptedInstall(t *testing.T, clients kubernetes.Interface, kubeconfig string) string {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var output bytes.Buffer
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Run(ctx, strings.Fields("liqoctl install --kubeconfig "+kubeconfig+" --pod-cidr 10.10.0.0/16 --service-cidr 10.96.0.0/16 "+
			"--api-server-url https://203.0.113.7:6443 --timeout 10m --set tag=by-liqoctl"),
			genericiooptions.IOStreams{In: strings.NewReader(""), Out: &output, ErrOut: &output})
	}()
	applied := func(ctx context.Context) (bool, error) {
		d, err := clients.AppsV1().Deployments(api.Namespace).Get(ctx, api.ProxyName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		select {
		case <-ended:
			return false, errors.New("it has ended")
		default:
		}
		return strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":by-liqoctl"), nil
	}
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience.Limit, true, applied); err != nil {
		t.Error(patience.GaveUp("liqoctl to apply the chart", err))
	}
	interrupt()
	<-ended
	return output.String()
}

// kubeconfigOf writes a kubeconfig of an API server's administrator, and returns its path.
func kubeconfigOf(t *testing.T, server *apitest.Server) string {
	t.Helper()
	config, path := clientcmdapi.NewConfig(), filepath.Join(t.TempDir(), "kubeconfig")
	config.Clusters["rome"] = &clientcmdapi.Cluster{Server: server.Config.Host, CertificateAuthorityData: server.Config.CAData}
	config.AuthInfos["rome"] = &clientcmdapi.AuthInfo{ClientCertificateData: server.Config.CertData, ClientKeyData: server.Config.KeyData}
	config.Contexts["rome"] = &clientcmdapi.Context{Cluster: "rome", AuthInfo: "rome"}
	config.CurrentContext = "rome"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// renameManager makes all fields of what a release has applied those of a program that applied on the client's side.
func renameManager(t *testing.T, helm *action.Configuration, manifest, manager string) {
	t.Helper()
	applied, err := helm.KubeClient.Build(strings.NewReader(manifest), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := applied.Visit(func(info *resource.Info, err error) error {
		if err != nil {
			return err
		}
		if err := info.Get(); err != nil {
			return err
		}
		object, err := meta.Accessor(info.Object)
		if err != nil {
			return err
		}
		entries := object.GetManagedFields()
		i := slices.IndexFunc(entries, func(e metav1.ManagedFieldsEntry) bool { return e.Manager == helmManager })
		if i < 0 {
			return nil // renamed before
		}
		entries[i].Manager, entries[i].Operation = manager, metav1.ManagedFieldsOperationUpdate
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": entries[i : i+1]}})
		if err != nil {
			return err
		}
		_, err = resource.NewHelper(info.Client, info.Mapping).Patch(info.Namespace, info.Name, types.JSONPatchType, patch, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
