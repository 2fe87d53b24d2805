// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var (
	subjectForm  = regexp.MustCompile(`^[a-z][A-Za-z0-9/.*_-]*(, [a-z][A-Za-z0-9/.*_-]*)*: [^A-Z\s].*$`)
	longestTitle = 72
)

func wellFormed(subject string) bool {
	return len(subject) <= longestTitle && subjectForm.MatchString(subject)
}

// TestCommitSubjects checks the subjects of commits since this test exists, apart from merges, and counts older ones
// that would not pass. 'make check' prints the count.
func TestCommitSubjects(t *testing.T) {
	git := func(args ...string) []string {
		out, err := exec.Command("git", args...).Output()
		if err != nil || len(out) == 0 {
			return nil
		}
		return strings.Split(strings.TrimSpace(string(out)), "\n")
	}
	added := git("log", "--diff-filter=A", "--format=%H", "--", "commits_test.go")
	shallow := git("rev-parse", "--is-shallow-repository")
	if len(added) == 0 || len(shallow) != 1 || shallow[0] != "false" {
		t.Log("no history here, so no subjects of commits are checked")
		return
	}
	first := added[len(added)-1]
	for _, subject := range git("log", "--no-merges", "--format=%s", first+"..HEAD") {
		if !wellFormed(subject) {
			t.Errorf("commit %q: write 'area: summary' in lower case, with at most %d characters", subject, longestTitle)
		}
	}
	older := 0
	for _, subject := range git("log", "--no-merges", "--format=%s", first) {
		if !wellFormed(subject) {
			older++
		}
	}
	t.Logf("%d older commits have subjects of another form", older)
}

// TestSubjectForm tries the form itself.
func TestSubjectForm(t *testing.T) {
	for subject, want := range map[string]bool{
		"network: retry follow after a write conflict": true, "api, cli: remove names": true,
		"Network: retry": false, "network: Retry": false, "retry": false, "a: " + strings.Repeat("x", longestTitle): false,
	} {
		if wellFormed(subject) != want {
			t.Errorf("%q: want %v", subject, want)
		}
	}
}
