// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package echo_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/liqo-go/liqo/internal/echo"
)

// TestGet: the client says who answered; a server that is gone is an error of that server only, and
// the order is that of the question.
func TestGet(t *testing.T) {
	server := httptest.NewServer(echo.Handler("netshoot-rome-1"))
	defer server.Close()
	gone := httptest.NewServer(echo.Handler("gone"))
	gone.Close()
	cmd := echo.Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs([]string{"get", gone.URL, server.URL})
	if err := cmd.ExecuteContext(t.Context()); err == nil || err.Error() != "some requests failed" {
		t.Errorf("error %v", err)
	}
	var answers []echo.Answer
	for in := json.NewDecoder(&out); in.More(); {
		var a echo.Answer
		if err := in.Decode(&a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != 2 {
		t.Fatalf("%d answers: %+v", len(answers), answers)
	}
	if a := answers[0]; a.URL != gone.URL || !strings.Contains(a.Error, "connection refused") || a.Name != "" {
		t.Errorf("of the server that is gone: %+v", a)
	}
	if a := answers[1]; a.URL != server.URL || a.Name != "netshoot-rome-1" || a.Error != "" || a.Latency <= 0 {
		t.Errorf("of the server: %+v", a)
	}
}
