// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/cli/values"
	"helm.sh/helm/v4/pkg/kube"
	state "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/await"
)

// installOptions holds the flags of install.
type installOptions struct {
	provider       string
	id             clusterID
	labels         map[string]string
	version        string
	repoURL        string
	chartPath      string
	values         values.Options
	onlyValues     bool
	dumpPath       string
	dryRun         dryRun
	reserved, pods cidrs
	services       cidr
	apiServerURL   string
	metrics        bool
	anyAPIServer   bool
	anyKernel      bool
	skipValidation bool
	cloud          cloudOptions
}

// providers lists the subcommands of install and the clusters that they are for.
var providers = [...]struct{ name, cluster string }{
	{"kubeadm", "a kubeadm cluster"}, {"kind", "a kind cluster"}, {"k3s", "a K3s cluster"}, {"generic", "any cluster"},
	{"aks", "an Azure cluster (AKS)"}, {"eks", "an Amazon cluster (EKS)"}, {"gke", "a Google cluster (GKE)"},
	{"openshift", "an OpenShift cluster"}}

func (e *env) installCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "install", Aliases: []string{"upgrade"},
		Short: "Install Liqo in the cluster, or upgrade it"}
	e.installFor("", cmd)
	for _, p := range providers {
		sub := &cobra.Command{Use: p.name, Short: "Install Liqo in " + p.cluster}
		e.installFor(p.name, sub)
		cmd.AddCommand(sub)
	}
	return cmd
}

// installFor gives a command the flags and the work of an installation. Without a provider it is
// for any cluster.
func (e *env) installFor(provider string, cmd *cobra.Command) {
	o := &installOptions{provider: provider}
	cmd.Example = examplesOf(provider)
	o.addFlags(cmd.Flags())
	o.addCloudFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkURL(o.apiServerURL, !o.anyAPIServer); err != nil {
			return err
		}
		chart, err := o.chart()
		if err != nil {
			return err
		}
		return e.onCluster(cmd, func(s *script, c *cluster) error { return s.install(c, chart, o) })
	}
}

// examplesOf returns calls of install for a provider.
func examplesOf(provider string) string {
	call, needs := "  liqoctl install", " --cluster-id rome"
	switch provider {
	case "", "generic":
		needs += " --pod-cidr 10.10.0.0/16 --service-cidr 10.96.0.0/12"
	case "aks":
		needs += " --resource-group-name group --resource-name cluster"
	case "eks":
		needs += " --eks-cluster-name cluster --eks-cluster-region eu-west-1"
	case "gke": // where the flag names Google's cluster
		needs = " --cluster-id cluster --project-id project --zone europe-west1-b --credentials-path key.json"
	}
	if provider != "" {
		call += " " + provider
	}
	return call + needs + "\n" + call + needs + " --dry-run=client --set networking.gatewayTemplates.replicas=2"
}

func (o *installOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringP("namespace", "n", api.Namespace, "Namespace to install in")
	flags.Var(&o.id, "cluster-id", "Name of this cluster at its peers (default: the installed one, else a random one)")
	flags.StringToStringVar(&o.labels, "cluster-labels", nil,
		"Labels of the virtual nodes that stand for this cluster")
	labels := flags.Lookup("cluster-labels")
	labels.Value = optional{labels.Value}
	flags.StringVar(&o.version, "version", "", "Version to install (default: liqoctl's own)")
	flags.StringVar(&o.repoURL, "repo-url", "",
		"Helm repository (https://… or oci://…) with the chart of --version")
	flags.StringVar(&o.chartPath, "local-chart-path", "", "Chart on disk instead of the one in liqoctl")
	flags.StringArrayVar(&o.values.Values, "set", nil, "Chart values: key=value,…")
	flags.StringArrayVar(&o.values.StringValues, "set-string", nil, "Chart values that are text: key=value,…")
	flags.StringSliceVar(&o.values.ValueFiles, "values", nil, "Files or URLs with chart values")
	flags.BoolVar(&o.onlyValues, "only-output-values", false, "Write the chart values and install nothing")
	flags.StringVar(&o.dumpPath, "dump-values-path", "./values.yaml", "Where --only-output-values writes")
	addChartDryRunFlag(flags, &o.dryRun)
	addTimeoutFlag(flags, 10*time.Minute)
	flags.Var(&o.reserved, "reserved-subnets", "Address ranges never used for peers")
	if hasCIDRFlags(o.provider) {
		flags.Var(&o.pods, "pod-cidr", "Address ranges of the cluster's pods")
		flags.Var(&o.services, "service-cidr", "Address range of the cluster's Services")
	}
	flags.StringVar(&o.apiServerURL, "api-server-url", "", "URL at which peers reach this cluster's API server")
	flags.BoolVar(&o.metrics, "enable-metrics", false, "Let the processes serve metrics")
	flags.Bool("disable-telemetry", false, "Accepted for compatibility; there is no telemetry")
	flags.BoolVar(&o.anyAPIServer, "disable-api-server-sanity-check", false, "Accept any URL of the API server")
	flags.BoolVar(&o.anyKernel, "disable-kernel-version-check", false, "Run on kernels older than supported")
	flags.BoolVar(&o.skipValidation, "skip-validation", false,
		"Do not compare address ranges with pods and Services, nor the kinds with the cluster's")
}

