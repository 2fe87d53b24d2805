// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

var nodes = regexp.MustCompile(`^/api/v1/nodes(/[^/]+)?$`)

// withoutTaint serves the cluster's API with one difference: nodes lack the taint, so that specs which choose a node
// by themselves choose virtual ones, too. The framework skips nodes with any taint. Pods are scheduled with it.
func withoutTaint(kubeconfig, key string) (address string, err error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return "", err
	}
	config.NextProtos = []string{"http/1.1"} // exec and attach switch protocols
	server, err := url.Parse(config.Host)
	if err != nil {
		return "", err
	}
	admin, err := rest.TransportFor(config)
	if err != nil {
		return "", err
	}
	others, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return "", err
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval:  -1, // watches
		Transport:      byUser{admin, others},
		ModifyResponse: func(r *http.Response) error { return removeTaint(r, key) },
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			if nodes.MatchString(r.In.URL.Path) {
				r.Out.Header.Set("Accept", "application/json")
				r.Out.Header.Del("Accept-Encoding")
			}
		},
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go http.Serve(listener, proxy)
	return "http://" + listener.Addr().String(), nil
}

// byUser shows the administrator's certificate with requests that have no token.
type byUser struct{ admin, others http.RoundTripper }

func (b byUser) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return b.others.RoundTrip(r)
	}
	return b.admin.RoundTrip(r)
}

func removeTaint(r *http.Response, key string) error {
	if !nodes.MatchString(r.Request.URL.Path) || r.Request.URL.Query().Has("watch") || r.StatusCode != http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	var list corev1.NodeList
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	untaint := func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
	}
	var changed any = &list
	if list.Kind == "Node" {
		var node corev1.Node
		if err := json.Unmarshal(body, &node); err != nil {
			return err
		}
		untaint(&node)
		changed = &node
	}
	for i := range list.Items {
		untaint(&list.Items[i])
	}
	if body, err = json.Marshal(changed); err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}
