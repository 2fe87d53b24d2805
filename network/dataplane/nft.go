// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/internal/threads"
	"github.com/liqo-go/liqo/network/plan"
)

// nftTables are our table in the kernel, that of quotes and those of users, through the nft command, by
// family and name.
type nftTables struct {
	known map[string]nftTable
	// texts is how nft printed all of them when the kernel's rules were of a generation; nil = not read yet.
	texts      map[string]string
	generation uint32
	// written are the tables of which it is not known yet how nft prints them; writtenAt is the generation of
	// the last of them. Nobody else changed any rule in between.
	written   map[string]string
	writtenAt uint32
	// missed are those of them that somebody else's change came between: the next time they are read at once.
	missed map[string]bool
}

// nftTable tells what was asked for last and how nft printed it afterwards: another version of nft
// may spell the same rules differently.
type nftTable struct{ written, listed string }

// ours is the key of our table.
const ours = "inet " + plan.NFTable

// read adds our table, those of users, and what is in that of quotes. A table nobody touched since it
// was written reads as it was written.
func (t *nftTables) read(ctx context.Context, s *plan.State) error {
	texts, err := t.print(ctx)
	if err != nil {
		return err
	}
	for key, text := range texts {
		known := t.known[key]
		if key == quotes {
			s.Quotes = readQuotes(text, known.listed)
			continue
		}
		if text == known.listed {
			text = known.written
		}
		family, name, _ := strings.Cut(key, " ")
		switch {
		case key == ours:
			s.Table = text
		case text != "":
			s.Tables = append(s.Tables, plan.Table{Family: family, Name: name, Text: text})
		}
	}
	return nil
}

// print prints all tables, if anybody changed any rule since they were printed: nft takes milliseconds
// of a processor, asking for the generation microseconds.
func (t *nftTables) print(ctx context.Context) (map[string]string, error) {
	before, err := generation()
	if err == nil && t.texts != nil && before == t.generation {
		return t.texts, nil
	}
	t.texts = nil
	names, err := nft(ctx, "", "list", "tables")
	if err != nil {
		return nil, fmt.Errorf("list nft tables: %w", lacking(err))
	}
	texts := map[string]string{}
	for line := range strings.Lines(names) {
		key := strings.TrimPrefix(strings.TrimSpace(line), "table ")
		_, name, _ := strings.Cut(key, " ")
		if key != ours && key != quotes && !strings.HasPrefix(name, plan.UserTablePrefix) {
			continue
		}
		if texts[key], err = list(ctx, key); err != nil {
			return nil, err
		}
	}
	if after, err := generation(); err == nil && after == before {
		t.texts, t.generation = texts, after
		t.note(texts)
	}
	return texts, nil
}

// note keeps how nft prints what was written, unless somebody else may have changed it since.
func (t *nftTables) note(texts map[string]string) {
	if t.written == nil {
		return
	}
	t.missed = map[string]bool{}
	for key, written := range t.written {
		switch listed := texts[key]; {
		case t.generation != t.writtenAt:
			t.missed[key] = true
		case listed != "":
			t.known[key] = nftTable{written, listed}
		}
	}
	t.written = nil
}

// generation is a number the kernel changes whenever anybody changes rules in this namespace.
func generation() (uint32, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: unix.NFNETLINK_V0})
	replies, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, fmt.Errorf("read generation of nft rules: %w", err)
	}
	for _, reply := range replies {
		attrs, err := nl.ParseRouteAttr(reply[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, fmt.Errorf("read generation of nft rules: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("read generation of nft rules: the kernel gives none")
}

// write replaces a table; an empty text removes it.
func (t *nftTables) write(ctx context.Context, key, text string) error {
	err := t.transact(ctx, key, text, func() error {
		// "add" before "delete" makes the latter succeed also when there is no table.
		_, err := nft(ctx, fmt.Sprintf("add table %s\ndelete table %s\n%s", key, key, text), "-f", "-")
		return err
	})
	if err != nil {
		return fmt.Errorf("write nft table %s: %w", key, err)
	}
	return nil
}

// transact writes a table in one transaction, which makes one generation. How nft prints the table is learnt when
// it is read next: that takes some milliseconds, and what else is to be changed does not wait for it. Where others
// change rules all the time it would never be.
func (t *nftTables) transact(ctx context.Context, key, text string, send func() error) error {
	before, err := generation()
	if err := send(); err != nil {
		return err
	}
	delete(t.known, key)
	if err != nil || t.missed[key] {
		if listed, err := list(ctx, key); err == nil { // the next look tells of an error
			t.known[key] = nftTable{text, listed}
		}
		return nil
	}
	if t.written == nil || t.writtenAt != before {
		t.written = map[string]string{}
	}
	t.written[key], t.writtenAt = text, before+1
	return nil
}

// list prints a table without what its rules counted; empty when there is none.
func list(ctx context.Context, key string) (string, error) {
	text, err := nft(ctx, "", append([]string{"-s", "list", "table"}, strings.Fields(key)...)...)
	if err != nil && strings.Contains(err.Error(), "No such file or directory") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("list nft table %s: %w", key, err)
	}
	return text, nil
}

// nft runs the command; its error says what nft said.
func nft(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	var err error
	threads.Blocking(func() { err = cmd.Run() }) // packets of the userspace WireGuard go on meanwhile
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// writeUserTable replaces a table of a user, or removes it.
func (d *Dataplane) writeUserTable(ctx context.Context) func(old, new *plan.Table) error {
	return func(old, new *plan.Table) error {
		if old != nil {
			delete(d.refusedTables, old.String())
		}
		if new == nil {
			return d.tables.write(ctx, old.Family+" "+old.Name, "")
		}
		d.refusedTables.note(*new, d.tables.write(ctx, new.Family+" "+new.Name, new.Text))
		return nil
	}
}
