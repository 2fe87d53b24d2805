// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// api asks one API server as the administrator of its cluster.
type api struct {
	base string
	http *http.Client
}

// kubeconfig is what kubectl prints of one; bytes are base64 in JSON.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server string
			CA     []byte `json:"certificate-authority-data"`
		}
	}
	Users []struct {
		User struct {
			Cert []byte `json:"client-certificate-data"`
			Key  []byte `json:"client-key-data"`
		}
	}
}

func newAPI(printed string) (api, error) {
	var k kubeconfig
	if err := json.Unmarshal([]byte(printed), &k); err != nil {
		return api{}, err
	}
	if len(k.Clusters) != 1 || len(k.Users) != 1 {
		return api{}, errors.New("want a kubeconfig of one cluster and one user")
	}
	pair, err := tls.X509KeyPair(k.Users[0].User.Cert, k.Users[0].User.Key)
	if err != nil {
		return api{}, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.Clusters[0].Cluster.CA)
	transport := &http.Transport{
		ForceAttemptHTTP2: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
	}
	return api{k.Clusters[0].Cluster.Server, &http.Client{Transport: transport}}, nil
}

// statusError is an answer other than success.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

func notFound(err error) bool {
	var s statusError
	return errors.As(err, &s) && s.code == http.StatusNotFound
}

// open sends a request; the caller closes the answer.
func (a api) open(ctx context.Context, method, path, contentType string, body any) (*http.Response, error) {
	var content []byte
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = b
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		answer, _ := io.ReadAll(resp.Body) // what there is of it is good enough for a message
		return nil, statusError{resp.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, resp.Status, answer)}
	}
	return resp, nil
}

func (a api) do(ctx context.Context, method, path, contentType string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	resp, err := a.open(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

func (a api) get(ctx context.Context, path string, out any) error {
	return a.do(ctx, http.MethodGet, path, "", nil, out)
}

func (a api) create(ctx context.Context, path string, object any) error {
	return a.do(ctx, http.MethodPost, path, "application/json", object, nil)
}

// ensure creates an object unless it is there.
func (a api) ensure(ctx context.Context, path string, object any) error {
	err := a.create(ctx, path, object)
	var s statusError
	if errors.As(err, &s) && s.code == http.StatusConflict {
		return nil
	}
	return err
}

func (a api) patch(ctx context.Context, path string, change any) error {
	return a.do(ctx, http.MethodPatch, path, "application/merge-patch+json", change, nil)
}

func (a api) remove(ctx context.Context, path string) error {
	err := a.do(ctx, http.MethodDelete, path, "application/json", nil, nil)
	if notFound(err) {
		return nil
	}
	return err
}

// watch calls see with every object at path, those that exist first, until ctx ends. A
// connection that breaks is opened again: the server then tells about all objects anew.
func watch[T any](ctx context.Context, a api, path string, see func(T)) error {
	for ctx.Err() == nil {
		resp, err := a.open(ctx, http.MethodGet, path+"?watch=1", "", nil)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for events := json.NewDecoder(resp.Body); ; {
			var event struct {
				Type   string
				Object T
			}
			if events.Decode(&event) != nil {
				break
			}
			if event.Type == "ADDED" || event.Type == "MODIFIED" {
				see(event.Object)
			}
		}
		resp.Body.Close()
	}
	return nil
}

// eventually asks every 50 ms until the answer is yes.
func eventually(ctx context.Context, what string, within time.Duration, ask func() (bool, error)) error {
	return eventuallyEvery(ctx, 50*time.Millisecond, what, within, ask)
}

func eventuallyEvery(ctx context.Context, pause time.Duration, what string, within time.Duration,
	ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s: not within %s", what, within))
	defer cancel()
	var last error
	for tick := time.NewTicker(pause); ; {
		ok, err := ask()
		if ok && err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
	}
}
