// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package defaults_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy/defaults"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/await"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/patience"
)

const network = `
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: reserved, namespace: liqo, labels: {ipam.liqo.io/network-type: reserved}}
spec: {cidr: 192.168.7.0/24}
`

const options = `
apiVersion: offloading.liqo.io/v1beta1
kind: VkOptionsTemplate
metadata: {name: virtual-kubelet-default, namespace: liqo}
spec: {containerImage: "liqo:1", createNode: false, disableNetworkCheck: false, metricsEnabled: false, replicas: 2}
`

// TestDefaultsOfAnInstallation: they are made, made again when deleted, and follow the files at the next start, but for
// what a user changed. The controller has the rights of its roles.
func TestDefaultsOfAnInstallation(t *testing.T) {
	server := apitest.Start(t)
	c, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: api.Namespace, Name: api.ControllerManagerName}
	labels := map[string]string{"app": meta.Name}
	ofAll, ofLiqo := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	for file, role := range map[string]any{"controller": ofAll, "defaults-namespaced": ofLiqo} {
		text, err := os.ReadFile("../liqo/files/rbac/" + file + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, role); err != nil {
			t.Fatal(err)
		}
	}
	ref := func(kind, name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "controller"}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.Namespace}}, ofAll, ofLiqo,
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: ref("ClusterRole", ofAll.Name), Subjects: subjects},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: api.Namespace, Name: "liqo"}, RoleRef: ref("Role", ofLiqo.Name), Subjects: subjects,
		},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{"network.yaml": network, "options.yaml": options})
	stop := start(t, server, dir)
	wait(t, c, &ipamv1alpha1.NetworkList{}, func(o await.Objects) bool { return len(o) == 1 })
	wait(t, c, &offv1beta1.VkOptionsTemplateList{}, func(o await.Objects) bool { return len(o) == 1 })

	var made offv1beta1.VkOptionsTemplate
	key := client.ObjectKey{Namespace: api.Namespace, Name: api.VkOptionsTemplateName}
	if err := c.Get(t.Context(), key, &made); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &made); err != nil {
		t.Fatal(err)
	}
	wait(t, c, &offv1beta1.VkOptionsTemplateList{}, func(o await.Objects) bool { return len(o) == 1 && o[made.UID] == nil })
	if err := c.Get(t.Context(), key, &made); err != nil {
		t.Fatal(err)
	}
	before := made.DeepCopy()
	made.Spec.Replicas = new(int32(3))
	if err := c.Patch(t.Context(), &made, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	stop()

	if err := os.Remove(filepath.Join(dir, "network.yaml")); err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(options, "createNode: false", "createNode: true", 1)
	write(t, dir, map[string]string{"options.yaml": newer})
	defer start(t, server, dir)()
	wait(t, c, &ipamv1alpha1.NetworkList{}, func(o await.Objects) bool { return len(o) == 0 })
	wait(t, c, &offv1beta1.VkOptionsTemplateList{}, func(o await.Objects) bool {
		now, ok := o[made.UID].(*offv1beta1.VkOptionsTemplate)
		return ok && now.Spec.CreateNode && now.Spec.Replicas != nil && *now.Spec.Replicas == 3
	})
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// start runs the controller until stop is called.
func start(t *testing.T, server *apitest.Server, dir string) (stop func()) {
	t.Helper()
	mgr, err := ctrl.NewManager(server.ConfigFor("controller"), ctrl.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range defaults.Controllers(defaults.Options{Dir: dir, LiqoNamespace: api.Namespace}) {
		if err := c.Register(mgr); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func wait(t *testing.T, c client.WithWatch, list client.ObjectList, done func(await.Objects) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	if err := await.Until(ctx, c, list, done, client.InNamespace(api.Namespace)); err != nil {
		t.Fatal(patience.GaveUp(fmt.Sprintf("objects of %T", list), fmt.Sprintf("%+v\n%v", list, err)))
	}
}
