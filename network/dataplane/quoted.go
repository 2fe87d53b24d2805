// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/network/plan"
)

// quotedTable holds the rules for addresses quoted in ICMP errors. The nft command can write such
// an address, but cannot correct the checksum for it. These rules are therefore sent to the kernel
// as netlink messages. The comment of each rule is its Quote, from which it is read back.
const (
	quotedTable = "liqo-quoted"
	quotes      = "ip " + quotedTable
)

// These are offsets of fields of the quoted IPv4 header, in bytes from the start of an ICMP error. The
// ICMP header has 8 bytes (RFC 792); source and destination are at 12 and 16 of the quoted header
// (RFC 791). Correcting the quoted header's checksum, at byte 10, keeps the sum of all its bytes, so
// the checksum of the ICMP error stays valid.
const (
	quotedSource, quotedDestination = 8 + 12, 8 + 16
	quotedChecksum                  = 8 + 10
)

// readQuotes parses the rules from the output of nft. listed is the output after they were written,
// or "" if an earlier process wrote them. A changed table yields a rule that is never desired.
func readQuotes(text, listed string) []plan.Quote {
	changed := []plan.Quote{{}}
	if listed != "" && listed != text {
		return changed
	}
	var out []plan.Quote
	for _, comment := range regexp.MustCompile(`comment "(.*)"`).FindAllStringSubmatch(text, -1) {
		q, err := plan.ParseQuote(comment[1])
		if err != nil {
			return changed
		}
		if !slices.Contains(out, q) { // each has two rules
			out = append(out, q)
		}
	}
	return out
}

// writeQuotes replaces all rules in one transaction.
func (d *Dataplane) writeQuotes(ctx context.Context, c *plan.QuotesChange) error {
	if c == nil {
		return nil
	}
	var b nftBatch
	table := []*nl.RtAttr{text(unix.NFTA_TABLE_NAME, quotedTable)}
	b.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table...)
	b.add(unix.NFT_MSG_DELTABLE, 0, table...)
	if len(c.New) > 0 {
		b.add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, table...)
		// The first runs after raw and before conntrack (−200), the second after all others.
		b.chain("from-peer", unix.NF_INET_PRE_ROUTING, -298)
		b.chain("to-peer", unix.NF_INET_POST_ROUTING, 301)
		for _, chain := range []string{"from-peer", "to-peer"} {
			b.passOthers(chain)
		}
	}
	for _, q := range c.New {
		for _, kind := range []byte{3, 11} { // destination unreachable, time exceeded
			b.quote(q, kind)
		}
	}
	send := func(bool) error { return b.send() }
	if err := d.tables.transact(ctx, quotes, "", send); err != nil {
		return fmt.Errorf("write nft table ip %s: %w", quotedTable, err)
	}
	return nil
}

// nfAccept ends a chain (NF_ACCEPT of linux/netfilter.h).
const nfAccept = 1

// nftBatch holds the messages of one transaction.
type nftBatch struct {
	bytes []byte
	acks  int
}

// message appends a netlink message; resource is the subsystem in the messages that begin and end a
// batch, and 0 in others.
func (b *nftBatch) message(kind, flags int, family byte, resource uint16, attrs ...*nl.RtAttr) {
	body := binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
	for _, a := range attrs {
		body = append(body, a.Serialize()...)
	}
	header := make([]byte, unix.NLMSG_HDRLEN)
	binary.NativeEndian.PutUint32(header, uint32(len(header)+len(body)))
	binary.NativeEndian.PutUint16(header[4:], uint16(kind))
	binary.NativeEndian.PutUint16(header[6:], uint16(unix.NLM_F_REQUEST|flags))
	b.bytes = append(append(b.bytes, header...), body...)
}

// add appends a message that the kernel acknowledges.
func (b *nftBatch) add(kind, flags int, attrs ...*nl.RtAttr) {
	b.acks++
	b.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_ACK|flags, unix.NFPROTO_IPV4, 0, attrs...)
}

func (b *nftBatch) chain(name string, hook, priority int) {
	at := nest(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, hook), number(unix.NFTA_HOOK_PRIORITY, priority))
	b.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, text(unix.NFTA_CHAIN_TABLE, quotedTable),
		text(unix.NFTA_CHAIN_NAME, name), at, text(unix.NFTA_CHAIN_TYPE, "filter"))
}

// passOthers adds a first rule that accepts all packets but ICMP, so that most traffic leaves the
// chain there.
func (b *nftBatch) passOthers(chain string) {
	notICMP := compare(unix.NFT_CMP_NEQ, []byte{unix.IPPROTO_ICMP})
	b.rule(chain, []*nl.RtAttr{meta(unix.NFT_META_L4PROTO), notICMP, accept()})
}

