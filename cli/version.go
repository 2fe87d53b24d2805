// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
)

func (e *env) versionCommand() *cobra.Command {
	var clientOnly bool
	var output string
	cmd := &cobra.Command{Use: "version", Short: "Show the versions of liqoctl and of Liqo in the cluster",
		Example: "  liqoctl version --client\n  liqoctl version -o yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.showVersions(cmd, clientOnly, output)
		}}
	cmd.Flags().BoolVar(&clientOnly, "client", false, "Show only the version of liqoctl")
	cmd.Flags().VarP(choice(&output, "", "json", "yaml"), "output", "o", "Print the versions as data")
	addLiqoFlag(cmd.Flags(), "namespace", "n", "")
	return cmd
}

// versions holds what version prints; an empty text is left out.
type versions struct {
	Client string `json:"clientVersion,omitempty"`
	Server string `json:"serverVersion,omitempty"`
}

// showVersions prints the version of liqoctl, also if that of the cluster cannot be read.
func (e *env) showVersions(cmd *cobra.Command, clientOnly bool, output string) error {
	chart, err := embeddedChart()
	if err != nil {
		return err
	}
	have := versions{Client: chart.Metadata.AppVersion}
	if output == "" {
		fmt.Fprintf(e.Out, "Client version: %s\n", have.Client)
	}
	if !clientOnly {
		have.Server, err = e.serverVersion(cmd)
	}
	if output != "" {
		return cmp.Or(e.printQuery(have, "", output), err)
	}
	if err == nil && !clientOnly {
		fmt.Fprintf(e.Out, "Server version: %s\n", api.Printable(have.Server))
	}
	return err
}

// serverVersion returns the version of Liqo in the cluster.
func (e *env) serverVersion(cmd *cobra.Command) (string, error) {
	c, err := e.localCluster(cmd.Context(), cmd)
	if err != nil {
		return "", err
	}
	d, err := c.controller(cmd.Context())
	if err != nil {
		return "", err
	}
	return d.Labels[api.LabelAppVersion], nil
}

// warnOfVersions warns if two clusters run different versions. It prints nothing if the user may not
// read one of them, as peering users may not.
func (s *script) warnOfVersions(a, b *cluster) {
	versions, err := collect([]*cluster{a, b}, func(c *cluster) (string, error) {
		d, err := c.controller(s.ctx)
		if err != nil {
			return "", err
		}
		return d.Labels[api.LabelAppVersion], nil
	})
	if err == nil && versions[0] != versions[1] {
		s.warn(noCluster, "The %s cluster runs version %q of Liqo and the %s one %q; use one version in all clusters",
			string(a.side), versions[0], string(b.side), versions[1])
	}
}

// controller reads the Deployment of the controller, whose arguments tell how Liqo was installed.
func (c *cluster) controller(ctx context.Context) (*appsv1.Deployment, error) {
	d := c.controllerManager()
	err := c.Get(ctx, client.ObjectKeyFromObject(d), d)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("deployment %s is missing in namespace %q; run '%s install'", api.ControllerManagerName,
			c.namespace, c.env.name)
	}
	return d, c.describe("read", d, err)
}

// flagOf returns the value of a flag of a Deployment; empty if it is not set.
func flagOf(d *appsv1.Deployment, name string) string { return flagIn(d.Spec.Template.Spec, name) }

// flagIn returns the value of a flag in the command of a pod; empty if it is not set.
func flagIn(pod corev1.PodSpec, name string) (value string) {
	for _, container := range pod.Containers {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if found, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
				value = found // of repeated flags the last counts
			}
		}
	}
	return value
}
