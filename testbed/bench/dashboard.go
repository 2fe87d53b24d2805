// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/liqo-go/liqo/testbed/browser"
)

// The dashboard in a browser, of a cluster with many peers and offloaded pods.
const (
	dashboardPeers = 100
	dashboardPods  = 1000
	coldStarts     = 5
	viewsPerStart  = 3 // and as many changes, with each view

	// Wanted medians, in milliseconds.
	coldTarget, viewTarget, shownTarget = 5000, 1000, 200
)

var dashboardAddress = regexp.MustCompile(`(http://127\.0\.0\.1:\d+/)\?token=[\w-]+`)

// dashboards are those of one cluster, in one browser.
type dashboards struct {
	browser *browser.Browser
	api     api
	// namespace is offloaded and holds the pods.
	namespace   string
	peers, pods int
	// start starts 'liqoctl dashboard' and returns the address it prints.
	start func(context.Context) (address string, stop func() error, err error)
}

// shown holds what was measured, in milliseconds.
type shown struct {
	cold                         []float64 // from the start of liqoctl until the map is complete
	maps, workloads              []float64 // from opening a page until it is complete
	mapChanges, workloadsChanges []float64 // from the request that changes the cluster until the page shows it
}

// figures returns the medians beside what is wanted.
func (s shown) figures() (all []figure) {
	for _, f := range []struct {
		name   string
		took   []float64
		target float64
	}{
		{"map after a start of liqoctl", s.cold, coldTarget},
		{"map", s.maps, viewTarget},
		{"workloads", s.workloads, viewTarget},
		{"a change on the map", s.mapChanges, shownTarget},
		{"a change of the workloads", s.workloadsChanges, shownTarget},
	} {
		name := fmt.Sprintf("%s, %d peers and %d pods, p50", f.name, dashboardPeers, dashboardPods)
		all = append(all, figure{Group: "dashboard", Name: name, Value: median(f.took), Unit: "ms",
			Note: fmt.Sprintf("%.0f to %.0f, %d times", slices.Min(f.took), slices.Max(f.took), len(f.took))}.below(f.target))
	}
	return all
}

// measureDashboard makes peers and pods, and looks at them.
func measureDashboard(ctx context.Context, b *bed) (err error) {
	if err := errors.Join(b.ensureNamespaces(ctx), b.removePeers(ctx), b.ensureTemplate(ctx)); err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, b.removePeers(ctx), b.clear(ctx, b.offloaded(), pods))
	}()
	if err := b.addPeers(ctx, 0, dashboardPeers); err != nil {
		return err
	}
	if _, err := b.offloaded().run(ctx, pods, podNames("seen", dashboardPods)); err != nil {
		return err
	}
	chromium, err := browser.Start(ctx)
	if err != nil {
		return err
	}
	defer chromium.Close()
	s, err := dashboards{browser: chromium, api: b.rome.api, namespace: b.offloaded().namespace,
		peers: dashboardPeers + 1, pods: dashboardPods, start: b.dashboard}.measure(ctx, coldStarts)
	if err != nil {
		return err
	}
	for _, f := range s.figures() {
		b.report.add(f)
	}
	return nil
}

// dashboard runs the dashboard of rome.
func (b *bed) dashboard(ctx context.Context) (string, func() error, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.measured, "liqoctl"), "dashboard", "--kubeconfig", b.rome.kubeconfig)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop := func() error { return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()) }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return line, stop, nil
}

// measure starts the dashboard several times, and opens and changes views of each.
func (d dashboards) measure(ctx context.Context, starts int) (s shown, err error) {
	for range starts {
		began := time.Now()
		line, stop, err := d.start(ctx)
		if err != nil {
			return s, fmt.Errorf("start the dashboard: %w", err)
		}
		address := dashboardAddress.FindStringSubmatch(line)
		if address == nil {
			return s, errors.Join(fmt.Errorf("the dashboard printed %q", line), stop())
		}
		err = d.look(ctx, began, address, &s)
		if err = errors.Join(err, stop()); err != nil {
			return s, err
		}
	}
	return s, nil
}

// page is one that is opened and changed.
type page struct {
	path            string
	whole, counts   string // selector of what is there once all is, and of what counts the pods that are not ready
	text            string // of what is there once all is
	opened, changed *[]float64
}

// look opens pages of a dashboard that was started at a time, and changes the cluster below them: a pod that no node
// takes comes and goes.
func (d dashboards) look(ctx context.Context, began time.Time, address []string, s *shown) error {
	pages := []page{
		{"", "main:not(:has(#hidden)) #summary", "[aria-labelledby=workloads] p", fmt.Sprintf("%d peers", d.peers),
			&s.maps, &s.mapChanges},
		{"workloads", fmt.Sprintf("#namespace-%s tbody tr:nth-of-type(%d)", d.namespace, d.pods), "#summary", "",
			&s.workloads, &s.workloadsChanges},
	}
	first := func() error { return d.browser.Open(address[0]) }
	if err := d.timed(&s.cold, began, first, pages[0].whole, pages[0].text); err != nil {
		return err
	}
	const pod = "waits"
	object := newPod(pod, "testbed.local/pause:1")
	object.Spec.NodeSelector = map[string]string{"type": "absent"}
	path := podsPath(d.namespace)
	for range viewsPerStart {
		for _, p := range pages {
			for _, step := range []struct {
				took           *[]float64
				do             func() error
				selector, text string
			}{
				{p.opened, func() error { return d.browser.Open(address[1] + p.path) }, p.whole, p.text},
				{new([]float64), func() error { return nil }, p.counts, ", 0 pods not ready"},
				{p.changed, func() error { return d.api.create(ctx, path, object) }, p.counts, ", 1 pod not ready"},
				{p.changed, func() error { return d.api.remove(ctx, path+"/"+pod) }, p.counts, ", 0 pods not ready"},
			} {
				if err := d.timed(step.took, time.Now(), step.do, step.selector, step.text); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// timed does something and waits until an element that a selector matches shows a text and is painted. It notes the
// milliseconds since began.
func (d dashboards) timed(took *[]float64, began time.Time, do func() error, selector, text string) error {
	if err := do(); err != nil {
		return err
	}
	if err := d.browser.Await(patience, selector, text); err != nil {
		return err
	}
	var painted bool
	err := d.browser.Eval("new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true))))", &painted)
	*took = append(*took, float64(time.Since(began).Microseconds())/1000)
	return err
}