// quote adds the rule for one type of ICMP error. The rule ends the chain, so that no other rule
// translates the new address again.
func (b *nftBatch) quote(q plan.Quote, kind byte) {
	chain, device, at := "to-peer", unix.NFT_META_OIFNAME, quotedSource
	if q.Inbound {
		chain, device, at = "from-peer", unix.NFT_META_IIFNAME, quotedDestination
	}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, q.Device)
	if begin, any := strings.CutSuffix(q.Device, "*"); any {
		name = []byte(begin)
	}
	mask := net.CIDRMask(q.From.Bits(), 32)
	keep := make([]byte, 4)
	for i := range mask {
		keep[i] = ^mask[i]
	}
	from, to := q.From.Masked().Addr().As4(), q.To.Masked().Addr().As4()
	load := payload(number(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1), at, 4)
	exprs := []*nl.RtAttr{
		meta(device), equals(name), meta(unix.NFT_META_L4PROTO), equals([]byte{unix.IPPROTO_ICMP}),
		payload(number(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1), 0, 1), equals([]byte{kind}),
		load, bitwise(mask, make([]byte, 4)), equals(from[:]),
		load, bitwise(keep, to[:]),
		payload(number(unix.NFTA_PAYLOAD_SREG, unix.NFT_REG_1), at, 4,
			number(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET),
			number(unix.NFTA_PAYLOAD_CSUM_OFFSET, quotedChecksum)),
		accept(),
	}
	comment := append([]byte(q.String()), 0)
	// A comment is type 0, its length, and the text (libnftnl's format).
	user := nl.NewRtAttr(unix.NFTA_RULE_USERDATA, append([]byte{0, byte(len(comment))}, comment...))
	b.rule(chain, exprs, user)
}

// rule appends a rule to a chain.
func (b *nftBatch) rule(chain string, exprs []*nl.RtAttr, more ...*nl.RtAttr) {
	attrs := []*nl.RtAttr{text(unix.NFTA_RULE_TABLE, quotedTable), text(unix.NFTA_RULE_CHAIN, chain),
		nest(unix.NFTA_RULE_EXPRESSIONS, exprs...)}
	b.add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, append(attrs, more...)...)
}

// send commits the batch and reads the acknowledgements.
func (b *nftBatch) send() error {
	var whole nftBatch
	whole.message(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	whole.bytes = append(whole.bytes, b.bytes...)
	whole.message(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	// The kernel answers at once or never, so 10 s suffice.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Sendto(fd, whole.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	buffer := make([]byte, 64<<10)
	for left := b.acks; left > 0; {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		answers, err := syscall.ParseNetlinkMessage(buffer[:n])
		if err != nil {
			return err
		}
		for _, a := range answers {
			if left--; a.Header.Type != unix.NLMSG_ERROR || len(a.Data) < 4 {
				continue
			}
			if code := int32(binary.NativeEndian.Uint32(a.Data)); code != 0 {
				return syscall.Errno(-code)
			}
		}
	}
	return nil
}

// These functions make attributes: numbers are big-endian with 32 bits, texts end with a zero byte.

func number(kind, value int) *nl.RtAttr {
	return nl.NewRtAttr(kind, binary.BigEndian.AppendUint32(nil, uint32(value)))
}

func text(kind int, value string) *nl.RtAttr { return nl.NewRtAttr(kind, append([]byte(value), 0)) }

func nest(kind int, attrs ...*nl.RtAttr) *nl.RtAttr {
	out := nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil)
	for _, a := range attrs {
		out.AddChild(a)
	}
	return out
}

func data(kind int, value []byte) *nl.RtAttr {
	return nest(kind, nl.NewRtAttr(unix.NFTA_DATA_VALUE, value))
}

// These functions make expressions, which all use the first register.

func expression(name string, attrs ...*nl.RtAttr) *nl.RtAttr {
	return nest(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nest(unix.NFTA_EXPR_DATA, attrs...))
}

func meta(key int) *nl.RtAttr {
	return expression("meta", number(unix.NFTA_META_DREG, unix.NFT_REG_1), number(unix.NFTA_META_KEY, key))
}

func equals(value []byte) *nl.RtAttr { return compare(unix.NFT_CMP_EQ, value) }

func compare(op int, value []byte) *nl.RtAttr {
	return expression("cmp", number(unix.NFTA_CMP_SREG, unix.NFT_REG_1), number(unix.NFTA_CMP_OP, op),
		data(unix.NFTA_CMP_DATA, value))
}

func accept() *nl.RtAttr {
	verdict := nest(unix.NFTA_DATA_VERDICT, number(unix.NFTA_VERDICT_CODE, nfAccept))
	return expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT),
		nest(unix.NFTA_IMMEDIATE_DATA, verdict))
}

// payload loads or stores bytes of the transport header.
func payload(register *nl.RtAttr, offset, size int, more ...*nl.RtAttr) *nl.RtAttr {
	attrs := append([]*nl.RtAttr{register, number(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_TRANSPORT_HEADER),
		number(unix.NFTA_PAYLOAD_OFFSET, offset), number(unix.NFTA_PAYLOAD_LEN, size)}, more...)
	return expression("payload", attrs...)
}

// bitwise keeps the bits of mask, then flips those of xor.
func bitwise(mask, xor []byte) *nl.RtAttr {
	return expression("bitwise", number(unix.NFTA_BITWISE_SREG, unix.NFT_REG_1),
		number(unix.NFTA_BITWISE_DREG, unix.NFT_REG_1), number(unix.NFTA_BITWISE_LEN, len(mask)),
		data(unix.NFTA_BITWISE_MASK, mask), data(unix.NFTA_BITWISE_XOR, xor))
}
