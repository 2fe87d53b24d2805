// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/storage/driver"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/deploy"
	"github.com/liqo-go/liqo/internal/await"
	"github.com/liqo-go/liqo/view"
)

func (e *env) uninstallCommand() *cobra.Command {
	var purge bool
	cmd := &cobra.Command{Use: "uninstall", Short: "Remove Liqo from the cluster",
		Example: "  liqoctl uninstall\n  liqoctl uninstall --purge --skip-confirm",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.confirm("uninstall", ": "); err != nil {
				return err
			}
			return e.onCluster(cmd, func(s *script, c *cluster) error { return s.uninstall(c, purge) })
		}}
	addLiqoFlag(cmd.Flags(), "namespace", "n", "")
	cmd.Flags().BoolVar(&purge, "purge", false, "Remove the kinds and the namespaces of Liqo too")
	addTimeoutFlag(cmd.Flags(), 10*time.Minute)
	addChartDryRunFlag(cmd.Flags(), &e.dryRun)
	return cmd
}

func (s *script) uninstall(c *cluster, purge bool) error {
	own, err := c.hasLiqo(s.ctx)
	if err != nil {
		return err
	}
	left, err := c.inUse(s.ctx)
	if err != nil {
		return err
	}
	if purge {
		data, err := c.storedData(s.ctx)
		if err != nil {
			return err
		}
		left = append(left, data...)
	}
	if len(left) > 0 {
		for _, obstacle := range left {
			s.line(labelErro, noCluster, obstacle)
		}
		//lint:ignore ST1005 it begins with a name, and is printed to the user as it is
		return errors.New("Liqo is still in use; remove what is named above first")
	}
	s.info(noCluster, "Pre-uninstall checks passed")
	if err := s.endRelease(c); err != nil {
		return err
	}
	s.info(noCluster, "Liqo uninstalled")
	if !purge {
		return nil
	}
	if !s.env.dry() {
		s.busy(noCluster, "Removing kinds and namespaces")
		// Kubernetes takes 5 s for the kinds, and as long for the namespaces.
		if err := inParallel(func() error { return s.purgeCRDs(c) },
			func() error { return s.purgeNamespaces(c, own) }); err != nil {
			return err
		}
	}
	s.info(noCluster, "Liqo CRDs purged")
	s.info(noCluster, "Liqo namespaces deleted")
	return nil
}

// endRelease uninstalls the chart and shows the pods that are left meanwhile.
func (s *script) endRelease(c *cluster) error {
	if s.env.dry() {
		return nil
	}
	s.busy(noCluster, "Uninstalling Liqo")
	watching, done := context.WithCancel(s.ctx)
	defer done()
	go c.showPods(watching)
	return s.removeRelease(c.namespace)
}

// hasLiqo reports whether Liqo is or was installed in c.namespace: its keys stay after an
// uninstallation. It fails if Liqo is in another namespace, since a purge would delete its
// CustomResourceDefinitions.
func (c *cluster) hasLiqo(ctx context.Context) (bool, error) {
	id, err := c.installedID(ctx)
	if err != nil || id != "" {
		return true, err
	}
	if _, last, err := c.lastRelease(); last != nil || err != nil {
		return last != nil, err
	}
	running, err := c.all(ctx, &appsv1.DeploymentList{},
		client.MatchingFields{"metadata.name": api.ControllerManagerName})
	if err != nil {
		return false, err
	}
	for _, d := range running {
		if d.GetNamespace() != c.namespace {
			//lint:ignore ST1005 it begins with a name, and is printed to the user as it is
			return false, fmt.Errorf("Liqo is in namespace %s; give --namespace %s", d.GetNamespace(), d.GetNamespace())
		}
	}
	keys := &corev1.Secret{}
	err = c.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: api.AuthenticationKeysSecret}, keys)
	return len(running) > 0 || keys.Labels[api.LabelManaged] == api.True, client.IgnoreNotFound(err)
}

// showPods shows the remaining pods of the installation until ctx ends.
func (c *cluster) showPods(ctx context.Context) {
	_ = c.follow(ctx, &corev1.PodList{}, func(have await.Objects) bool {
		if len(have) > 0 {
			show(ctx, "pods left: "+someNames(textsOf(have.Sorted(), client.Object.GetName)))
		}
		return false
	}, client.InNamespace(c.namespace))
}

func (s *script) removeRelease(namespace string) error {
	helm, err := s.env.helm(namespace)
	if err != nil {
		return err
	}
	run := action.NewUninstall(helm)
	run.Timeout, run.WaitStrategy = s.timeout, kube.LegacyStrategy
	gone, err := run.Run(api.ReleaseName)
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return hint(fmt.Errorf("uninstall release %s: %w", api.ReleaseName, err),
			"see with 'kubectl get liqo -A' what is left, and why in its conditions")
	}
	return leftBehind(gone)
}

// notDeleted matches what Helm says of objects that it left because they have lost the marks of the
// release, or were not to be read. Beside these it tells of those that the chart wants to keep.
var notDeleted = regexp.MustCompile(`(?s)\d+ resource\(s\) were not deleted because.*`)

