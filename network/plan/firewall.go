// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// UserTablePrefix is the name prefix of nft tables with rules of users.
const UserTablePrefix = NFTable + "/"

// ruleset is an nft table under construction for a FirewallConfiguration. A rule that cannot be
// written is left out, because nft refuses the whole table for one invalid rule.
type ruleset struct {
	// family is the address family, as nft names it.
	family   string
	problems []string
}

// failed records why a part of the table is left out.
func (t *ruleset) failed(format string, args ...any) {
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// firewall writes the table of a FirewallConfiguration.
func firewall(f *netv1beta1.FirewallConfiguration) Content {
	c := Content{Resource: Firewalls, Namespace: f.Namespace, Name: f.Name}
	families := map[netv1beta1.FirewallFamily]string{
		netv1beta1.FamilyINET: "inet", netv1beta1.FamilyIPV4: "ip", netv1beta1.FamilyIPV6: "ip6",
		netv1beta1.FamilyARP: "arp", netv1beta1.FamilyBRIDGE: "bridge",
	}
	t := ruleset{family: families[f.Spec.Table.Family]}
	if t.family == "" {
		c.Problems = []string{fmt.Sprintf("family %s: its chains need a device, which cannot be named; use INET",
			f.Spec.Table.Family)}
		return c
	}
	table := Table{Family: t.family, Name: UserTablePrefix + f.Namespace + "/" + f.Name}
	var chains []chain
	for _, x := range f.Spec.Table.Chains {
		if err := t.check(x); err != nil {
			t.failed("chain %q: %v", x.Name, err)
			continue
		}
		chains = append(chains, chain{
			name: x.Name, base: fmt.Sprintf("%s hook %s priority %s", x.Type, x.Hook, t.priority(x)),
			drop: x.Policy == netv1beta1.PolicyDrop, rules: t.rules(x),
		})
		c.Tracks = c.Tracks || x.Type == netv1beta1.ChainTypeNAT ||
			slices.ContainsFunc(x.Rules.FilterRules, func(r netv1beta1.FilterRule) bool {
				return r.Action == netv1beta1.ActionCtMark || r.Action == netv1beta1.ActionMetaMarkFromCtMark
			})
	}
	table.Text = printTable(table.Family, table.Name, chains)
	c.Tables, c.Problems = []Table{table}, t.problems
	return c
}

// check returns an error if the kernel would refuse a chain.
func (t *ruleset) check(c netv1beta1.FirewallChain) error {
	ip := t.family == "inet" || t.family == "ip" || t.family == "ip6"
	switch {
	// These are the names that nft accepts.
	case !regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.-]*$`).MatchString(c.Name):
		return errors.New("a name begins with a letter and has only letters, digits, '.', '_' and '-'")
	case c.Hook == netv1beta1.HookIngress:
		return errors.New("hook ingress needs a device, which cannot be named; use prerouting")
	case c.Type != netv1beta1.ChainTypeFilter && !ip:
		return fmt.Errorf("type %s needs family INET, IPV4 or IPV6", c.Type)
	case c.Type == netv1beta1.ChainTypeNAT && c.Hook == netv1beta1.HookForward:
		return errors.New("type nat has no hook forward")
	case c.Type == netv1beta1.ChainTypeRoute && c.Hook != netv1beta1.HookOutput:
		return errors.New("type route has only the hook output")
	case t.family == "arp" && c.Hook != netv1beta1.HookInput && c.Hook != netv1beta1.HookOutput:
		return errors.New("family ARP has only the hooks input and output")
	// Connection tracking runs at −200, and the kernel refuses NAT before it.
	case c.Type == netv1beta1.ChainTypeNAT && c.Priority <= -200:
		return errors.New("a chain of type nat must have a priority above -200")
	}
	return nil
}

// priority returns the priority as nft prints it: relative to the nearest name, up to 10 away.
func (t *ruleset) priority(c netv1beta1.FirewallChain) string {
	names := map[string]int{"raw": -300, "mangle": -150, "filter": 0, "security": 50}
	switch c.Hook {
	case netv1beta1.HookPrerouting:
		names["dstnat"] = -100
	case netv1beta1.HookPostrouting:
		names["srcnat"] = 100
	}
	switch t.family {
	case "bridge":
		names = nil // where nft 1.0.6 prints numbers
	case "arp":
		names = map[string]int{"filter": 0}
	}
	for name, number := range names {
		switch d := int(c.Priority) - number; {
		case d == 0:
			return name
		case d > 0 && d <= 10:
			return fmt.Sprintf("%s + %d", name, d)
		case d < 0 && d >= -10:
			return fmt.Sprintf("%s - %d", name, -d)
		}
	}
	return strconv.Itoa(int(c.Priority))
}

// rules returns the rules of a chain; chains of type route have none.
func (t *ruleset) rules(c netv1beta1.FirewallChain) []string {
	var out []string
	add := func(n int, name string, text string, err error) {
		if err == nil {
			out = append(out, text+comment(name))
			return
		}
		if name == "" {
			name = "number " + strconv.Itoa(n+1)
		} else {
			name = strconv.Quote(name)
		}
		t.failed("rule %s of chain %q: %v", name, c.Name, err)
	}
	for i, r := range c.Rules.FilterRules {
		text, err := t.filter(c, r)
		add(i, r.Name, text, err)
	}
	for i, r := range c.Rules.NATRules {
		text, err := t.nat(c, r)
		add(i, r.Name, text, err)
	}
	return out
}

// comment returns a rule's name as an nft comment. Names that nft may refuse are left out.
func comment(name string) string {
	if !regexp.MustCompile(`^[a-zA-Z0-9 _.:/-]+$`).MatchString(name) {
		return ""
	}
	return fmt.Sprintf(" comment %q", name)
}

func (t *ruleset) filter(c netv1beta1.FirewallChain, r netv1beta1.FilterRule) (string, error) {
	m, err := t.match(c, r.Match)
	if err != nil {
		return "", err
	}
	if r.Action == netv1beta1.ActionTCPMSSClamp {
		if m.proto != "tcp" {
			return "", errors.New("action tcpmssclamp needs a match of protocol tcp")
		}
		m.add("tcp flags syn")
		m.named = true
	}
	words := m.words()
	if r.Counter {
		words = append(words, "counter")
	}
	action, err := t.action(c, r)
	if err == nil && r.Action == netv1beta1.ActionReject && t.family == "inet" && m.family != "" {
		action += fmt.Sprintf(" with %s port-unreachable",
			map[string]string{"ip": "icmp", "ip6": "icmpv6"}[m.family]) // as nft says it
	}
	return strings.Join(append(words, action), " "), err
}

// action returns the statement of a filter rule.
func (t *ruleset) action(c netv1beta1.FirewallChain, r netv1beta1.FilterRule) (string, error) {
	switch r.Action {
	case netv1beta1.ActionAccept, netv1beta1.ActionDrop:
		return string(r.Action), nil
	}
	if t.family == "arp" || t.family == "bridge" {
		return "", fmt.Errorf("action %s needs family INET, IPV4 or IPV6", r.Action)
	}
	switch r.Action {
	case netv1beta1.ActionReject:
		if c.Hook == netv1beta1.HookPostrouting {
			return "", errors.New("action reject is not possible in the hook postrouting; use drop")
		}
		return "reject", nil
	case netv1beta1.ActionNoTrack:
		return "notrack", nil
	case netv1beta1.ActionMetaMarkFromCtMark:
		return "meta mark set ct mark", nil
	case netv1beta1.ActionCtMark:
		mark, err := strconv.ParseUint(r.Value, 0, 32)
		if err != nil {
			return "", fmt.Errorf("value %q is no mark; write a number of 32 bits", r.Value)
		}
		return fmt.Sprintf("ct mark set 0x%08x", mark), nil
	case netv1beta1.ActionTCPMSSClamp:
		return clamp(c.Hook, r.Value)
	}
	return "", fmt.Errorf("action %q is not known", r.Action)
}

func clamp(hook netv1beta1.ChainHook, value string) (string, error) {
	if value == "" {
		if hook == netv1beta1.HookPrerouting || hook == netv1beta1.HookInput {
			return "", fmt.Errorf("action tcpmssclamp needs a value in the hook %s, where the route is not known", hook)
		}
		return "tcp option maxseg size set rt mtu", nil
	}
	size, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return "", fmt.Errorf("value %q is no segment size; write a number up to 65535", value)
	}
	return fmt.Sprintf("tcp option maxseg size set %d", size), nil
}

func (t *ruleset) nat(c netv1beta1.FirewallChain, r netv1beta1.NATRule) (string, error) {
	m, err := t.match(c, r.Match)
	if err != nil {
		return "", err
	}
	destination := c.Hook == netv1beta1.HookPrerouting || c.Hook == netv1beta1.HookOutput
	switch {
	case r.NATType == netv1beta1.NATTypeMasquerade && c.Hook != netv1beta1.HookPostrouting:
		return "", errors.New("masquerade is possible only in the hook postrouting")
	case r.NATType == netv1beta1.NATTypeMasquerade:
		return strings.Join(append(m.words(), "masquerade"), " "), nil
	case destination != (r.NATType == netv1beta1.NATTypeDNAT):
		return "", fmt.Errorf("%s is not possible in the hook %s", r.NATType, c.Hook)
	}
	to, err := parseAddresses(r.To)
	if err != nil {
		return "", fmt.Errorf("to: %w", err)
	}
	if err := m.agree(to); err != nil {
		return "", fmt.Errorf("to: %w", err)
	}
	words := append(m.words(), string(r.NATType))
	if t.family == "inet" {
		words = append(words, m.family)
	}
	if to.prefix.IsValid() {
		words = append(words, "prefix")
	}
	return strings.Join(append(words, "to", to.short()), " "), nil
}

// matched is the matching part of a rule.
type matched struct {
	// proto is the required protocol; "" = any.
	proto string
	// family is ip or ip6; "" = not restricted yet.
	family string
	// named reports whether matches of ports name the protocol.
	named bool
	tests []string
}

func (m *matched) add(test string) { m.tests = append(m.tests, test) }

// words returns all matches. The match of the protocol is left out if another one implies it.
func (m *matched) words() []string {
	if m.proto != "" && !m.named {
		return append([]string{"meta l4proto " + m.proto}, m.tests...)
	}
	return m.tests
}

// agree returns an error unless addresses have the same family as earlier ones.
func (m *matched) agree(a addressRange) error {
	family := families()[0].name
	if a.from.Is6() {
		family = families()[1].name
	}
	if m.family != "" && m.family != family {
		return fmt.Errorf("%s is not of the same address family as the table or the rest of the rule", a)
	}
	m.family = family
	return nil
}

// match returns the matches of a rule.
func (t *ruleset) match(c netv1beta1.FirewallChain, list []netv1beta1.Match) (*matched, error) {
	m := &matched{}
	if t.family == "ip" || t.family == "ip6" {
		m.family = t.family
	}
	for _, x := range list {
		if x.Proto == nil || x.Op != netv1beta1.MatchEqual {
			continue
		}
		if m.proto != "" && m.proto != string(x.Proto.Value) {
			return nil, errors.New("a packet has one protocol, the rule asks for both tcp and udp")
		}
		m.proto = string(x.Proto.Value)
	}
	for _, x := range list {
		if t.family == "arp" && (x.IP != nil || x.Port != nil || x.Proto != nil) {
			return nil, errors.New("family ARP has no addresses, ports and protocols to compare")
		}
		if err := errors.Join(m.device(c, x), m.address(x), m.protocol(x), m.port(x)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// not returns the operator of a comparison.
func not(op netv1beta1.MatchOperation) string {
	if op == netv1beta1.MatchNotEqual {
		return "!= "
	}
	return ""
}

func (m *matched) device(c netv1beta1.FirewallChain, x netv1beta1.Match) error {
	if x.Dev == nil {
		return nil
	}
	// IFNAMSIZ is 16 with the zero at the end; '*' at the end stands for any rest.
	if !regexp.MustCompile(`^[a-zA-Z0-9_.:@-]{1,15}\*?$`).MatchString(x.Dev.Value) {
		return fmt.Errorf("%q is no name of a device", x.Dev.Value)
	}
	side, unknown := "iifname", c.Hook == netv1beta1.HookOutput
	if x.Dev.Position == netv1beta1.PositionOut {
		side, unknown = "oifname", c.Hook == netv1beta1.HookPrerouting || c.Hook == netv1beta1.HookInput
	}
	if unknown {
		return fmt.Errorf("the device %s is not known in the hook %s", x.Dev.Position, c.Hook)
	}
	m.add(fmt.Sprintf("%s %s%q", side, not(x.Op), x.Dev.Value))
	return nil
}

func (m *matched) address(x netv1beta1.Match) error {
	if x.IP == nil {
		return nil
	}
	a, err := parseAddresses(x.IP.Value)
	if err != nil {
		return err
	}
	if err := m.agree(a); err != nil {
		return err
	}
	m.add(fmt.Sprintf("%s %saddr %s%s", m.family, side(x.IP.Position), not(x.Op), a))
	return nil
}

// protocol adds a negated match of a protocol; words adds positive ones.
func (m *matched) protocol(x netv1beta1.Match) error {
	if x.Proto != nil && x.Op == netv1beta1.MatchNotEqual {
		m.add("meta l4proto != " + string(x.Proto.Value))
	}
	return nil
}

func (m *matched) port(x netv1beta1.Match) error {
	if x.Port == nil {
		return nil
	}
	from, to, isRange := strings.Cut(x.Port.Value, "-")
	first, err := strconv.ParseUint(from, 10, 16)
	last := first
	if isRange && err == nil {
		last, err = strconv.ParseUint(to, 10, 16)
	}
	if err != nil || last < first {
		return fmt.Errorf("%q is neither a port nor an ascending range of ports up to 65535", x.Port.Value)
	}
	text := strconv.FormatUint(first, 10)
	if last != first {
		text += "-" + strconv.FormatUint(last, 10)
	}
	header := m.proto
	if header == "" {
		header = "th"
		if any := "meta l4proto { tcp, udp }"; !slices.Contains(m.tests, any) {
			m.add(any)
		}
	}
	m.named = m.proto != ""
	m.add(fmt.Sprintf("%s %sport %s%s", header, side(x.Port.Position), not(x.Op), text))
	return nil
}

// side returns the first letter of a field: saddr, dport.
func side(p netv1beta1.MatchPosition) string {
	if p == netv1beta1.PositionSrc {
		return "s"
	}
	return "d"
}

// addressRange is an address, a prefix, or a range.
type addressRange struct {
	span
	// prefix is set if the text was a prefix.
	prefix netip.Prefix
}

// parseAddresses parses an address, a CIDR, or an ascending range a-b.
func parseAddresses(text string) (addressRange, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return addressRange{span{First(p), Last(p)}, p.Masked()}, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	a, errA := netip.ParseAddr(from)
	b, errB := netip.ParseAddr(to)
	wrong := errA != nil || errB != nil || a.Is4() != b.Is4() || b.Less(a) || a.Is4In6() || b.Is4In6() ||
		a.Zone() != "" || b.Zone() != ""
	if wrong {
		return addressRange{}, fmt.Errorf("%q is no address, CIDR or ascending range a-b", text)
	}
	return addressRange{span: span{a, b}}, nil
}

// String prints addresses as nft does in a match: a range stays a range.
func (a addressRange) String() string {
	switch {
	case a.from == a.to:
		return a.from.String()
	case a.prefix.IsValid():
		return a.prefix.String()
	}
	return a.from.String() + "-" + a.to.String()
}

// short prints addresses as nft does in a translation: a range that is a prefix becomes one.
func (a addressRange) short() string {
	if a.prefix.IsValid() {
		return a.prefix.String()
	}
	return string(a.span.AppendTo(nil))
}
