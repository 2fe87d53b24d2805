// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

func TestMain(m *testing.M) { space.Main(m) }

// TestUsersRulesAreApplied: rules of users are applied while they select the host. Their status reports
// the result, from whichever process reports for the host.
func TestUsersRulesAreApplied(t *testing.T) {
	t.Parallel()
	client, err := Connect(apitest.Start(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	labels := map[string]string{api.LabelFirewallCategory: api.CategoryGateway, api.LabelRouteCategory: api.CategoryGateway}
	port := func(value string) []netv1beta1.Match {
		return []netv1beta1.Match{{Op: netv1beta1.MatchEqual, Port: &netv1beta1.MatchPort{Value: value, Position: netv1beta1.PositionDst}}}
	}
	guard := &netv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guard", Labels: labels}}
	guard.Spec.Table = netv1beta1.FirewallTable{Name: "guard", Family: netv1beta1.FamilyINET, Chains: []netv1beta1.FirewallChain{{
		Name: "in", Type: netv1beta1.ChainTypeFilter, Hook: netv1beta1.HookInput, Policy: netv1beta1.PolicyAccept,
		Rules: netv1beta1.FirewallRules{FilterRules: []netv1beta1.FilterRule{
			{Name: "good", Match: port("4444"), Action: netv1beta1.ActionDrop}, {Name: "bad", Match: port("9-8"), Action: netv1beta1.ActionDrop},
		}},
	}}}
	way := &netv1beta1.RouteConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "way", Labels: labels}}
	way.Spec.Table = &netv1beta1.RouteTable{Name: "way", Rules: []netv1beta1.RouteRule{
		{Dst: "10.99.0.0/16", Routes: []netv1beta1.Route{{Dst: "10.99.0.0/16", Dev: "lo"}, {Dst: "10.98.0.0/16", Dev: "absent"}}},
	}}
	for resource, body := range map[string]any{plan.Firewalls: guard, plan.Routings: way} {
		if r := client.Networking.Post().Namespace("default").Resource(resource); body == any(guard) {
			err = r.Body(guard).Do(ctx).Error()
		} else {
			err = r.Body(way).Do(ctx).Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	start := func(name string) (end func()) {
		plane, err := dataplane.Open(dataplane.Options{})
		if err != nil {
			t.Fatal(err)
		}
		life, cancel := context.WithCancel(ctx)
		d := New(Role{
			Name: "gateway of " + name,
			Want: func(context.Context, bool) (plan.State, bool, error) { return plan.State{}, true, nil },
			Contents: WatchContents(client, ContentsOptions{
				Host: plan.Host{Category: api.CategoryGateway}, Name: name, Writer: func(string) string { return "liqo/gateway-of-test" },
			}),
		}, plane)
		ended := make(chan error, 1)
		go func() { ended <- d.Run(life) }()
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	status := func(want string) {
		t.Helper()
		space.Eventually(t, want, func() error {
			f, r := netv1beta1.FirewallConfiguration{}, netv1beta1.RouteConfiguration{}
			if err := client.Networking.Get().Namespace("default").Resource(plan.Firewalls).Name("guard").Do(ctx).Into(&f); err != nil {
				return err
			}
			if err := client.Networking.Get().Namespace("default").Resource(plan.Routings).Name("way").Do(ctx).Into(&r); err != nil {
				return err
			}
			var b strings.Builder
			for _, c := range append(f.Status.Conditions, r.Status.Conditions...) {
				fmt.Fprintf(&b, "%s %s %s %s\n", c.Host, c.Type, c.Status, c.Message)
			}
			return expect(b.String() == want, want+"but\n"+b.String())
		})
	}
	ruleset := func() string {
		out, err := exec.Command("sh", "-c", "nft -s list ruleset; ip rule; ip route show table all").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	before := ruleset()
	bad, absent := `rule "bad" of chain "in": "9-8" is neither a port nor an ascending range of ports up to 65535`,
		"route 10.98.0.0/16 dev absent table 1819410298 scope link: Link not found"
	said := func(host string) string {
		return fmt.Sprintf("%s Error True %s\n%s Error True %s\n", host, bad, host, absent)
	}
	end := start("gw-1")
	status(said("gw-1"))
	text := ruleset()
	for _, part := range []string{"table inet liqo/default/guard", "th dport 4444 drop comment \"good\"", "from all to 10.99.0.0/16 lookup", "10.99.0.0/16 dev lo table"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in\n%s", part, text)
		}
	}
	end()
	end = start("gw-2")
	status(said("gw-2"))
	for _, resource := range []string{plan.Firewalls, plan.Routings} {
		patch := fmt.Sprintf(`{"metadata": {"labels": {%q: "other", %q: "other"}}}`, api.LabelFirewallCategory, api.LabelRouteCategory)
		name := map[string]string{plan.Firewalls: "guard", plan.Routings: "way"}[resource]
		if err := client.Networking.Patch(types.MergePatchType).Namespace("default").Resource(resource).Name(name).Body([]byte(patch)).Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
	}
	status("")
	end()
	if after := ruleset(); after != before {
		t.Errorf("left is\n%s", after)
	}
}