func hasCIDRFlags(provider string) bool {
	return provider == "" || provider == "generic" || provider == "k3s"
}

// install computes the values and applies the CustomResourceDefinitions, then the chart.
func (s *script) install(c *cluster, chart *chart.Chart, o *installOptions) error {
	s.info(noCluster, "Installer initialized")
	s.busy(noCluster, "Retrieving cluster configuration")
	facts, err := c.facts(s.ctx, o)
	if err != nil {
		return err
	}
	s.info(noCluster, "Cluster configuration correctly retrieved")
	if o.provider == "eks" {
		s.warn(noCluster, "EKS signs no client certificates: this cluster can be a consumer, but no provider")
	}
	s.busy(noCluster, "Checking the parameters")
	vals, err := o.merged(facts)
	if err != nil {
		return err
	}
	if err := o.check(s.ctx, c, facts, vals, chart); err != nil {
		return err
	}
	manifest, err := render(s.ctx, c.namespace, chart, vals)
	if err != nil {
		return err
	}
	former, err := c.pods(s.ctx)
	if err != nil {
		return err
	}
	s.info(noCluster, "Installation parameters correctly generated")
	switch {
	case o.onlyValues:
		return s.dumpValues(o.dumpPath, vals)
	case o.dryRun == dryRunClient:
		if s.verbose {
			fmt.Fprint(s.env.Out, manifest)
		}
		s.info(noCluster, "Installation completed (dry-run)")
		return nil
	}
	rel, err := s.applyAll(c, chart, vals, former)
	if err != nil {
		return err
	}
	s.reportInstalled(rel)
	return nil
}

// applyAll applies the kinds and the chart, and waits until all is ready. former are the pods that
// were there before.
func (s *script) applyAll(c *cluster, chart *chart.Chart, vals map[string]any,
	former map[types.UID]bool) (*release.Release, error) {
	s.busy(noCluster, "Applying the kinds")
	if err := c.applyCRDs(s.ctx, chart); err != nil {
		return nil, err
	}
	s.busy(noCluster, "Installing or upgrading Liqo")
	watching, done := context.WithCancel(s.ctx)
	defer done()
	go c.showPending(watching)
	go c.watchImages(watching, former, s.fail)
	rel, err := s.applyChart(c, chart, vals)
	if err != nil {
		return nil, err
	}
	done()
	return rel, c.awaitDefaults(s.ctx)
}

// reportInstalled prints what the user must know after an installation.
func (s *script) reportInstalled(rel *release.Release) {
	for _, line := range ignoredValues(rel.Info.Notes) {
		s.warn(noCluster, "%s", line)
	}
	s.info(noCluster, "All Set! You can now proceed establishing a peering (%s peer --help for more information)",
		s.env.name)
	s.info(noCluster, "Make sure to use the same version of Liqo on all remote clusters")
}

