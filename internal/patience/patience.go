// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patience says how long tests wait for a condition. It is for tests only.
package patience

import (
	"fmt"
	"strings"
	"time"
)

// Limit is the time after which a test gives up. It bounds a test that hangs, not a speed: a slow
// machine under load may need minutes for what takes a second elsewhere.
const Limit = 10 * time.Minute

// GaveUp returns what a test prints when it has waited for the limit. The last answer is an error or
// what was observed instead. If it has several lines they come first, because readers of a log look
// at its last line.
func GaveUp(what string, last any) string {
	text := strings.TrimSpace(fmt.Sprint(last))
	i := strings.LastIndex(text, "\n") + 1
	return text[:i] + fmt.Sprintf("gave up after %s: waited for %s; last: %s", Limit, what, text[i:])
}
