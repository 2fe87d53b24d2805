// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// installation holds CRDs as a server has installed them. Later servers of this process find them in
// their etcd, which saves almost half of the CPU of a start.
type installation struct {
	crds   []*apiextensionsv1.CustomResourceDefinition
	stored map[string][]byte // the first state of the server
}

// missing returns a key of an installation that a state lacks, or "".
func (i *installation) missing(state map[string][]byte) string {
	if i != nil {
		for key := range i.stored {
			if _, ok := state[key]; !ok {
				return key
			}
		}
	}
	return ""
}

// installed is the first installation of this process.
var installed atomic.Pointer[installation]

// installCRDs creates the CRDs of deploy/liqo/crds, unless they are present, and waits until all are
// served.
func installCRDs(ctx context.Context, config *rest.Config, present *installation) (*installation, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline() // all starts have one
	options := envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(root, "deploy", "liqo", "crds")}, ErrorIfPathMissing: true,
		PollInterval: 50 * time.Millisecond, MaxTime: time.Until(end),
	}
	if present != nil {
		return present, envtest.WaitForCRDs(config, present.crds, options)
	}
	crds, err := envtest.InstallCRDs(config, options)
	if err != nil {
		return nil, fmt.Errorf("install CRDs: %w", err)
	}
	return &installation{crds: crds}, nil
}
