// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// exec runs a command in the only container of a pod and returns its standard output. If the
// command fails, the error holds its standard error.
func (c *cluster) exec(ctx context.Context, namespace, pod string, command ...string) ([]byte, error) {
	base, _, err := rest.DefaultServerUrlFor(c.config)
	if err != nil {
		return nil, fmt.Errorf("read the address of the %scluster: %w", c.side.clusterPrefix(), err)
	}
	at := base.JoinPath("api/v1/namespaces", namespace, "pods", pod, "exec")
	at.RawQuery = url.Values{"command": command, "stdout": {"true"}, "stderr": {"true"}}.Encode()
	executor, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, at.String())
	if err != nil {
		return nil, fmt.Errorf("reach pod %s/%s of the %scluster: %w", namespace, pod, c.side.clusterPrefix(), err)
	}
	var out, failed bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &failed}); err != nil {
		err = fmt.Errorf("run %s in pod %s/%s of the %scluster: %w: %s", command[0], namespace, pod,
			c.side.clusterPrefix(), err, oneLine(failed.String()))
		return out.Bytes(), err
	}
	return out.Bytes(), nil
}
