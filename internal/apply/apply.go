// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apply makes desired objects true on one cluster by server-side apply.
//
// It is responsible for turning a typed desired object into the request the API server
// merges, and for not sending requests that would change nothing. It does not decide what is
// desired and does not prune; package ctl does both.
//
// A request is skipped when the same desired object was applied before and what the server
// answered then (less bookkeeping) is what the live object shows now: then neither a value nor
// the set of fields we own can differ. The memory is an optimisation only; losing it costs one
// request an object, which the API server answers without a write.
//
// Objects that come in numbers are made by Create and changed by Created, which is cheaper for
// the API server; the others need only Object.
package apply

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Applier applies objects to one cluster under one field manager. Safe for concurrent use.
type Applier struct {
	client  client.Client
	live    client.Reader
	manager string

	mu   sync.Mutex
	memo map[target]state
}

// target is one part ("" = object, "status" = status subresource) of one object.
type target struct {
	gvk             schema.GroupVersionKind
	namespace, name string
	part            string
}

// state remembers what was asked and what the server made of it.
type state struct{ desired, live digest }

type digest = [sha256.Size]byte

// New returns an Applier that writes through c as the field manager. live reads from the API
// server: caches need not hold who owns which field.
func New(c client.Client, live client.Reader, manager string) *Applier {
	return &Applier{client: c, live: live, manager: manager, memo: map[target]state{}}
}

// Object applies everything of desired but its status, and reports whether a request was sent.
// live is the object as last observed, nil when unknown or absent.
func (a *Applier) Object(ctx context.Context, live, desired client.Object) (bool, error) {
	return a.apply(ctx, live, desired, "", nil)
}

// Create makes an object that does not exist yet; the error is AlreadyExists when it does,
// whoever made it. It costs the API server half of what an apply does (measured on pods: 5 of
// 10 ms), for it merges nothing. What Object later stops naming is removed all the same.
func (a *Applier) Create(ctx context.Context, desired client.Object) error {
	request, err := a.request(desired, "")
	if err != nil {
		return err
	}
	want, err := sum(request.Object)
	if err != nil {
		return fmt.Errorf("encode %s: %w", describe(request), err)
	}
	made := desired.DeepCopyObject().(client.Object) // the answer is decoded into it
	if err := a.client.Create(ctx, made, client.FieldOwner(a.manager)); err != nil {
		return fmt.Errorf("create %s: %w", describe(request), err)
	}
	answer, err := toUnstructured(made)
	if err != nil {
		return fmt.Errorf("encode %s: %w", describe(request), err)
	}
	dropNulls(answer)
	return a.remember(targetOf(request, ""), want, answer)
}

// Created is Object for an object that exists and may have been made by Create.
func (a *Applier) Created(ctx context.Context, live, desired client.Object) (bool, error) {
	return a.apply(ctx, live, desired, "", a.adopt)
}

// adopt makes the fields recorded at Create ours by apply: of what is ours by another operation
// nothing would ever be removed.
func (a *Applier) adopt(ctx context.Context, live client.Object) error {
	gvk, err := apiutil.GVKForObject(live, a.client.Scheme())
	if err != nil {
		return fmt.Errorf("find kind of %T: %w", live, err)
	}
	var meta metav1.PartialObjectMetadata
	meta.SetGroupVersionKind(gvk)
	if err := a.live.Get(ctx, client.ObjectKeyFromObject(live), &meta); err != nil {
		return fmt.Errorf("read owners of fields: %w", err)
	}
	patch, err := csaupgrade.UpgradeManagedFieldsPatch(&meta, sets.New(a.manager), a.manager)
	if err != nil || patch == nil {
		return err
	}
	if err := a.client.Patch(ctx, &meta, client.RawPatch(types.JSONPatchType, patch)); err != nil {
		return fmt.Errorf("patch owners of fields: %w", err)
	}
	return nil
}

// Status applies desired's status, and reports whether a request was sent.
func (a *Applier) Status(ctx context.Context, live, desired client.Object) (bool, error) {
	return a.apply(ctx, live, desired, "status", nil)
}

// Forget drops what is remembered of an object that no longer exists.
func (a *Applier) Forget(obj client.Object) {
	gvk, err := apiutil.GVKForObject(obj, a.client.Scheme())
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, part := range []string{"", "status"} {
		delete(a.memo, target{gvk, obj.GetNamespace(), obj.GetName(), part})
	}
}

// apply sends what changes something. first is done before that; nil is nothing.
func (a *Applier) apply(ctx context.Context, live, desired client.Object, part string, first func(context.Context, client.Object) error) (bool, error) {
	request, err := a.request(desired, part)
	if err != nil {
		return false, err
	}
	at := targetOf(request, part)
	want, err := sum(request.Object)
	if err != nil {
		return false, fmt.Errorf("encode %s: %w", describe(request), err)
	}
	if a.done(at, want, live) {
		return false, nil
	}
	if first != nil {
		if err := first(ctx, live); err != nil {
			return false, fmt.Errorf("prepare %s: %w", describe(request), err)
		}
	}
	err = a.send(ctx, request, part)
	if live != nil && leavesNull(err) {
		if err := a.empty(ctx, live, request, part); err != nil {
			return false, fmt.Errorf("empty %s: %w", describe(request), err)
		}
		err = a.send(ctx, request, part)
	}
	if err != nil {
		return false, fmt.Errorf("apply %s: %w", describe(request), err)
	}
	answer, err := a.normal(request)
	if err != nil {
		return true, err
	}
	return true, a.remember(at, want, answer)
}

