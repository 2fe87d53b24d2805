// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package patience

import (
	"errors"
	"testing"
)

// TestTheLastLineSaysWhatWasWaitedFor also for errors of several lines, such as the output of ping.
func TestTheLastLineSaysWhatWasWaitedFor(t *testing.T) {
	for _, c := range []struct {
		last any
		want string
	}{
		{errors.New("no answer"), "gave up after 10m0s: waited for a pod; last: no answer"},
		{errors.New("exit status 1\nPING 10.0.0.1\n100% packet loss\n"), "exit status 1\nPING 10.0.0.1\ngave up after 10m0s: waited for a pod; last: 100% packet loss"},
		{3, "gave up after 10m0s: waited for a pod; last: 3"},
		{error(nil), "gave up after 10m0s: waited for a pod; last: <nil>"},
	} {
		if got := GaveUp("a pod", c.last); got != c.want {
			t.Errorf("got\n%s\nwant\n%s", got, c.want)
		}
	}
}
