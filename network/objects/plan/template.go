// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

// TemplateData is the data that actions of a gateway template can use.
type TemplateData struct {
	// Spec is the spec of the GatewayServer or GatewayClient, with Go field names.
	Spec any
	// Name, Namespace and GatewayUID are those of the gateway object.
	Name, Namespace, GatewayUID string
	// ClusterID is the cluster ID of the peer.
	ClusterID string
	// SecretName is the user's key Secret; empty when keys are generated.
	SecretName string
}

// textKeys are fields below which Kubernetes accepts only strings, so numbers stay text.
var textKeys = map[string]bool{
	"labels": true, "annotations": true, "matchLabels": true, "selector": true, "nodeSelector": true,
	"args": true, "command": true, "env": true, "name": true, "secretName": true, "serviceAccountName": true,
}

// wholeNumber matches text that becomes an integer.
var wholeNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// These limits protect the controller from templates. One string has at most outputLimit bytes, and
// executes at most stepLimit bodies of loops, branches and named templates.
const (
	outputLimit = 64 << 10
	stepLimit   = 10_000
)

// Render executes a gateway template. Strings are Go templates. One that renders to a whole number
// becomes an integer, except where Kubernetes accepts only strings. A key "?name" is written as
// "name". It is left out if its value, or anything below it, has variables and each of them is
// empty, zero or does not exist. The error names the invalid field of the template.
func Render(tmpl map[string]any, data TemplateData) (map[string]any, error) {
	out, err := rendering{data}.object("", tmpl, false)
	if err != nil {
		return nil, err
	}
	return out, nil
}

type rendering struct{ data TemplateData }

// value renders any value of a template. If text is set, numbers stay strings.
func (r rendering) value(path string, v any, text bool) (any, error) {
	switch v := v.(type) {
	case string:
		return r.text(path, v, text)
	case map[string]any:
		return r.object(path, v, text)
	case []any:
		return r.list(path, v, text)
	}
	return v, nil
}

