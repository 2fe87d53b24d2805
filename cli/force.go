// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
)

func (e *env) forceCommand() *cobra.Command {
	force := &cobra.Command{Use: "force", Short: "Do without the other side what needs both"}
	var namespace string
	var timeout time.Duration
	unpeer := &cobra.Command{Use: "unpeer <cluster-id>", Short: "End the peering with a cluster that is gone for good", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.confirm("force unpeer might leave the remote cluster in an inconsistent state and it"); err != nil {
				return err
			}
			return e.forceUnpeer(cmd.Context(), namespace, args[0], timeout)
		}}
	unpeer.Flags().StringVarP(&namespace, "namespace", "n", api.Namespace, "Namespace Liqo is installed in")
	unpeer.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "How long to wait in all")
	force.AddCommand(unpeer)
	return force
}

// forceUnpeer declares the peer dead, so that nothing waits for it any more, and deletes the
// tenant namespace, with which the peering goes on this side.
func (e *env) forceUnpeer(ctx context.Context, namespace, id string, timeout time.Duration) error {
	s, stop := e.newScript(ctx, timeout)
	defer stop()
	c, err := e.cluster(e.local, nowhere, namespace)
	if err != nil {
		return err
	}
	if _, err := c.installedID(s.ctx); err != nil {
		return err
	}
	foreign := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	err = c.Get(s.ctx, client.ObjectKeyFromObject(foreign), foreign)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("remote cluster with ID %s not found", id)
	}
	if err != nil {
		return c.describe("read", foreign, err)
	}
	if namespaces := foreign.Status.TenantNamespace; namespaces != nil {
		c.tenant = namespaces.Local
	}
	s.info(nowhere, "Info about the remote cluster retrieved successfully")
	metav1.SetMetaDataAnnotation(&foreign.ObjectMeta, api.AnnotationPermanentlyUnreachable, api.True)
	if err := c.Update(s.ctx, foreign); err != nil {
		return c.describe("update", foreign, err)
	}
	s.info(nowhere, "Foreign cluster declared as permanently unreachable successfully")
	if err := s.dropNamespace(c, true); err != nil {
		return err
	}
	s.info(nowhere, "Force unpeer executed successfully")
	return nil
}