// showPending shows which Deployments of the installation are not ready, until ctx ends.
func (c *cluster) showPending(ctx context.Context) {
	_ = c.follow(ctx, &appsv1.DeploymentList{}, func(have await.Objects) bool {
		var names []string
		for _, item := range have.Sorted() {
			d, ok := item.(*appsv1.Deployment)
			if ok && d.Spec.Replicas != nil && d.Status.ReadyReplicas < *d.Spec.Replicas {
				names = append(names, d.Name)
			}
		}
		if len(names) > 0 {
			show(ctx, "waiting for "+someNames(names))
		} else {
			show(ctx, "")
		}
		return false
	}, client.InNamespace(c.namespace))
}

// merged merges the user's values into the computed ones: files, then --set, then --set-string. It
// drops the computed ipam.podCIDRs if the user sets the deprecated ipam.podCIDR, which the chart
// ignores beside it.
func (o *installOptions) merged(f facts) (map[string]any, error) {
	users, err := o.values.MergeValues(webGetters())
	if err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	vals := o.chartValues(f)
	if valueAt(users, "ipam", "podCIDR") != "" {
		delete(vals["ipam"].(map[string]any), "podCIDRs")
	}
	merge(vals, users)
	return vals, nil
}

// check refuses values that would not work.
func (o *installOptions) check(
	ctx context.Context, c *cluster, f facts, vals map[string]any, chart *chart.Chart,
) error {
	if err := c.checkID(f.installed, valueAt(vals, "discovery", "config", "clusterID")); err != nil {
		return err
	}
	if err := c.checkAPIServer(ctx, valueAt(vals, "apiServer", "address"), !o.anyAPIServer); err != nil {
		return err
	}
	full := coalesced(chart, vals)
	if err := chartvalues.ValidateAgainstSchema(chart, full); err != nil {
		return valuesError(chart, err)
	}
	if err := c.checkNetworks(ctx, full); err != nil {
		return err
	}
	if o.skipValidation {
		return nil
	}
	if err := c.checkKinds(ctx, chart); err != nil {
		return err
	}
	return c.checkRanges(ctx, o, vals)
}

// coalesced returns a copy of the chart's values with vals merged into them.
func coalesced(chart *chart.Chart, vals map[string]any) map[string]any {
	out, err := chartvalues.CoalesceValues(chart, vals)
	if err != nil {
		return vals
	}
	return out
}

func (s *script) dumpValues(path string, vals map[string]any) error {
	text, err := yaml.Marshal(vals)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the values: %w", err)
	}
	s.info(noCluster, "All Set! Chart values written to %q", path)
	return nil
}

// render renders the chart before the cluster is changed, without a request, so that its own checks
// fail early.
func render(ctx context.Context, namespace string, chart *chart.Chart, vals map[string]any) (string, error) {
	run := action.NewInstall(action.NewConfiguration())
	run.ReleaseName, run.Namespace = api.ReleaseName, namespace
	run.DryRunStrategy, run.KubeVersion = action.DryRunClient,
		&common.KubeVersion{Version: oldestKubernetes, Major: "1", Minor: "34"}
	rel, err := run.RunWithContext(ctx, chart, vals)
	if err != nil {
		return "", chartError(err)
	}
	return rel.(*release.Release).Manifest, nil
}

// refusal matches the message of the chart when it refuses its values, after the place in the
// template.
var refusal = regexp.MustCompile(`(?s)(?:error calling (?:fail|required): |execution error at \([^)]*\): )(.*)$`)

// chartError reduces a template's error to the message of the chart.
func chartError(err error) error {
	if found := refusal.FindStringSubmatch(err.Error()); found != nil {
		return errors.New(found[1])
	}
	return fmt.Errorf("render the chart: %w", err)
}

// oldestKubernetes is the oldest version the chart accepts.
const oldestKubernetes = "v1.34.0"

