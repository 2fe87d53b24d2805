// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"go/ast"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
)

// patienceExceptions are functions of tests outside TestTimed… that give up sooner, with the reason.
var patienceExceptions = map[string]string{
	"identity: signer":                                    "a pause between two tries",
	"internal/remote: TestFollowASecret":                  "a pause between two tries",
	"internal/remote: within":                             "a pause between two measurements",
	"internal/remote: TestHealthOfALink":                  "nothing may happen until then",
	"network/daemon: TestOneFailureEndsAll":               "the end that the test is about",
	"network/dataplane: TestExternalAddressesMove":        "one try of many",
	"network/dataplane: outlives":                         "one try of many",
	"network/gateway: TestTheTurnStaysWithoutAnAPIServer": "nothing may happen until then",
	"offloading/kubelet: goes":                            "nothing may happen until then",
	"peering/proxy: TestAttackProxyConnections":           "a pause between two tries",
}

// TestTestsArePatient: a wait of a literal time below patience.Limit is a failure on a slow machine.
func TestTestsArePatient(t *testing.T) {
	refuse(t, (*packageTimes).impatient, patienceExceptions,
		"gives up after a literal time in %s: wait for patience.Limit, or name the test TestTimed…")
}

// waits are calls with a limit, and the number of the argument that is it.
var waits = map[string]int{"context.WithTimeout": 1, "time.After": 0, "time.NewTimer": 0, "wait.PollUntilContextTimeout": 2}

// deadlines match calls with the end of a wait, such as time.Now().Add(limit).
var deadlines = regexp.MustCompile(`^(\w+\.)?(Set\w*Deadline|WithDeadline)$`)

// impatient returns the names of functions that wait for a constant time below patience.Limit.
func (p *packageTimes) impatient() map[string]bool {
	found := map[string]bool{}
	p.each(func(name string, n ast.Node, _ func(ast.Node) bool) {
		if call, ok := n.(*ast.CallExpr); ok {
			if limit := p.literal(limitOf(call)); limit > 0 && limit < patience.Limit {
				found[name] = true
			}
		}
	})
	return found
}

// limitOf returns the argument that says how long a call waits, and nil if none does.
func limitOf(call *ast.CallExpr) ast.Expr {
	name := called(call)
	if argument, ok := waits[name]; ok {
		return call.Args[argument]
	}
	for _, argument := range call.Args {
		if at, ok := argument.(*ast.CallExpr); ok && deadlines.MatchString(name) && called(at) == "Now.Add" {
			return at.Args[0]
		}
	}
	return nil
}

// literal returns a duration that is written out, such as 3*time.Second, or a constant of one, and 0 for others.
func (p *packageTimes) literal(e ast.Expr) time.Duration {
	switch e := e.(type) {
	case *ast.Ident:
		if values := p.constants[e.Name]; len(values) == 1 {
			return p.literal(values[0])
		}
	case *ast.SelectorExpr:
		return map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]
	case *ast.BinaryExpr:
		if n, ok := e.X.(*ast.BasicLit); ok {
			count, _ := strconv.Atoi(n.Value)
			return time.Duration(count) * p.literal(e.Y)
		}
	}
	return 0
}
