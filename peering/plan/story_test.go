// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/peering/plan"
)

// TestStories sums up the peer "rome" out of the objects of each story. The last probe of its
// API server is in the annotation "probe" of the ForeignCluster, the modules that are not
// installed in the annotation "without".
func TestStories(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		s.Expect(t, "status.yaml", tell(t, plan.ForeignCluster(input(t, s))))
	})
}

// TestSummaryIsStable: summing up again what was written changes nothing, whatever the time.
func TestSummaryIsStable(t *testing.T) {
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		in := input(t, s)
		if in.Root.DeletionTimestamp != nil {
			return
		}
		first := tell(t, plan.ForeignCluster(in))
		in.Root.Status = plan.ForeignCluster(in).Status.(*corev1beta1.ForeignCluster).Status
		in.Now = in.Now.Add(time.Hour)
		if diff := cmp.Diff(first, tell(t, plan.ForeignCluster(in))); diff != "" {
			t.Errorf("the second status differs (-first +second):\n%s", diff)
		}
	})
}

// FuzzKubeconfig: users write these Secrets by hand.
func FuzzKubeconfig(f *testing.F) {
	f.Add([]byte("current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: https://x}}]"))
	f.Add([]byte("[1]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		root := &corev1beta1.ForeignCluster{}
		p := plan.ForeignCluster(plan.Input{Root: root, Secrets: []corev1.Secret{{Data: map[string][]byte{"kubeconfig": data}}}})
		if p.State == desired.Blocked || p.Status == nil {
			t.Errorf("a bad kubeconfig hides the rest: %+v", p)
		}
	})
}

func tell(t *testing.T, p desired.Plan) string {
	t.Helper()
	var out struct {
		Verdict string `json:"verdict,omitempty"`
		Status  any    `json:"status,omitempty"`
	}
	if p.State != desired.Ready {
		out.Verdict = p.Reason + ": " + p.Message
	}
	if fc, ok := p.Status.(*corev1beta1.ForeignCluster); ok {
		out.Status = fc.Status
	}
	text, err := yaml.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// input sorts the documents of a story into what Gather reads.
func input(t *testing.T, s *story.Story) plan.Input {
	t.Helper()
	in := plan.Input{
		Modules:     plan.Modules{Networking: true, Authentication: true, Offloading: true},
		Deployments: map[types.NamespacedName]*appsv1.Deployment{},
		Now:         time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC),
	}
	for _, obj := range story.Objects(t, s.Files[0].Data) {
		switch obj := obj.(type) {
		case *corev1beta1.ForeignCluster:
			in.Root = obj
		case *corev1.Namespace:
			in.Namespaces = append(in.Namespaces, *obj)
		case *netv1beta1.Configuration:
			in.Configurations = append(in.Configurations, *obj)
		case *netv1beta1.Connection:
			in.Connections = append(in.Connections, *obj)
		case *netv1beta1.GatewayServer:
			in.GatewayServers = append(in.GatewayServers, *obj)
		case *netv1beta1.GatewayClient:
			in.GatewayClients = append(in.GatewayClients, *obj)
		case *authv1beta1.Tenant:
			in.Tenants = append(in.Tenants, *obj)
		case *authv1beta1.Identity:
			in.Identities = append(in.Identities, *obj)
		case *corev1.Secret:
			in.Secrets = append(in.Secrets, *obj)
		case *offv1beta1.VirtualNode:
			in.VirtualNodes = append(in.VirtualNodes, *obj)
		case *corev1.Node:
			in.Nodes = append(in.Nodes, *obj)
		case *appsv1.Deployment:
			in.Deployments[client.ObjectKeyFromObject(obj)] = obj
		default:
			t.Fatalf("no place for %T", obj)
		}
	}
	in.Secrets = plan.Kubeconfigs(in.Secrets, in.Namespaces)
	for name := range in.Deployments {
		if !slices.Contains(plan.Workloads(in), name) {
			t.Errorf("the Deployment %s of the story is not asked for", name)
		}
	}
	switch message, probed := in.Root.Annotations["probe"]; {
	case message == "alive":
		in.Probe = &plan.Probe{Alive: true}
	case probed:
		in.Probe = &plan.Probe{Message: message}
	}
	for name := range strings.FieldsSeq(in.Root.Annotations["without"]) {
		switch name {
		case "networking":
			in.Modules.Networking = false
		case "offloading":
			in.Modules.Offloading = false
		}
	}
	return in
}
