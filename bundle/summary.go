// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// conditions returns a line for each condition of the objects, those that are not true first.
func conditions(objects []map[string]any) string {
	var unmet, met strings.Builder
	for _, object := range objects {
		for _, condition := range conditionsIn(object["status"]) {
			into := &met
			if !isMet(textAt(condition, "type"), textAt(condition, "status")) {
				into = &unmet
			}
			printLine(into, nameOf(object), textAt(condition, "type")+"="+textAt(condition, "status"),
				textAt(condition, "host"), textAt(condition, "reason"), textAt(condition, "message"),
				cmp.Or(textAt(condition, "lastTransitionTime"), textAt(condition, "lastStatusChange")))
		}
	}
	return unmet.String() + "\n" + met.String()
}

// conditionsIn returns what has the form of a condition in a status, in order. A ForeignCluster has conditions of each
// module, and a NamespaceOffloading of each provider.
func conditionsIn(status any) (out []map[string]any) {
	switch status := status.(type) {
	case map[string]any:
		if textAt(status, "type") != "" && textAt(status, "status") != "" {
			return []map[string]any{status}
		}
		for _, key := range slices.Sorted(maps.Keys(status)) {
			out = append(out, conditionsIn(status[key])...)
		}
	case []any:
		for _, item := range status {
			out = append(out, conditionsIn(item)...)
		}
	}
	return out
}

// isMet reports whether a condition says that all is well.
func isMet(of, status string) bool {
	inverted := []string{"Reconciling", "Stalled", string(netv1beta1.HostError), "NetworkUnavailable"}
	if slices.Contains(inverted, of) || strings.HasSuffix(of, "Pressure") { // MemoryPressure of a Node, and others
		return status == "False"
	}
	return slices.Contains([]string{"True", "Ready", "Established", "Accepted", "Running", "None"}, status)
}

// events returns a line for each Event of the objects, by time.
func events(objects []map[string]any) string {
	var lines []string
	for _, object := range objects {
		if object["kind"] != "Event" {
			continue
		}
		about, _ := object["involvedObject"].(map[string]any)
		at := cmp.Or(textAt(object, "lastTimestamp"), textAt(object, "eventTime"), textAt(object, "firstTimestamp"))
		count := ""
		if n, ok := object["count"].(int64); ok && n > 1 {
			count = fmt.Sprintf("(%d times)", n)
		}
		var line strings.Builder
		printLine(&line, at, textAt(object, "type"), strings.ToLower(textAt(about, "kind")),
			textAt(about, "namespace")+"/"+textAt(about, "name"), textAt(object, "reason"), textAt(object, "message"),
			count)
		lines = append(lines, line.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// printLine writes the texts that are not empty in one line. Peers wrote some of them, so they are escaped.
func printLine(into *strings.Builder, texts ...string) {
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	for i, text := range texts {
		texts[i] = api.Printable(text)
	}
	fmt.Fprintln(into, strings.Join(texts, "  "))
}

// nameOf returns kind, namespace and name of an object.
func nameOf(object map[string]any) string {
	o := unstructured.Unstructured{Object: object}
	name := strings.ToLower(o.GetKind()) + "  "
	if o.GetNamespace() != "" {
		name += o.GetNamespace() + "/"
	}
	return name + o.GetName()
}

func textAt(object map[string]any, key string) string {
	text, _ := object[key].(string)
	return text
}