// applyChart installs or upgrades, and rolls back if that fails.
func (s *script) applyChart(c *cluster, chart *chart.Chart, vals map[string]any) (*release.Release, error) {
	helm, last, err := c.lastRelease()
	if err != nil {
		return nil, err
	}
	if last == nil || last.Info.Status == state.StatusUninstalled {
		return s.applyFirst(c, helm, chart, vals)
	}
	if last.Info.Status.IsPending() {
		return nil, fmt.Errorf("release %s is %s: another installation runs or was interrupted; if none runs, delete "+
			"secret %s/sh.helm.release.v1.%s.v%d and try again",
			api.ReleaseName, last.Info.Status, c.namespace, api.ReleaseName, last.Version)
	}
	if last.Info.Status == state.StatusUninstalling {
		return nil, fmt.Errorf("release %s was being uninstalled: end that with '%s uninstall', then install",
			api.ReleaseName, c.env.name)
	}
	if err := adopt(s.ctx, helm, last.Manifest); err != nil {
		return nil, c.releaseError("upgrade", err)
	}
	run := action.NewUpgrade(helm)
	run.Namespace, run.SkipCRDs = c.namespace, true
	run.WaitStrategy, run.Timeout = kube.LegacyStrategy, s.timeout
	run.MaxHistory = 10
	// Helm refuses to force where it applies on the client's side.
	run.ForceConflicts = last.ApplyMethod == string(release.ApplyMethodServerSideApply)
	run.DisableHooks = true // the kinds are applied
	rel, err := run.RunWithContext(s.ctx, api.ReleaseName, chart, vals)
	if err == nil {
		return rel.(*release.Release), nil
	}
	err = c.releaseError("upgrade", cmp.Or(context.Cause(s.ctx), err))
	now, failed := helm.Releases.Last(api.ReleaseName)
	if failed == nil && now.(*release.Release).Version == last.Version {
		return nil, err // it failed before anything was changed
	}
	back := action.NewRollback(helm)
	back.Version, back.ServerSideApply, back.ForceConflicts = last.Version, "auto", run.ForceConflicts
	back.WaitStrategy, back.Timeout = kube.HookOnlyStrategy, s.timeout
	if undo := back.Run(api.ReleaseName); undo != nil {
		return nil, errors.Join(err, fmt.Errorf("roll back: %w", undo))
	}
	return nil, err
}

// applyFirst installs, and uninstalls if that fails.
func (s *script) applyFirst(
	c *cluster, helm *action.Configuration, chart *chart.Chart, vals map[string]any,
) (*release.Release, error) {
	run := action.NewInstall(helm)
	run.ReleaseName, run.Namespace, run.CreateNamespace = api.ReleaseName, c.namespace, true
	run.WaitStrategy, run.Timeout, run.SkipCRDs, run.Replace = kube.LegacyStrategy, s.timeout, true, true
	run.ServerSideApply = false
	rel, err := run.RunWithContext(s.ctx, chart, vals)
	if err == nil {
		return rel.(*release.Release), nil
	}
	err = c.releaseError("install", cmp.Or(context.Cause(s.ctx), err))
	undo := action.NewUninstall(helm)
	undo.DisableHooks, undo.IgnoreNotFound = true, true
	undo.WaitStrategy, undo.Timeout = kube.HookOnlyStrategy, s.timeout
	left, failed := undo.Run(api.ReleaseName)
	if failed = cmp.Or(failed, leftBehind(left)); failed != nil {
		return nil, errors.Join(err, fmt.Errorf("undo the installation: %w", failed))
	}
	return nil, errors.Join(err, c.removeDefaults(context.WithoutCancel(s.ctx)))
}

// releaseError adds what is wrong with the workloads, before they are deleted.
func (c *cluster) releaseError(verb string, err error) error {
	if apierrors.IsForbidden(err) {
		return hint(fmt.Errorf("%s Liqo: %w", verb, err), "an installation needs the rights of a cluster administrator")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = errTimeout
	}
	if pull := (noImage{}); errors.As(err, &pull) {
		return fmt.Errorf("%s Liqo: %w", verb, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limits.explain)
	defer cancel()
	workloads := []client.Object{
		&appsv1.Deployment{ObjectMeta: metaOf(c.namespace, api.ControllerManagerName)},
		&appsv1.DaemonSet{ObjectMeta: metaOf(c.namespace, api.FabricName)},
		&appsv1.Deployment{ObjectMeta: metaOf(c.namespace, api.ProxyName)},
	}
	for _, workload := range workloads {
		if reason, found := c.reason(ctx, workload); found && reason != "" {
			return fmt.Errorf("%s Liqo: %w: %s: %s", verb, err, c.nameOf(workload), reason)
		}
	}
	return fmt.Errorf("%s Liqo: %w", verb, err)
}
