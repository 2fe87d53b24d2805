// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/seed"
)

// story is one scenario of users, typed as they type it.
type story struct {
	name string
	tell func(t *testing.T)
}

// state is what both clusters have between two stories. Each state contains those before it.
type state int

const (
	// unknown is what a story leaves that failed or was killed. Only new clusters help.
	unknown state = iota
	// nothing is a pair of clusters without Liqo.
	nothing
	// installed is Liqo as install installs it, with the probes.
	installed
	// peered is the peering that peerFirst makes.
	peered
	// offloaded is the namespace of offloadNamespace, with its pods.
	offloaded
)

var stateNames = []string{unknown: "unknown", nothing: "nothing", installed: "installed", peered: "peered", offloaded: "offloaded"}

func (s state) String() string { return stateNames[s] }

// makers lead from the state before each state to it.
var makers = map[state]func(t *testing.T){installed: install, peered: peerFirst, offloaded: offloadNamespace}

// stage lists stories that start from the same state and leave the same state.
type stage struct {
	from, leaves state
	stories      []story
}

// teller runs the stories of one test.
type teller struct {
	t *testing.T
	// failed holds what runs once more.
	failed []telling
	// unmade is the lowest state that new clusters did not reach, or 0. A story that starts there or
	// above fails at once, because each attempt would take minutes.
	unmade state
}

// telling is a story and the stage it belongs to.
type telling struct {
	of   stage
	told story
}

// tellEach runs all stories. A story that fails stops no other: each makes the state it starts
// from, unless the former story left it. In the end each failed story runs once more, alone on new
// clusters, which tells whether it failed by chance. The test fails either way.
func tellEach(t *testing.T, stages []stage) {
	t.Helper()
	r := &teller{t: t}
	for _, stage := range stages {
		if stage.from == unknown {
			t.Fatalf("a stage does not name the state from which its stories start: %q", stage.stories[0].name)
		}
	}
	for _, stage := range stages {
		for _, story := range stage.stories {
			r.tell(telling{stage, story})
		}
	}
	if len(r.failed) == 0 {
		return
	}
	t.Log("failed stories run once more as soon as no other process runs stories")
	err := beside.Run(func() {
		for _, a := range r.failed {
			r.tellAgain(a)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// tell runs a story. It keeps one that fails, unless new clusters are no help.
func (r *teller) tell(a telling) {
	r.t.Helper()
	began := time.Now()
	switch ran, passed := r.run(a.of, a.told.name, a.told); {
	case passed && ran:
		r.t.Logf("%s: %s", a.told.name, time.Since(began).Round(100*time.Millisecond))
	case ran && (r.unmade == unknown || a.of.from < r.unmade):
		r.failed = append(r.failed, a)
	}
}

// tellAgain runs a failed story on new clusters.
func (r *teller) tellAgain(a telling) {
	r.t.Helper()
	remember(r.t, unknown)
	told := a.told
	// The slash makes it a subtest of the story for -run, so a pattern that selects the story selects it too.
	switch ran, passed := r.run(a.of, told.name+"/alone", told); {
	case !ran:
		r.t.Logf("%s: failed; -run selects a part of it, so it was not run alone", told.name)
	case passed:
		r.t.Logf("%s: passed alone: by chance", told.name)
	default:
		r.t.Logf("%s: fails again", told.name)
	}
}

// run runs a story as a subtest. It reports whether -run selected it, and whether it passed.
func (r *teller) run(of stage, name string, told story) (ran, passed bool) {
	r.t.Helper()
	passed = r.t.Run(name, func(t *testing.T) {
		ran = true
		saysWhyLast(t)
		seed.Of(t)
		defer dumpFailed(t)
		r.begin(t, of.from)
		told.tell(t)
		if !t.Failed() {
			remember(t, of.leaves)
		}
	})
	return ran, passed
}

// begin makes the state that a story starts from. From then on the state is unknown until the story has passed.
func (r *teller) begin(t *testing.T, from state) {
	t.Helper()
	if r.unmade != unknown && from >= r.unmade {
		t.Fatalf("starts from %s, but new clusters did not get %s", from, r.unmade)
	}
	has := remembered(t)
	remember(t, unknown)
	next, fresh := nothing, has == unknown || has > from
	defer func() {
		if t.Failed() && fresh {
			r.unmade = next
		}
	}()
	if fresh {
		if err := renew(); err != nil {
			t.Fatalf("make new clusters: %v", err)
		}
		has = nothing
		remember(t, unknown) // renew remembers nothing
	}
	for next = has + 1; next <= from; next++ {
		makers[next](t)
		if t.Failed() {
			t.Fatalf("starts from %s: cannot make %s", from, next)
		}
	}
}

// beginNew starts a test that is one story of several steps, on clusters without Liqo.
func beginNew(t *testing.T) {
	t.Helper()
	(&teller{t: t}).begin(t, nothing)
}

// tellAll runs the steps of one story until one fails, because each starts where the former one ended.
func tellAll(t *testing.T, steps []story) {
	t.Helper()
	for _, step := range steps {
		began := time.Now()
		if !t.Run(step.name, func(t *testing.T) {
			saysWhyLast(t)
			defer dumpFailed(t)
			step.tell(t)
		}) {
			return
		}
		t.Logf("%s: %s", step.name, time.Since(began).Round(100*time.Millisecond))
	}
}

// stateFile keeps the state beside the clusters: another process may go on with clusters that -keep left.
// It goes with them.
func stateFile() string { return filepath.Join(dir, "state") }

// remembered returns the state that the last story left.
func remembered(t *testing.T) state {
	t.Helper()
	s, err := readState()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readState returns unknown if there is no file.
func readState() (state, error) {
	text, err := os.ReadFile(stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return unknown, nil
	}
	if err != nil {
		return unknown, err
	}
	i := slices.Index(stateNames, strings.TrimSpace(string(text)))
	if i < 0 {
		return unknown, fmt.Errorf("%s has no known state: %q", stateFile(), text)
	}
	return state(i), nil
}

func writeState(s state) error {
	return os.WriteFile(stateFile(), []byte(s.String()+"\n"), 0o644)
}

func remember(t *testing.T, s state) {
	t.Helper()
	if err := writeState(s); err != nil {
		t.Fatal(err)
	}
}
