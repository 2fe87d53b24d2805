// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// client asks an API server. It knows just enough to start a cluster.
type client struct {
	base string
	http *http.Client
}

func newClient(server, ca, cert, key string) (client, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return client{}, err
	}
	caPEM, err := os.ReadFile(ca)
	if err != nil {
		return client{}, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(caPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}
	return client{base: "https://" + server, http: &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// adminClient is the cluster's administrator at server.
func adminClient(pki, server string) (client, error) {
	in := func(name string) string { return filepath.Join(pki, name) }
	return newClient(server, in("ca.crt"), in("admin.crt"), in("admin.key"))
}

func (c client) send(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	return c.http.Do(req)
}

func (c client) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	resp, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return answer, err
}

// get reads an object into out; a nil out only asks whether it is there.
func (c client) get(ctx context.Context, path string, out any) error {
	b, err := c.do(ctx, http.MethodGet, path, "", nil)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// firstEvent returns with the first event of a watch, or with an error when there is none.
func (c client) firstEvent(ctx context.Context, path string) error {
	resp, err := c.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("watch %s: %s", path, resp.Status)
	}
	_, err = resp.Body.Read(make([]byte, 1))
	return err
}

// apply writes an object, YAML or JSON, by server-side apply.
func (c client) apply(ctx context.Context, path, object string) error {
	_, err := c.do(ctx, http.MethodPatch, path+"?fieldManager=testbed&force=true", "application/apply-patch+yaml", []byte(object))
	return err
}

// waitReady returns when the API server is ready, or with the last error when ctx ends.
func (c client) waitReady(ctx context.Context) error { return c.waitFor(ctx, "/readyz") }

// waitFor returns when a path answers.
func (c client) waitFor(ctx context.Context, path string) error {
	return poll(ctx, func() error { return c.get(ctx, path, nil) })
}

// poll calls f every tenth of a second until it succeeds. When ctx ends the last error
// of f tells why.
func poll(ctx context.Context, f func() error) error {
	var last error
	for {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// version returns the version of the API server, as v1.37.2.
func (c client) version(ctx context.Context) (string, error) {
	var info struct{ GitVersion string }
	err := c.get(ctx, "/version", &info)
	return info.GitVersion, err
}

// nodeReady returns the condition Ready of a Node and the version of its kubelet, as v1.37.2.
func (c client) nodeReady(ctx context.Context, name string) (ready bool, kubelet string, err error) {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
			NodeInfo   struct{ KubeletVersion string }
		}
	}
	if err := c.get(ctx, "/api/v1/nodes/"+name, &node); err != nil {
		return false, "", err
	}
	for _, condition := range node.Status.Conditions {
		ready = ready || condition.Type == "Ready" && condition.Status == "True"
	}
	return ready, node.Status.NodeInfo.KubeletVersion, nil
}

// available is the number of available replicas of a Deployment.
func (c client) available(ctx context.Context, namespace, name string) (int, error) {
	var deployment struct {
		Status struct{ AvailableReplicas int }
	}
	err := c.get(ctx, "/apis/apps/v1/namespaces/"+namespace+"/deployments/"+name, &deployment)
	return deployment.Status.AvailableReplicas, err
}
