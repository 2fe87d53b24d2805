// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/internal/echo"
	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/view"
)

// TestAttackTerminal: a peer writes escape sequences, line breaks, marks that change the direction
// of writing and long texts into conditions, labels, names, versions and errors that liqoctl
// prints.
//
// Outcome: liqoctl prints them escaped and cut at 1 KiB, in separate lines. With -o they are exact.
func TestAttackTerminal(t *testing.T) {
	const start = "x\x1b]0;owned\x07\x1b[2K\n INFO   forged\r✔ healthy\u202e\u2066\u200b\u2028\u009b2J\xff"
	hostile := start + strings.Repeat("\x1b", 1<<16)
	peer := &view.Peer{
		Info:    view.Who{ClusterID: hostile, Role: "Provider"},
		Network: view.PeerNetwork{Alerts: []string{hostile}, Gateway: view.Gateway{Address: []string{hostile}}},
		Authentication: view.PeerAccess{Alerts: []string{hostile}, APIServerAddr: hostile,
			ResourceSlices: []view.Slice{{Name: hostile, Action: view.Consuming, Alerts: []string{hostile}}}},
		Offloading: view.PeerOffloading{VirtualNodes: []view.VirtualNode{{Name: hostile, Secret: hostile}}},
	}
	own := &view.Installation{
		Local:    view.Local{ClusterID: hostile, Version: hostile, Labels: map[string]string{start: hostile}},
		Health:   view.Health{UnhealthyPods: map[string]view.UnreadyPod{start: {Status: hostile}}},
		Peerings: view.Peerings{Peers: []view.Peering{{ClusterID: hostile}}},
	}
	var out strings.Builder
	e := &env{IOStreams: genericiooptions.IOStreams{Out: &out}}
	plain, terminal := newPrinter(&out, &out), &printer{w: &out, tty: true}
	shown := map[string]func(){
		"info":      func() { fmt.Fprint(&out, strings.Join(installationBoxes(own, true), "")) },
		"info peer": func() { fmt.Fprint(&out, strings.Join(peerBoxes(peer), "")) },
		"title":     func() { fmt.Fprint(&out, box(hostile, nil)) },
		"query":     func() { _ = e.printQuery(own, "local.version", "") },
		"INFO":      func() { plain.info(remote, "Slice %s is %s", "big", hostile) },
		"WARN":      func() { plain.warn(remote, "%s", hostile) },
		"ERRO":      func() { plain.erro(noCluster, errors.Join(errors.New("get pods"), errors.New(hostile))) },
		"terminal":  func() { terminal.erro(noCluster, errors.New(hostile)) },
		"waiting": func() {
			drawn := make(chan struct{})
			terminal.busy(noCluster, sync.OnceValue(func() string { close(drawn); return hostile }))
			<-drawn
			terminal.clearBusy()
		},
		"table": func() {
			_ = table(&out, []result{resultOf(check{kind: podToPod, from: hostile, to: hostile}, echo.Answer{})})
		},
	}
	ours := strings.NewReplacer("\033[31m", "", "\033[0m", "", clearLine, "", noWrap, "", wrap, "")
	for name, print := range shown {
		out.Reset()
		print()
		text := ours.Replace(out.String())
		if !strings.Contains(text, `x\x1b]0;owned`) || strings.ContainsAny(text, "\x1b\x07\r\u202e\u2066\u200b\u2028\u009b") || !utf8.ValidString(text) {
			t.Errorf("%s printed %.300q", name, text)
		}
		for line := range strings.Lines(text) {
			if len(line) > 4*1024 || strings.HasPrefix(line, " INFO   forged") { // in boxes, lines are filled with spaces
				t.Errorf("%s printed a line of %d bytes: %.100q", name, len(line), line)
			}
		}
	}
	want := strings.ToValidUTF8(hostile, "\ufffd") // as JSON has it
	for _, format := range []string{"json", "yaml"} {
		out.Reset()
		if err := e.printQuery(own, "local.version", format); err != nil || out.String() != want+"\n" {
			t.Errorf("-g with -o %s: %v, %.100q", format, err, out.String())
		}
		out.Reset()
		var got view.Installation
		decode := func(text []byte) error { return yaml.Unmarshal(text, &got) }
		if format == "json" {
			decode = func(text []byte) error { return json.Unmarshal(text, &got) }
		}
		err := e.printQuery(own, "", format)
		if err = errors.Join(err, decode([]byte(out.String()))); err != nil || got.Local.Version != want || got.Local.Labels[strings.ToValidUTF8(start, "\ufffd")] != want {
			t.Errorf("-o %s: %v, %.100q", format, err, got.Local.Version)
		}
	}
}

// TestOwnLinesStay: the printer does not change the texts of liqoctl itself.
func TestOwnLinesStay(t *testing.T) {
	var out strings.Builder
	p := newPrinter(&out, &out)
	p.info(local, "Zürich → 東京: \"big\" is Accepted ✔")
	p.erro(noCluster, errors.Join(errors.New("read slice big:\n  not found"), errors.New("check the peer")))
	want := []string{" INFO   (local) Zürich → 東京: \"big\" is Accepted ✔\n", " ERRO   read slice big: not found check the peer\n"}
	if diff := cmp.Diff(want, slices.Collect(strings.Lines(out.String()))); diff != "" {
		t.Error(diff)
	}
}

// ErrTimeout is the cause of a passed deadline, for the stories.
var ErrTimeout = errTimeout

func init() {
	waitNamedAfter = 100 * time.Millisecond
	limits.reach, limits.explain, limits.complete, limits.sign = patience.Limit, patience.Limit, patience.Limit, patience.Limit
}

// TestLongWaitsAreNamed: without a terminal, a long wait is named, and again every
// minute with what it waits for by then. Data ends it.
func TestLongWaitsAreNamed(t *testing.T) {
	defer func(usual time.Duration) { waitNamedAfter = usual }(waitNamedAfter)
	waitNamedAfter = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		var out, printed strings.Builder
		p := newPrinter(&out, &printed)
		p.busy(local, func() string { return "Short" })
		time.Sleep(waitNamedAfter - time.Millisecond) // of the bubble's clock
		text := "Waiting"
		p.busy(remote, func() string { return text })
		time.Sleep(waitNamedAfter)
		synctest.Wait()
		text = "Waiting for pod gw"
		time.Sleep(2 * waitNamedAfter)
		synctest.Wait()
		fmt.Fprint(data{p, &printed}, "data\n")
		time.Sleep(2 * waitNamedAfter)
		const want = " WAIT   (remote) Waiting (30s)\n WAIT   (remote) Waiting for pod gw (1m30s)\n"
		if out.String() != want || printed.String() != "data\n" {
			t.Errorf("printed %q and %q", out.String(), printed.String())
		}
	})
}
