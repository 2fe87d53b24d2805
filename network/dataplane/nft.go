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

// nftTables accesses our nft tables and those of users through the nft command. Keys are family and
// name.
type nftTables struct {
	known map[string]nftTable
	// texts holds the tables as nft printed them at generation; nil if they must be read.
	texts      map[string]string
	generation uint32
	// written holds the texts of written tables that nft has not printed yet. writtenAt is the
	// generation after the last write; no other process changed rules between these writes.
	written   map[string]string
	writtenAt uint32
	// raced holds tables that another process may have changed before they were printed. They are
	// printed right after their next write.
	raced map[string]bool
	// sent is our table as it was written last.
	sent apart
}

// nftTable holds the text written last and how nft printed it afterwards: versions of nft print the
// same rules differently.
type nftTable struct{ written, listed string }

// ours is the key of our table.
const ours = "inet " + plan.NFTable

// read adds the tables and quotes to s. A table that is unchanged since it was written has the text
// that was written.
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
		} else if key == ours {
			text = putTogether(text)
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

// print returns all tables as nft prints them. It runs nft only if the generation changed: nft takes
// milliseconds of CPU, reading the generation microseconds.
func (t *nftTables) print(ctx context.Context) (map[string]string, error) {
	before, err := generation()
	if err == nil && t.texts != nil && before == t.generation {
		return t.texts, nil
	}
	t.texts = nil
	names, err := nft(ctx, "", "list", "tables")
	if err != nil {
		return nil, fmt.Errorf("list nft tables: %w", withModuleHint(err))
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
		t.recordListings(texts)
	}
	return texts, nil
}

// recordListings records how nft prints the written tables, unless another process may have changed
// them since.
func (t *nftTables) recordListings(texts map[string]string) {
	if t.written == nil {
		return
	}
	t.raced = map[string]bool{}
	for key, written := range t.written {
		switch listed := texts[key]; {
		case t.generation != t.writtenAt:
			t.raced[key] = true
		case listed != "":
			t.known[key] = nftTable{written, listed}
		}
	}
	t.written = nil
}

// generation returns the number that the kernel changes with every change of nft rules in this
// network namespace.
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
	return 0, errors.New("read generation of nft rules: the kernel returned none")
}

// write replaces a table; an empty text deletes it. It changes single elements instead if only
// elements of large sets differ and nobody has changed our table since the last write.
func (t *nftTables) write(ctx context.Context, key, text string) error {
	table, before := apart{text: text}, apart{}
	if key == ours {
		table, before, t.sent = takeApart(text), t.sent, apart{}
	}
	err := t.transact(ctx, key, text, func(asWritten bool) error {
		if asWritten && changeElements(before, table) == nil {
			return nil
		}
		// "delete" fails without a table, so "add" precedes it.
		_, err := nft(ctx, fmt.Sprintf("add table %s\ndelete table %s\n%s", key, key, table), "-f", "-")
		return err
	})
	if err != nil {
		return fmt.Errorf("write nft table %s: %w", key, err)
	}
	if key == ours {
		t.sent = table
	}
	return nil
}

// transact writes a table in one transaction, which adds one to the generation. Printing the table
// takes milliseconds, so it is left to the next read and does not delay other changes. A table in
// raced is printed at once: where others change rules all the time, a later read would race again.
// send learns whether nobody can have changed the table since it was written.
func (t *nftTables) transact(ctx context.Context, key, text string, send func(asWritten bool) error) error {
	before, err := generation()
	known := t.known[key]
	asWritten := err == nil && (t.written[key] != "" && t.writtenAt == before ||
		known.listed != "" && t.texts[key] == known.listed && t.generation == before)
	if err := send(asWritten); err != nil {
		return err
	}
	delete(t.known, key)
	if err != nil || t.raced[key] {
		if listed, err := list(ctx, key); err == nil { // the next read returns the error
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

// list prints a table without counters; empty if there is no such table.
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

// nft runs the command and returns its output; an error includes what it wrote to stderr.
func nft(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	var err error
	threads.Blocking(func() { err = cmd.Run() }) // userspace WireGuard keeps running meanwhile
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// writeUserTable returns a function that replaces or deletes a table of a user.
func (d *Dataplane) writeUserTable(ctx context.Context) func(old, new *plan.Table) error {
	return func(old, new *plan.Table) error {
		if old != nil {
			delete(d.refusedTables, old.String())
		}
		if new == nil {
			return d.tables.write(ctx, old.Family+" "+old.Name, "")
		}
		d.refusedTables.record(*new, d.tables.write(ctx, new.Family+" "+new.Name, new.Text))
		return nil
	}
}
