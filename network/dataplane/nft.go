// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/liqo-go/liqo/network/plan"
)

// nftTable is our table in the kernel, through the nft command.
type nftTable struct {
	// written is what was asked for last and listed how nft printed it afterwards: another
	// version of nft may spell the same rules differently.
	written, listed string
}

// read returns the text of the table, empty when there is none. A table nobody touched since it
// was written reads as it was written.
func (t *nftTable) read(ctx context.Context) (string, error) {
	text, err := list(ctx)
	if err == nil && text != "" && text == t.listed {
		return t.written, nil
	}
	return text, err
}

// write replaces the table in one transaction; an empty text removes it.
func (t *nftTable) write(ctx context.Context, text string) error {
	// "add" before "delete" makes the latter succeed also when there is no table.
	script := fmt.Sprintf("add table inet %s\ndelete table inet %s\n%s", plan.NFTable, plan.NFTable, text)
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("write nft table inet %s: %w: %s", plan.NFTable, err, bytes.TrimSpace(out))
	}
	listed, err := list(ctx)
	if err != nil {
		return err
	}
	t.written, t.listed = text, listed
	return nil
}

func list(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", "list", "table", "inet", plan.NFTable)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && strings.Contains(stderr.String(), "No such file or directory") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("list nft table inet %s: %w: %s", plan.NFTable, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
