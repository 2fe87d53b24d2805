// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strconv"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// dryRun says what becomes of the writes of a verb, with the words of kubectl.
type dryRun string

const (
	// dryRunNone: the writes take effect.
	dryRunNone dryRun = "none"
	// dryRunClient: the cluster is read, and nothing is sent.
	dryRunClient dryRun = "client"
	// dryRunServer: the API server checks and answers all requests, and stores nothing.
	dryRunServer dryRun = "server"
)

// addDryRunFlag adds the flag of verbs whose writes do not depend on what controllers answer to
// earlier ones.
func (e *env) addDryRunFlag(flags *pflag.FlagSet) {
	flags.Var(choice(&e.dryRun, string(dryRunNone), string(dryRunClient), string(dryRunServer)), "dry-run",
		"client: change nothing, and say what would be; server: also let the API server check it")
}

// addChartDryRunFlag adds the flag of install and uninstall. The API server cannot check the objects of
// the chart while it does not have their kinds and namespace.
func addChartDryRunFlag(flags *pflag.FlagSet, into *dryRun) {
	flags.Var(yesOrNo{choice(into, string(dryRunNone), string(dryRunClient))}, "dry-run",
		"client: check everything and change nothing")
	flags.Lookup("dry-run").NoOptDefVal = string(dryRunClient)
}

// yesOrNo is a flag for dry runs that takes true and false as well, as the one of Liqo v1.2 does.
type yesOrNo struct{ *oneOf[dryRun] }

func (v yesOrNo) Set(text string) error {
	if yes, err := strconv.ParseBool(text); err == nil {
		text = string(dryRunNone)
		if yes {
			text = string(dryRunClient)
		}
	}
	return v.oneOf.Set(text)
}

// dry reports that nothing is to be changed.
func (e *env) dry() bool { return e.dryRun == dryRunClient || e.dryRun == dryRunServer }

// suffix ends lines about what is done, as kubectl has it.
func (d dryRun) suffix() string {
	switch d {
	case dryRunClient:
		return " (dry run)"
	case dryRunServer:
		return " (server dry run)"
	}
	return ""
}

// rehearse returns a client whose writes change nothing, or c itself without a dry run.
func (d dryRun) rehearse(c client.WithWatch) client.WithWatch {
	if d.suffix() == "" {
		return c
	}
	return &rehearsal{Client: client.NewDryRunClient(c), real: c, silent: d == dryRunClient}
}

// rehearsal is a client whose writes change nothing: the API server only checks them.
type rehearsal struct {
	client.Client
	real client.WithWatch
	// silent reports that writes of objects are not even sent.
	silent bool
}

func (r *rehearsal) Watch(
	ctx context.Context, list client.ObjectList, opts ...client.ListOption,
) (watch.Interface, error) {
	return r.real.Watch(ctx, list, opts...)
}

func (r *rehearsal) Create(ctx context.Context, object client.Object, opts ...client.CreateOption) error {
	if r.silent {
		return nil
	}
	return r.Client.Create(ctx, object, opts...)
}

func (r *rehearsal) Update(ctx context.Context, object client.Object, opts ...client.UpdateOption) error {
	if r.silent {
		return nil
	}
	return r.Client.Update(ctx, object, opts...)
}

func (r *rehearsal) Patch(
	ctx context.Context, object client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	if r.silent {
		return nil
	}
	return r.Client.Patch(ctx, object, patch, opts...)
}

// Delete fails for an object that does not exist, also if it is not sent.
func (r *rehearsal) Delete(ctx context.Context, object client.Object, opts ...client.DeleteOption) error {
	if r.silent {
		return r.Get(ctx, client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	}
	return r.Client.Delete(ctx, object, opts...)
}
