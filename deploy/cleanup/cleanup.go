// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cleanup is the role that runs once, before a release is deleted. It waits until no
// peering is left, and deletes what the processes created.
//
//	no peering left ─▶ annotate the controller ─▶ delete ─▶ wait 15 s ─▶ remove finalizers
//
// The annotation keeps the controllers from creating objects again, such as an InternalNode for
// each node. The fabric still runs on each node, and removes its links and rules when its
// InternalNode is deleted.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy/defaults/plan"
	"github.com/liqo-go/liqo/internal/await"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	// timeout bounds the whole; Helm's own time-out is usually the same.
	timeout = 5 * time.Minute
	// grace is how long finalizers are left to those who set them.
	grace = 15 * time.Second
)

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=list;watch;delete;patch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips;networks,verbs=list;watch;delete;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes;internalfabrics,verbs=list;watch;delete;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservertemplates,verbs=list;watch;delete;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayclienttemplates,verbs=list;watch;delete;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=vkoptionstemplates,verbs=list;watch;delete;patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;gatewayservers;gatewayclients,verbs=list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch;delete;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants;identities;resourceslices,verbs=list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespaceoffloadings;virtualnodes,verbs=list;watch

// cleaner works on one cluster.
type cleaner struct {
	client.WithWatch
	namespace string
	out       io.Writer
}

// Command is the role "cleanup". It is configured by POD_NAMESPACE alone.
func Command() *cobra.Command {
	return &cobra.Command{
		Use: "cleanup", Short: "Remove what Liqo made in the cluster, before it is uninstalled", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rest, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("load the kubeconfig: %w", err)
			}
			c, err := client.NewWithWatch(rest, client.Options{Scheme: scheme.New()})
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return (&cleaner{WithWatch: c, namespace: os.Getenv("POD_NAMESPACE"), out: cmd.OutOrStdout()}).run(ctx)
		},
	}
}

// peeringKinds are made by users; while one exists the cluster is in use.
func peeringKinds() []client.ObjectList {
	return []client.ObjectList{
		&offv1beta1.NamespaceOffloadingList{}, &offv1beta1.VirtualNodeList{}, &authv1beta1.ResourceSliceList{},
		&authv1beta1.IdentityList{},
		&authv1beta1.TenantList{}, &netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{},
		&netv1beta1.ConfigurationList{},
	}
}

// ownKinds are made by the installation and its processes.
func ownKinds() []client.ObjectList {
	return []client.ObjectList{
		&netv1beta1.InternalFabricList{}, &netv1beta1.InternalNodeList{}, &ipamv1alpha1.IPList{},
		&ipamv1alpha1.NetworkList{}, &corev1beta1.ForeignClusterList{},
	}
}

// defaultKinds also have objects of users, which stay: those that the controller made have its label
// and these names.
func defaultKinds() map[string]client.ObjectList {
	return map[string]client.ObjectList{
		api.WgGatewayServerTemplateName: &netv1beta1.WgGatewayServerTemplateList{},
		api.WgGatewayClientTemplateName: &netv1beta1.WgGatewayClientTemplateList{},
		api.VkOptionsTemplateName:       &offv1beta1.VkOptionsTemplateList{},
	}
}

func (c *cleaner) run(ctx context.Context) error {
	for _, list := range peeringKinds() {
		if err := c.awaitNone(ctx, list); err != nil {
			return hint(err, "run 'liqoctl unoffload namespace' and 'liqoctl unpeer' first")
		}
	}
	if err := c.awaitNone(ctx, &corev1.NodeList{},
		client.MatchingLabels{api.LabelType: api.TypeVirtualNode}); err != nil {
		return hint(err, "delete the virtual nodes first")
	}
	if err := c.mark(ctx); err != nil {
		return err
	}
	for _, list := range ownKinds() {
		if err := c.clear(ctx, list); err != nil {
			return err
		}
	}
	for name, list := range defaultKinds() {
		made := client.MatchingLabels{desired.LabelController: plan.Controller}
		if err := c.clear(ctx, list, made, client.MatchingFields{"metadata.name": name}); err != nil {
			return err
		}
	}
	ours := client.MatchingLabels{api.LabelManaged: api.True}
	if err := c.clear(ctx, &certificatesv1.CertificateSigningRequestList{}, ours); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "nothing is left")
	return nil
}

func hint(err error, remedy string) error { return fmt.Errorf("%w; %s", err, remedy) }

// mark tells the controllers, which still clean up, to make nothing again.
func (c *cleaner) mark(ctx context.Context) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: api.ControllerManagerName}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, api.AnnotationUninstalling, api.True)
	err := c.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(patch)))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotate deployment %s/%s: %w", c.namespace, d.Name, err)
	}
	return nil
}

// clear deletes the objects of a list and, after the grace, what holds them.
func (c *cleaner) clear(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	objects, err := c.all(ctx, list, opts...)
	if err != nil || len(objects) == 0 {
		return err
	}
	fmt.Fprintf(c.out, "deleting %d of %T\n", len(objects), list)
	for _, object := range objects {
		if err := c.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s/%s: %w", object.GetNamespace(), object.GetName(), err)
		}
	}
	short, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := c.awaitNone(short, list, opts...); err == nil || ctx.Err() != nil {
		return err
	}
	if objects, err = c.all(ctx, list, opts...); err != nil {
		return err
	}
	for _, object := range objects {
		err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("free %s/%s of its finalizers: %w", object.GetNamespace(), object.GetName(), err)
		}
	}
	return c.awaitNone(ctx, list, opts...)
}

func (c *cleaner) all(ctx context.Context, list client.ObjectList, opts ...client.ListOption) ([]client.Object, error) {
	found, err := await.List(ctx, c, list, opts...)
	if err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	return found, nil
}

// awaitNone waits until no object of the list is left and names those that are when time is up.
func (c *cleaner) awaitNone(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var left []string
	err := await.Until(ctx, c, list, func(have await.Objects) bool {
		left = nil
		for _, object := range have.Sorted() {
			left = append(left, strings.Trim(object.GetNamespace()+"/"+object.GetName(), "/"))
		}
		return len(left) == 0
	}, opts...)
	switch {
	case err == nil, meta.IsNoMatchError(err):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%T: %s still there: wait for %T: %w", list, strings.Join(left, ", "), list, err)
	}
	return fmt.Errorf("wait for %T: %w", list, err)
}
