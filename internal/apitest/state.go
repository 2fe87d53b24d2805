// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/liqo-go/liqo/internal/patience"
)

// state records the first content of an etcd and restores it. It uses etcd's JSON gateway and
// bypasses the API server, whose caches follow as they follow writes of other API servers.
type state struct {
	etcd     string // URL
	first    map[string][]byte
	revision int64 // the last one of the first state
}

// pair is a key with its value.
type pair struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value,omitempty"`
}

// registry is the range of keys that API servers use.
var registry = map[string]any{"key": []byte("/registry/"), "range_end": []byte("/registry0")}

// kept reports whether the API server needs a key for itself: leases that it renews. The key of a lease is there
// some time after the server is ready, and not while the server cannot renew it.
func kept(key string) bool {
	for _, leases := range []string{"masterleases/", "peerserverleases/", "leases/kube-system/"} {
		if strings.HasPrefix(key, "/registry/"+leases) {
			return true
		}
	}
	return false
}

// group returns the API group or resource of a key.
func group(key string) string {
	group, _, _ := strings.Cut(strings.TrimPrefix(key, "/registry/"), "/")
	return group
}

// spoils reports whether the API server follows changes of a group late, without a way to observe
// it: the APIs that it serves.
func spoils(group string) bool {
	return group == "apiextensions.k8s.io" || group == "apiregistration.k8s.io" || strings.HasPrefix(group, "mutatingadmissionpolic")
}

// admits reports whether a group decides about admission, which follows changes late.
func admits(group string) bool {
	return strings.HasPrefix(group, "validatingadmissionpolic") || strings.HasSuffix(group, "webhookconfigurations")
}

// record stores the content of etcd as its first state. The API server adds some of its objects
// when it is ready already, so this waits for all keys of an installation. Events have other names in
// each server, and not all servers record some.
func (s *state) record(ctx context.Context, present *installation) error {
	missing := ""
	if err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pairs, revision, err := s.read(ctx, nil)
		s.revision, s.first = revision, map[string][]byte{}
		for _, p := range pairs {
			if key := string(p.Key); !kept(key) && group(key) != "events" {
				s.first[key] = p.Value
			}
		}
		missing = present.missing(s.first)
		return missing == "", err
	}); err != nil {
		return fmt.Errorf("wait for %q in etcd: %w", missing, err)
	}
	return nil
}

// seed writes the CRDs of an installation as soon as etcd answers.
func (s *state) seed(ctx context.Context, present *installation) (err error) {
	var operations []any
	for key, value := range present.stored {
		if group(key) == "apiextensions.k8s.io" {
			operations = append(operations, map[string]any{"request_put": pair{[]byte(key), value}})
		}
	}
	var answer struct{}
	if wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err = s.ask(ctx, "/v3/kv/txn", map[string]any{"success": operations}, &answer)
		return err == nil, nil
	}) != nil {
		return fmt.Errorf("wait for etcd: %w, last answer: %w", context.Cause(ctx), err)
	}
	return nil
}

// read returns the content of the registry, and its revision.
func (s *state) read(ctx context.Context, options map[string]any) ([]pair, int64, error) {
	request := maps.Clone(registry)
	maps.Copy(request, options)
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
		Pairs []pair `json:"kvs"`
	}
	err := s.ask(ctx, "/v3/kv/range", request, &answer)
	return answer.Pairs, answer.Header.Revision, err
}

// restore resets the registry to its first state. It returns the groups that it changed.
func (s *state) restore(ctx context.Context) ([]string, error) {
	changed, _, err := s.read(ctx, map[string]any{"min_mod_revision": s.revision + 1})
	if err != nil {
		return nil, err
	}
	present, _, err := s.read(ctx, map[string]any{"keys_only": true})
	if err != nil {
		return nil, err
	}
	var operations []any
	var groups []string
	for _, p := range changed {
		key := string(p.Key)
		before, existed := s.first[key]
		switch {
		case kept(key):
			continue
		case existed:
			operations = append(operations, map[string]any{"request_put": pair{p.Key, before}})
		default:
			operations = append(operations, map[string]any{"request_delete_range": pair{Key: p.Key}})
		}
		groups = append(groups, group(key))
	}
	there := map[string]bool{}
	for _, p := range present {
		there[string(p.Key)] = true
	}
	for key, value := range s.first {
		if !there[key] {
			operations = append(operations, map[string]any{"request_put": pair{[]byte(key), value}})
			groups = append(groups, group(key))
		}
	}
	if len(operations) == 0 {
		return nil, nil
	}
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err = s.ask(ctx, "/v3/kv/txn", map[string]any{"success": operations}, &answer)
	s.revision = answer.Header.Revision
	return groups, err
}

func (s *state) ask(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.etcd+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("ask etcd %s: %s: %s", path, resp.Status, text)
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// reset returns the server to its first state and waits until its authorizer and its admission have
// observed that: 0.05 s on two idle cores. It reports false if it cannot wait for that.
func (s *Server) reset() (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	groups, err := s.state.restore(ctx)
	if err != nil || slices.ContainsFunc(groups, spoils) {
		return false, err
	}
	c, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return false, err
	}
	name := fmt.Sprintf("apitest-%d", s.state.revision)
	if err := settle(ctx, c, name); err != nil {
		return false, err
	}
	if slices.ContainsFunc(groups, admits) {
		if err := settleAdmission(ctx, c, name); err != nil {
			return false, err
		}
	}
	_, err = s.state.restore(ctx)
	return err == nil, err
}

// settle grants a right in both ways and waits until each is in force. The four caches of the
// authorizer receive changes in order, so then they have received the reset, too.
func settle(ctx context.Context, c *kubernetes.Clientset, name string) error {
	meta := metav1.ObjectMeta{Name: name}
	rule := func(resource string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}}}
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}
	}
	const namespace = metav1.NamespaceDefault
	rbac := c.RbacV1()
	if _, err := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rule("secrets")}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref("Role"), Subjects: subjects}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rule("nodes")}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref("ClusterRole"), Subjects: subjects}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, right := range []authorizationv1.ResourceAttributes{{Namespace: namespace, Resource: "secrets", Verb: "get"}, {Resource: "nodes", Verb: "get"}} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &right}}
		if err := wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			answer, err := c.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed, err
		}); err != nil {
			return fmt.Errorf("wait for the authorizer: %w", err)
		}
	}
	return nil
}