// leftBehind returns an error that names what Helm has left of a release; nil if that is nothing.
func leftBehind(answer *release.UninstallReleaseResponse) error {
	if answer == nil || !notDeleted.MatchString(answer.Info) {
		return nil
	}
	return hint(fmt.Errorf("uninstall release %s: %s", api.ReleaseName,
		strings.Join(strings.Fields(notDeleted.FindString(answer.Info)), " ")),
		"the release is gone, so delete them by hand if they are Liqo's")
}

// obstacle is a kind of object that must be deleted before Liqo is uninstalled.
type obstacle struct {
	list client.ObjectList
	// one and many name the kind.
	one, many string
	// remedy is the command that deletes an object; %s stands for its name.
	remedy string
	// counts reports whether an object is an obstacle; nil means that each is.
	counts func(client.Object) bool
}

// inUse lists what must be undone first, a line for each kind with the command for it.
func (c *cluster) inUse(ctx context.Context) ([]string, error) {
	unpeer := fmt.Sprintf("run '%s unpeer' with the kubeconfig of the peer, or '%s force unpeer %%s' if it is gone "+
		"for good", c.env.name, c.env.name)
	var lines []string
	for _, o := range []obstacle{
		{&corev1beta1.ForeignClusterList{}, "peering", "peerings", unpeer, enabledPeer},
		{&offv1beta1.NamespaceOffloadingList{}, "offloaded namespace", "offloaded namespaces",
			"run '" + c.env.name + " unoffload namespace %s'", nil},
		{&authv1beta1.ResourceSliceList{}, "resourceslice", "resourceslices",
			"run '" + c.env.name + " unpeer', or 'kubectl delete rslice %s'", nil},
		{&netv1beta1.ConfigurationList{}, "configuration", "configurations",
			"run '" + c.env.name + " network reset', or 'kubectl delete configurations.networking.liqo.io %s'", nil},
		{&ipamv1alpha1.IPList{}, "IP", "IPs", "run 'kubectl delete ips.ipam.liqo.io %s'", madeByUser},
		{&ipamv1alpha1.NetworkList{}, "Network", "Networks", "run 'kubectl delete networks.ipam.liqo.io %s'",
			madeByUser},
	} {
		found, err := c.all(ctx, o.list)
		if err != nil {
			return nil, err
		}
		if o.counts != nil {
			found = slices.DeleteFunc(found, func(object client.Object) bool { return !o.counts(object) })
		}
		switch len(found) {
		case 0:
		case 1:
			lines = append(lines, fmt.Sprintf("1 %s (%s): "+o.remedy, o.one, placeOf(found[0]), argument(found[0])))
		default:
			lines = append(lines, fmt.Sprintf("%d %s (%s): "+o.remedy+", and so on", len(found), o.many,
				someNames(textsOf(found, placeOf)), argument(found[0])))
		}
	}
	return lines, nil
}

// argument returns an object as kubectl and liqoctl take it.
func argument(o client.Object) string {
	if place, name, ok := strings.Cut(placeOf(o), "/"); ok {
		return "-n " + place + " " + name
	}
	return placeOf(o)
}

// placeOf returns the name of an object for messages: that of a NamespaceOffloading is its
// namespace.
func placeOf(o client.Object) string {
	switch {
	case o.GetNamespace() == "":
		return o.GetName()
	case o.GetName() == api.NamespaceOffloadingName:
		return o.GetNamespace()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// enabledPeer reports whether a module is enabled for a peer; o is a ForeignCluster.
func enabledPeer(o client.Object) bool { return view.IsActive(o.(*corev1beta1.ForeignCluster)) }

// madeByUser reports whether an object belongs neither to the installation nor to a peering.
func madeByUser(o client.Object) bool {
	return o.GetAnnotations()[api.AnnotationPreinstalled] != api.True && len(o.GetOwnerReferences()) == 0
}

// purgeCRDs deletes the CustomResourceDefinitions and with them the remaining objects.
func (s *script) purgeCRDs(c *cluster) error {
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	return onEach(crds, func(crd *apiextensionsv1.CustomResourceDefinition) error {
		return c.removeAndAwait(s.ctx, crd)
	})
}

// purgeNamespaces deletes the tenant and storage namespaces, and that of the installation. It keeps
// the latter if the user named a namespace in which Liqo never was.
func (s *script) purgeNamespaces(c *cluster, own bool) error {
	var names []string
	if own || c.namespace == api.Namespace {
		names = append(names, c.namespace)
	}
	for _, label := range []string{api.LabelTenantNamespace, api.LabelStorageProvisioner} {
		found := &corev1.NamespaceList{}
		if err := c.List(s.ctx, found, client.MatchingLabels{label: api.True}); err != nil {
			return fmt.Errorf("list namespaces: %w", err)
		}
		for _, n := range found.Items {
			names = append(names, n.Name)
		}
	}
	return onEach(names, func(name string) error {
		return c.removeAndAwait(s.ctx, &corev1.Namespace{ObjectMeta: metaOf("", name)})
	})
}
