// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// installCRDs creates the CRDs of deploy/liqo/crds and waits until all are served.
func installCRDs(ctx context.Context, config *rest.Config) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	options := envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "deploy", "liqo", "crds")}, ErrorIfPathMissing: true, PollInterval: 50 * time.Millisecond,
	}
	if end, ok := ctx.Deadline(); ok {
		options.MaxTime = time.Until(end)
	}
	if _, err := envtest.InstallCRDs(config, options); err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	return nil
}
