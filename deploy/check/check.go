// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check is the role behind 'helm test'. It checks an installation once, prints a line for
// each check, and fails if one does. It changes nothing.
package check

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get
// +kubebuilder:rbac:groups=apps,resources=deployments,resourceNames=liqo-controller-manager;liqo-proxy,verbs=get
// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=liqo-fabric,verbs=get
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get

// timeout bounds each request.
const timeout = 10 * time.Second

// checker checks the installation in a namespace.
type checker struct {
	client.Client
	namespace string
	// deployments are the names of the Deployments that the installation has.
	deployments []string
	// networking says that the installation has a fabric, and gives Networks their CIDRs.
	networking bool
	// webhook is the address of the admission server; empty skips its check.
	webhook string
	out     io.Writer
	// done and failed count the checks.
	done, failed int
}

// Command is the role "check". The namespace of the installation is POD_NAMESPACE.
func Command() *cobra.Command {
	var c checker
	cmd := &cobra.Command{
		Use: "check", Short: "Check an installation, for 'helm test'", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rest, err := config.GetConfig()
			if err != nil {
				return fmt.Errorf("load the kubeconfig: %w", err)
			}
			rest.Timeout = timeout
			known := scheme.New()
			if err := apiextensionsv1.AddToScheme(known); err != nil {
				return fmt.Errorf("register the kind of definitions: %w", err)
			}
			if c.Client, err = client.New(rest, client.Options{Scheme: known}); err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			c.namespace, c.out = os.Getenv("POD_NAMESPACE"), cmd.OutOrStdout()
			return c.run(cmd.Context())
		},
	}
	cmd.Flags().StringSliceVar(&c.deployments, "deployments", []string{api.ControllerManagerName},
		"Deployments that must be ready")
	cmd.Flags().BoolVar(&c.networking, "networking-enabled", true, "check the fabric and the CIDRs of Networks")
	cmd.Flags().StringVar(&c.webhook, "webhook", "", "`host:port` of the admission server; empty checks none")
	return cmd
}

// run makes all checks.
func (c *checker) run(ctx context.Context) error {
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	for _, crd := range crds {
		c.report("kind "+crd.Name, c.established(ctx, crd.Name))
	}
	for _, name := range c.deployments {
		c.report("Deployment "+name, c.deploymentReady(ctx, name))
	}
	if c.networking {
		c.report("DaemonSet "+api.FabricName, c.fabricReady(ctx))
		for _, name := range []string{
			api.NetworkPodCIDR, api.NetworkServiceCIDR, api.NetworkExternalCIDR, api.NetworkInternalCIDR,
		} {
			c.report("Network "+name, c.hasCIDR(ctx, name))
		}
	}
	if c.webhook != "" {
		c.report("admission server "+c.webhook, c.admits(ctx))
	}
	if c.failed > 0 {
		return fmt.Errorf("%d of %d checks failed", c.failed, c.done)
	}
	return nil
}

// report prints and counts the outcome of a check.
func (c *checker) report(what string, err error) {
	c.done++
	if err != nil {
		c.failed++
		fmt.Fprintf(c.out, "FAIL  %s: %v\n", what, err)
		return
	}
	fmt.Fprintf(c.out, "ok    %s\n", what)
}

func (c *checker) established(ctx context.Context, name string) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return err
	}
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return fmt.Errorf("it is not established; see 'kubectl describe crd %s'", name)
	}
	return nil
}

func (c *checker) deploymentReady(ctx context.Context, name string) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
		return err
	}
	want := int32(1) // Kubernetes' default
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	return ready("deployment/"+name, d.Status.ReadyReplicas, want)
}

func (c *checker) fabricReady(ctx context.Context) error {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: api.FabricName}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
		return err
	}
	return ready("daemonset/"+d.Name, d.Status.NumberReady, d.Status.DesiredNumberScheduled)
}

// ready compares the ready pods of a workload with the wanted ones.
func ready(workload string, have, want int32) error {
	if have < want {
		return fmt.Errorf("%d of %d pods are ready; see 'kubectl describe %s'", have, want, workload)
	}
	return nil
}

func (c *checker) hasCIDR(ctx context.Context, name string) error {
	n := &ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(n), n); err != nil {
		return err
	}
	if n.Status.CIDR == "" {
		return fmt.Errorf("it has no CIDR; see the conditions in 'kubectl describe networks.ipam.liqo.io %s'", name)
	}
	return nil
}

// admits checks that the admission server accepts connections. Its certificate is checked by the
// API server, with the CA in the webhook configuration.
func (c *checker) admits(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	conn, err := dialer.DialContext(ctx, "tcp", c.webhook)
	if err != nil {
		return err
	}
	return conn.Close()
}
