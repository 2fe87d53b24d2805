// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What the kernel holds of ours in the network namespace of a process, and when it changes.

// seenRoute is a change of a route, when it was told.
type seenRoute struct {
	at   time.Time
	text string
}

// routeWatch is told every change of a route. Asking again and again instead would take CPU
// from what is measured.
type routeWatch struct {
	seen chan seenRoute
	stop func()
}

func watchRoutes(ctx context.Context, pid int) (*routeWatch, error) {
	cmd := exec.Command("nsenter", "--net", "--target", strconv.Itoa(pid), "--", "ip", "monitor", "route")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stop, err := background(cmd)
	if err != nil {
		return nil, err
	}
	w := &routeWatch{make(chan seenRoute, 10000), stop}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.Contains(lines.Text(), "table "+liqoTable) {
				w.seen <- seenRoute{time.Now(), lines.Text()}
			}
		}
	}()
	err = eventually(ctx, "the kernel tells about routes", 10*time.Second, func() (bool, error) { return listens(cmd.Process.Pid) })
	if err != nil {
		stop()
	}
	return w, err
}

// listens tells whether a process has joined a multicast group of netlink. The kernel names its
// first socket by its number.
func listens(pid int) (bool, error) {
	sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/netlink", pid))
	return slices.ContainsFunc(strings.Split(string(sockets), "\n"), func(line string) bool {
		f := strings.Fields(line) // sk, Eth, Pid, Groups, ...
		return len(f) > 3 && f[2] == strconv.Itoa(pid) && strings.Trim(f[3], "0") != ""
	}), err
}

// forget drops what was told so far.
func (w *routeWatch) forget() {
	for {
		select {
		case <-w.seen:
		default:
			return
		}
	}
}

// await returns when a route by a gateway came, or went.
func (w *routeWatch) await(ctx context.Context, via string, gone bool) (time.Time, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("no change of a route by %s was seen", via))
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, context.Cause(ctx)
		case r := <-w.seen:
			if strings.Contains(r.text, "via "+via+" ") && strings.HasPrefix(r.text, "Deleted ") == gone {
				return r.at, nil
			}
		}
	}
}

// count is how many of each thing of ours there are.
func count(ctx context.Context, pid int) (map[string]float64, error) {
	all := map[string]float64{}
	var err error
	if all["routes"], err = countRoutes(ctx, pid); err != nil {
		return nil, err
	}
	for what, command := range map[string]string{
		"rules":      "ip rule show table " + liqoTable,
		"neighbours": "ip neighbour show nud permanent dev liqo.ovl",
		"forwards":   "bridge fdb show dev liqo.ovl",
	} {
		printed, err := output(inNetOf(ctx, pid, strings.Fields(command)...))
		if err != nil {
			return nil, err
		}
		all[what] = float64(strings.Count(printed, "\n"))
	}
	printed, err := output(inNetOf(ctx, pid, "nft", "--json", "list", "table", "inet", "liqo"))
	if err != nil {
		return nil, err
	}
	all["nft rules"], all["nft set elements"], err = countRules([]byte(printed))
	return all, err
}

// countRules counts the rules of a table that nft printed as JSON, and the elements of all sets and maps, which are parts
// of rules or have names of their own.
func countRules(printed []byte) (rules, elements float64, err error) {
	var table struct{ Nftables []map[string]any }
	if err := json.Unmarshal(printed, &table); err != nil {
		return 0, 0, fmt.Errorf("read rules: %w", err)
	}
	for _, entry := range table.Nftables {
		for kind, object := range entry {
			switch kind {
			case "rule":
				rules++
				elements += elementsOf(object)
			case "set", "map":
				if named, ok := object.(map[string]any); ok {
					list, _ := named["elem"].([]any) // none if it is empty
					elements += float64(len(list))
				}
			}
		}
	}
	return rules, elements, nil
}

func countRoutes(ctx context.Context, pid int) (float64, error) {
	printed, err := output(inNetOf(ctx, pid, "ip", "route", "show", "table", liqoTable))
	return float64(strings.Count(printed, "\n")), err
}

// elementsOf counts the elements of all sets within a part of a rule.
func elementsOf(part any) (n float64) {
	switch p := part.(type) {
	case []any:
		for _, inner := range p {
			n += elementsOf(inner)
		}
	case map[string]any:
		for key, inner := range p {
			if list, ok := inner.([]any); ok && key == "set" {
				n += float64(len(list))
			} else {
				n += elementsOf(inner)
			}
		}
	}
	return n
}

func countAll(ctx context.Context, kernels []kernel) (map[string]map[string]float64, error) {
	all := map[string]map[string]float64{}
	for _, k := range kernels {
		c, err := count(ctx, k.pid)
		if err != nil {
			return nil, fmt.Errorf("count what %s has: %w", k.title(), err)
		}
		all[k.title()] = c
	}
	return all, nil
}
