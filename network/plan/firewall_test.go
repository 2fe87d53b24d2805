// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// FuzzUsersRules: for any rules of users, each rule becomes one line of nft, or is left out and
// reported.
func FuzzUsersRules(f *testing.F) {
	f.Add("eth0", "10.0.0.0/8", "80", "web", "guard", "42", "10.0.0.1-10.0.0.3")
	f.Add("e\" accept\n}", "fd00::1", "0-0", "a\nb", "x } } flush ruleset", "0x1;", "fd00::/64")
	f.Add("", "1.1.1.1-::1", "9-8", "\"", "", "-1", "::ffff:1.2.3.4")
	line := regexp.MustCompile(`^(|\}|\t\}|table inet liqo/ns/x \{|\tchain [a-zA-Z][a-zA-Z0-9_.-]* \{|\t\ttype (filter|nat) hook prerouting priority (filter|dstnat); policy drop;|` +
		`\t\t(iifname != "[^"\s]+"|comment "[^"]+"|meta l4proto \{ tcp, udp \}|[a-z0-9.:/ -]+|!=| )+)$`)
	f.Fuzz(func(t *testing.T, dev, ip, port, name, chain, value, to string) {
		match := []netv1beta1.Match{
			{Op: netv1beta1.MatchNotEqual, Dev: &netv1beta1.MatchDev{Value: dev, Position: netv1beta1.PositionIn}},
			{Op: netv1beta1.MatchEqual, IP: &netv1beta1.MatchIP{Value: ip, Position: netv1beta1.PositionSrc}, Port: &netv1beta1.MatchPort{Value: port, Position: netv1beta1.PositionDst}},
		}
		base := netv1beta1.FirewallChain{Name: chain, Type: netv1beta1.ChainTypeFilter, Hook: netv1beta1.HookPrerouting, Policy: netv1beta1.PolicyDrop}
		filter, nat := base, base
		filter.Rules.FilterRules = []netv1beta1.FilterRule{{Name: name, Match: match, Action: netv1beta1.ActionCtMark, Value: value}}
		nat.Type, nat.Priority = netv1beta1.ChainTypeNAT, -100
		nat.Rules.NATRules = []netv1beta1.NATRule{{Name: name, Match: match[:1], NATType: netv1beta1.NATTypeDNAT, To: to}}
		x := netv1beta1.FirewallConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}}
		x.Spec.Table = netv1beta1.FirewallTable{Family: netv1beta1.FamilyINET, Chains: []netv1beta1.FirewallChain{filter, nat}}
		c := firewall(&x)
		rules := 0
		for _, l := range strings.Split(c.Tables[0].Text, "\n") {
			if !line.MatchString(l) {
				t.Fatalf("line %q of\n%s", l, c.Tables[0].Text)
			}
			if strings.HasPrefix(l, "\t\t") && !strings.HasPrefix(l, "\t\ttype") {
				rules++
			}
		}
		if rules+len(c.Problems) != 2 {
			t.Fatalf("%d rules and problems %q of 2", rules, c.Problems)
		}
	})
}