func (r rendering) object(path string, m map[string]any, text bool) (map[string]any, error) {
	out := make(map[string]any, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name, optional := strings.CutPrefix(key, "?")
		at := strings.TrimPrefix(path+"."+name, ".")
		if optional {
			absent, err := r.absent(at, m[key])
			if err != nil {
				return nil, err
			}
			if absent {
				continue
			}
		}
		v, err := r.value(at, m[key], text || textKeys[name])
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func (r rendering) list(path string, items []any, text bool) ([]any, error) {
	out := make([]any, len(items))
	for i, item := range items {
		v, err := r.value(fmt.Sprintf("%s[%d]", path, i), item, text)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// text renders one string.
func (r rendering) text(path, s string, text bool) (any, error) {
	if !strings.Contains(s, "{{") {
		return s, nil
	}
	t, err := parsed(path, s)
	if err != nil {
		return nil, err
	}
	var out limited
	if err := t.Execute(&out, r.data); err != nil {
		return nil, templateError(path, err)
	}
	if n, err := strconv.ParseInt(out.String(), 10, 64); err == nil && !text && wholeNumber.MatchString(out.String()) {
		return n, nil
	}
	return out.String(), nil
}

func parsed(path, s string) (*template.Template, error) {
	steps := 0
	count := template.FuncMap{"step": func() (string, error) {
		if steps++; steps > stepLimit {
			return "", errors.New("the loops of this value do not come to an end")
		}
		return "", nil
	}}
	step, err := template.New(path).Funcs(count).Parse("{{ step }}")
	if err != nil {
		return nil, templateError(path, err)
	}
	t, err := template.New(path).Funcs(count).Option("missingkey=error").Parse(s)
	if err != nil {
		return nil, templateError(path, err)
	}
	for _, part := range t.Templates() {
		if part.Tree != nil {
			counted(part.Root, step.Root.Nodes[0])
		}
	}
	return t, nil
}

// counted inserts step at the start of every body in list.
func counted(list *parse.ListNode, step parse.Node) {
	if list == nil {
		return
	}
	for _, n := range list.Nodes {
		switch n := n.(type) {
		case *parse.IfNode:
			counted(n.List, step)
			counted(n.ElseList, step)
		case *parse.RangeNode:
			counted(n.List, step)
			counted(n.ElseList, step)
		case *parse.WithNode:
			counted(n.List, step)
			counted(n.ElseList, step)
		}
	}
	list.Nodes = append([]parse.Node{step}, list.Nodes...)
}

// position matches the position in an error of text/template: the line within the value, an
// optional column, and the value's name. The name is the field, which the message already has.
var position = regexp.MustCompile(`^(\d+)(?::\d+)?: (?:executing ".*?" at )?`)

// templateError names the field, then the line within its value.
func templateError(path string, err error) error {
	text := strings.TrimPrefix(err.Error(), "template: "+path+":")
	text = strings.TrimSuffix(text, " in type interface {}") // the type of Spec says nothing to a user
	return fmt.Errorf("%s: %s", path, position.ReplaceAllString(text, "line $1: "))
}

// limited is a string builder of limited size.
type limited struct{ strings.Builder }

func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > outputLimit {
		return 0, errors.New("the value is longer than 64 KiB")
	}
	return l.Builder.Write(b)
}

// absent reports whether every variable in an optional value is empty. A value without a variable is
// always written.
func (r rendering) absent(path string, v any) (bool, error) {
	fields, err := variables(path, v)
	if err != nil || len(fields) == 0 {
		return false, err
	}
	isSet := func(field []string) bool { return !empty(reflect.ValueOf(r.data), field) }
	return !slices.ContainsFunc(fields, isSet), nil
}

// variables returns the fields of the data, like [Spec MTU], that the actions of a value use.
func variables(path string, v any) (fields [][]string, err error) {
	switch v := v.(type) {
	case string:
		t, err := parsed(path, v)
		if err != nil || t.Tree == nil {
			return nil, err
		}
		return fieldsOf(t.Root, true), nil
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			below, err := variables(path+"."+strings.TrimPrefix(key, "?"), v[key])
			if err != nil {
				return nil, err
			}
			fields = append(fields, below...)
		}
	case []any:
		for i, item := range v {
			below, err := variables(fmt.Sprintf("%s[%d]", path, i), item)
			if err != nil {
				return nil, err
			}
			fields = append(fields, below...)
		}
	}
	return fields, nil
}

// fieldsOf returns the fields of the data that a part of a parsed template uses. Where the dot is
// not the data, as in the body of a range, it returns only fields after $.
func fieldsOf(node parse.Node, dotIsData bool) [][]string {
	all := func(dotIsData bool, nodes ...parse.Node) (fields [][]string) {
		for _, n := range nodes {
			fields = append(fields, fieldsOf(n, dotIsData)...)
		}
		return fields
	}
	branch := func(n *parse.BranchNode, bodyDotIsData bool) [][]string {
		fields := append(fieldsOf(n.Pipe, dotIsData), fieldsOf(n.List, bodyDotIsData)...)
		if n.ElseList == nil {
			return fields
		}
		return append(fields, fieldsOf(n.ElseList, dotIsData)...)
	}
	switch n := node.(type) {
	case *parse.FieldNode:
		if dotIsData {
			return [][]string{n.Ident}
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			return [][]string{n.Ident[1:]}
		}
	case *parse.ChainNode:
		return fieldsOf(n.Node, dotIsData)
	case *parse.ListNode:
		return all(dotIsData, n.Nodes...)
	case *parse.ActionNode:
		return fieldsOf(n.Pipe, dotIsData)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			return fieldsOf(n.Pipe, dotIsData)
		}
	case *parse.IfNode:
		return branch(&n.BranchNode, dotIsData)
	case *parse.RangeNode:
		return branch(&n.BranchNode, false)
	case *parse.WithNode:
		return branch(&n.BranchNode, false)
	case *parse.PipeNode:
		var fields [][]string
		for _, command := range n.Cmds {
			fields = append(fields, fieldsOf(command, dotIsData)...)
		}
		return fields
	case *parse.CommandNode:
		return all(dotIsData, n.Args...)
	}
	return nil
}

// empty reports whether the field is zero, an empty list or does not exist. A field of a value
// without fields, like a number, is not empty: rendering reports it.
func empty(v reflect.Value, field []string) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return true
		}
		v = v.Elem()
	}
	switch {
	case len(field) == 0:
		return v.IsZero() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.Len() == 0
	case v.Kind() == reflect.Struct:
		next := v.FieldByName(field[0])
		return !next.IsValid() || empty(next, field[1:])
	case v.Kind() == reflect.Map && v.Type().Key().Kind() == reflect.String:
		next := v.MapIndex(reflect.ValueOf(field[0]).Convert(v.Type().Key()))
		return !next.IsValid() || empty(next, field[1:])
	}
	return false
}
