// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/retry"

	"github.com/liqo-go/liqo/api"
)

// helmManager is the manager of fields that the program helm applies. Under another one, each of helm and
// liqoctl would find conflicts with the other. Helm's library would take the name of the running program.
const helmManager = "helm"

func init() { kube.ManagedFieldsManager = helmManager }

// helm returns a Helm configuration for the local cluster.
func (e *env) helm(namespace string) (*action.Configuration, error) {
	e.local.Namespace = &namespace
	config := action.NewConfiguration()
	if err := config.Init(e.local, namespace, "secret"); err != nil {
		return nil, fmt.Errorf("start Helm: %w", err)
	}
	return config, nil
}

// lastRelease returns a configuration of Helm for the cluster, and the last release of Liqo or nil.
func (c *cluster) lastRelease() (*action.Configuration, *release.Release, error) {
	helm, err := c.env.helm(c.namespace)
	if err != nil {
		return nil, nil, err
	}
	last, err := helm.Releases.Last(api.ReleaseName)
	if err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return nil, nil, fmt.Errorf("read the release: %w", err)
	}
	known, _ := last.(*release.Release)
	return helm, known, nil
}

// formerManagers are the names of the programs by which earlier versions applied.
var formerManagers = sets.New("liqoctl", "liqoctl.exe", "kubectl-liqo", "kubectl-liqo.exe")

// adopt makes helmManager the owner of what earlier versions of liqoctl applied. The values stay. Any
// release may have such fields, because Helm leaves those of others that are equal to its own.
func adopt(ctx context.Context, helm *action.Configuration, manifest string) error {
	applied, err := helm.KubeClient.Build(strings.NewReader(manifest), false)
	if err != nil {
		return fmt.Errorf("read what the release has applied: %w", err)
	}
	return applied.Visit(func(info *resource.Info, err error) error {
		if err := cmp.Or(err, context.Cause(ctx)); err != nil {
			return err
		}
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := info.Get(); err != nil {
				return err
			}
			patch, err := csaupgrade.UpgradeManagedFieldsPatch(info.Object, formerManagers, helmManager)
			if err != nil || patch == nil {
				return err
			}
			helper := resource.NewHelper(info.Client, info.Mapping)
			_, err = helper.Patch(info.Namespace, info.Name, types.JSONPatchType, patch, nil)
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) { // the upgrade makes what is missing
			return fmt.Errorf("take over %s: %w", info.ObjectName(), err)
		}
		return nil
	})
}
