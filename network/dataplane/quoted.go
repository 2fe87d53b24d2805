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
// an address, but not correct a checksum for it, so these rules go to the kernel as messages of
// netlink. Each has its Quote as a comment, by which it is read back.
const (
	quotedTable = "liqo-quoted"
	quotes      = "ip " + quotedTable
)

// Where the addresses of a quoted IPv4 header are, in bytes from the begin of an ICMP error: its own
// header has 8 (RFC 792), source and destination are at 12 and 16 of the quoted one (RFC 791).
// Correcting the checksum of the quoted header, at its byte 10, keeps the sum of all its bytes, so
// the checksum of the error stays right also.
const (
	quotedSource, quotedDestination = 8 + 12, 8 + 16
	quotedChecksum                  = 8 + 10
)

// readQuotes reads the rules back from how nft prints them; listed is how it did after they were
// written, "" = by an earlier process. What somebody changed reads as a rule that is never wanted.
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
		// After raw, before connections are looked up (−200); and after everything else.
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
	if err := d.tables.transact(ctx, quotes, "", b.send); err != nil {
		return fmt.Errorf("write nft table ip %s: %w", quotedTable, err)
	}
	return nil
}

// nfAccept ends a chain (NF_ACCEPT of linux/netfilter.h).
const nfAccept = 1

// nftBatch are messages of one transaction.
type nftBatch struct {
	bytes []byte
	acks  int
}

// message adds one of netlink; resource is the subsystem where the batch begins and ends.
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

// add adds a message that is answered.
func (b *nftBatch) add(kind, flags int, attrs ...*nl.RtAttr) {
	b.acks++
	b.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_ACK|flags, unix.NFPROTO_IPV4, 0, attrs...)
}

func (b *nftBatch) chain(name string, hook, priority int) {
	at := nest(unix.NFTA_CHAIN_HOOK, number(unix.NFTA_HOOK_HOOKNUM, hook), number(unix.NFTA_HOOK_PRIORITY, priority))
	b.add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE,
		text(unix.NFTA_CHAIN_TABLE, quotedTable), text(unix.NFTA_CHAIN_NAME, name), at, text(unix.NFTA_CHAIN_TYPE, "filter"))
}

// passOthers lets all but ICMP, nearly everything, leave the chain by its first rule.
func (b *nftBatch) passOthers(chain string) {
	b.rule(chain, []*nl.RtAttr{meta(unix.NFT_META_L4PROTO), compare(unix.NFT_CMP_NEQ, []byte{unix.IPPROTO_ICMP}), accept()})
}

// quote adds the rule for one kind of ICMP error. It ends the chain, so that what it wrote is not translated
// again where it is in another prefix.
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
			number(unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFT_PAYLOAD_CSUM_INET), number(unix.NFTA_PAYLOAD_CSUM_OFFSET, quotedChecksum)),
		accept(),
	}
	comment := append([]byte(q.String()), 0)
	// A comment is type 0, its length, and the text (libnftnl's format).
	user := nl.NewRtAttr(unix.NFTA_RULE_USERDATA, append([]byte{0, byte(len(comment))}, comment...))
	b.rule(chain, exprs, user)
}

// rule appends a rule to a chain.
func (b *nftBatch) rule(chain string, exprs []*nl.RtAttr, more ...*nl.RtAttr) {
	b.add(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, append([]*nl.RtAttr{
		text(unix.NFTA_RULE_TABLE, quotedTable), text(unix.NFTA_RULE_CHAIN, chain), nest(unix.NFTA_RULE_EXPRESSIONS, exprs...)}, more...)...)
}

// send commits the batch and reads what is answered.
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
	// 10 s: the kernel answers at once, or not at all.
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

// Attributes: numbers are of 32 bits, the larger byte first; texts end with a zero.

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

// Expressions, which all work on the first register.

func expression(name string, attrs ...*nl.RtAttr) *nl.RtAttr {
	return nest(unix.NFTA_LIST_ELEM, text(unix.NFTA_EXPR_NAME, name), nest(unix.NFTA_EXPR_DATA, attrs...))
}

func meta(key int) *nl.RtAttr {
	return expression("meta", number(unix.NFTA_META_DREG, unix.NFT_REG_1), number(unix.NFTA_META_KEY, key))
}

func equals(value []byte) *nl.RtAttr { return compare(unix.NFT_CMP_EQ, value) }

func compare(op int, value []byte) *nl.RtAttr {
	return expression("cmp", number(unix.NFTA_CMP_SREG, unix.NFT_REG_1), number(unix.NFTA_CMP_OP, op), data(unix.NFTA_CMP_DATA, value))
}

func accept() *nl.RtAttr {
	verdict := nest(unix.NFTA_DATA_VERDICT, number(unix.NFTA_VERDICT_CODE, nfAccept))
	return expression("immediate", number(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT), nest(unix.NFTA_IMMEDIATE_DATA, verdict))
}

// payload loads or stores bytes of the transport's header.
func payload(register *nl.RtAttr, offset, size int, more ...*nl.RtAttr) *nl.RtAttr {
	attrs := append([]*nl.RtAttr{register, number(unix.NFTA_PAYLOAD_BASE, unix.NFT_PAYLOAD_TRANSPORT_HEADER),
		number(unix.NFTA_PAYLOAD_OFFSET, offset), number(unix.NFTA_PAYLOAD_LEN, size)}, more...)
	return expression("payload", attrs...)
}

// bitwise keeps the bits of mask and turns those of xor.
func bitwise(mask, xor []byte) *nl.RtAttr {
	return expression("bitwise", number(unix.NFTA_BITWISE_SREG, unix.NFT_REG_1), number(unix.NFTA_BITWISE_DREG, unix.NFT_REG_1),
		number(unix.NFTA_BITWISE_LEN, len(mask)), data(unix.NFTA_BITWISE_MASK, mask), data(unix.NFTA_BITWISE_XOR, xor))
}
