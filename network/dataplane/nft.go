// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/liqo-go/liqo/network/plan"
)

// nftTables are our table in the kernel and those of users, through the nft command, by family and
// name.
type nftTables map[string]nftTable

// nftTable tells what was asked for last and how nft printed it afterwards: another version of nft
// may spell the same rules differently.
type nftTable struct{ written, listed string }

// ours is the key of our table.
const ours = "inet " + plan.NFTable

// read adds our table, those of users, and what is in that of quotes. A table nobody touched since it
// was written reads as it was written.
func (t nftTables) read(ctx context.Context, s *plan.State) error {
	names, err := nft(ctx, "", "list", "tables")
	if err != nil {
		return fmt.Errorf("list nft tables: %w", err)
	}
	for line := range strings.Lines(names) {
		key := strings.TrimPrefix(strings.TrimSpace(line), "table ")
		family, name, _ := strings.Cut(key, " ")
		if key != ours && key != quotes && !strings.HasPrefix(name, plan.UserTablePrefix) {
			continue
		}
		text, err := list(ctx, key)
		if err != nil {
			return err
		}
		known := t[key]
		if key == quotes {
			s.Quotes = readQuotes(text, known.listed)
			continue
		}
		if text == known.listed {
			text = known.written
		}
		switch {
		case key == ours:
			s.Table = text
		case text != "":
			s.Tables = append(s.Tables, plan.Table{Family: family, Name: name, Text: text})
		}
	}
	return nil
}

// write replaces a table in one transaction; an empty text removes it.
func (t nftTables) write(ctx context.Context, key, text string) error {
	// "add" before "delete" makes the latter succeed also when there is no table.
	if _, err := nft(ctx, fmt.Sprintf("add table %s\ndelete table %s\n%s", key, key, text), "-f", "-"); err != nil {
		return fmt.Errorf("write nft table %s: %w", key, err)
	}
	delete(t, key)
	if text == "" {
		return nil
	}
	listed, err := list(ctx, key)
	if err == nil {
		t[key] = nftTable{text, listed}
	}
	return err
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
	if err := cmd.Run(); err != nil {
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