func targetOf(request *unstructured.Unstructured, part string) target {
	return target{request.GroupVersionKind(), request.GetNamespace(), request.GetName(), part}
}

// remember notes what the server made of a desired object.
func (a *Applier) remember(at target, want digest, answer map[string]any) error {
	got, err := observed(answer, at.part)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.memo[at] = state{desired: want, live: got}
	return nil
}

// done reports whether live already is what applying the desired object led to last time.
func (a *Applier) done(at target, want digest, live client.Object) bool {
	a.mu.Lock()
	last, ok := a.memo[at]
	a.mu.Unlock()
	if !ok || live == nil || last.desired != want {
		return false
	}
	u, err := toUnstructured(live)
	if err != nil {
		return false
	}
	dropNulls(u)
	now, err := observed(u, at.part)
	return err == nil && now == last.live
}

// send applies the request; the server's answer replaces the request's content.
func (a *Applier) send(ctx context.Context, request *unstructured.Unstructured, part string) error {
	ac := client.ApplyConfigurationFromUnstructured(request)
	if part == "status" {
		return a.client.Status().Apply(ctx, ac, client.FieldOwner(a.manager), client.ForceOwnership)
	}
	return a.client.Apply(ctx, ac, client.FieldOwner(a.manager), client.ForceOwnership)
}

// normal is the answer as a typed object encodes it, so that it compares with a live object.
func (a *Applier) normal(answer *unstructured.Unstructured) (map[string]any, error) {
	typed, err := a.client.Scheme().New(answer.GroupVersionKind())
	if runtime.IsNotRegisteredError(err) {
		return answer.Object, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find type of %s: %w", describe(answer), err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, typed); err != nil {
		return nil, fmt.Errorf("decode %s: %w", describe(answer), err)
	}
	content, err := toUnstructured(typed.(client.Object))
	if err == nil {
		dropNulls(content)
	}
	return content, err
}

// request is what is sent: for the object everything but status and what the server fills in,
// for the status nothing else.
func (a *Applier) request(desired client.Object, part string) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(desired, a.client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("find kind of %T: %w", desired, err)
	}
	content, err := toUnstructured(desired)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", desired, err)
	}
	if part == "status" {
		content = map[string]any{
			"metadata": map[string]any{"name": desired.GetName(), "namespace": desired.GetNamespace()},
			"status":   content["status"],
		}
	} else {
		delete(content, "status")
	}
	dropNulls(content)
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	if u.GetNamespace() == "" {
		unstructured.RemoveNestedField(content, "metadata", "namespace")
	}
	for _, field := range []string{"creationTimestamp", "resourceVersion", "uid", "generation", "managedFields", "selfLink"} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	return u, nil
}

// leavesNull tells the error of an apply that took the last key we owned out of a map: the merge
// leaves a null in its place (structured-merge-diff, typed/remove.go), which the schema refuses.
func leavesNull(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), `"null"`)
}

// empty takes away the maps of which nothing is desired any more, so that the apply has no last
// key to remove.
func (a *Applier) empty(ctx context.Context, live client.Object, request *unstructured.Unstructured, part string) error {
	content, err := toUnstructured(live)
	if err != nil {
		return fmt.Errorf("encode %s: %w", describe(request), err)
	}
	section := "spec"
	if part == "status" {
		section = part
	}
	want, gone := mapAt(request.Object, section), map[string]any{}
	for field, value := range mapAt(content, section) {
		if _, isMap := value.(map[string]any); isMap && len(mapAt(want, field)) == 0 {
			gone[field] = nil
		}
	}
	patch, err := json.Marshal(map[string]any{section: gone})
	if err != nil {
		return fmt.Errorf("encode patch of %s: %w", describe(request), err)
	}
	target := live.DeepCopyObject().(client.Object)
	if part == "status" {
		return a.client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(a.manager))
	}
	return a.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(a.manager))
}

func mapAt(content map[string]any, field string) map[string]any {
	m, _ := content[field].(map[string]any)
	return m
}

// observed digests the part of a live object that an apply of that part decides.
func observed(content map[string]any, part string) (digest, error) {
	if part == "status" {
		return sum(content["status"])
	}
	rest := make(map[string]any, len(content))
	for k, v := range content {
		if k != "status" && k != "apiVersion" && k != "kind" {
			rest[k] = v
		}
	}
	if meta, ok := content["metadata"].(map[string]any); ok {
		rest["metadata"] = map[string]any{
			"labels": meta["labels"], "annotations": meta["annotations"],
			"ownerReferences": meta["ownerReferences"], "uid": meta["uid"],
		}
	}
	if spec, ok := content["spec"].(map[string]any); ok && spec["containers"] != nil {
		// A pod: where it was scheduled to is nobody's wish here.
		spec = maps.Clone(spec)
		delete(spec, "nodeName")
		rest["spec"] = spec
	}
	return sum(rest)
}

func toUnstructured(obj client.Object) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.DeepCopy().Object, nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}

// sum digests a JSON value; encoding/json sorts map keys, so equal values give equal digests.
func sum(v any) (digest, error) {
	b, err := json.Marshal(v)
	return sha256.Sum256(b), err
}

// dropNulls removes null values: for server-side apply a null claims the field, while a typed
// object's zero pointer means "no opinion".
func dropNulls(m map[string]any) {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			dropNulls(v)
		case []any:
			for _, item := range v {
				if item, ok := item.(map[string]any); ok {
					dropNulls(item)
				}
			}
		}
	}
}

func describe(u *unstructured.Unstructured) string {
	if u.GetNamespace() == "" {
		return fmt.Sprintf("%s %s", u.GetKind(), u.GetName())
	}
	return fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
}
