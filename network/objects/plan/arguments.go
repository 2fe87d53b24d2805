// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	flags "github.com/liqo-go/liqo/network/gateway/plan"
)

// arguments are the flags of a gateway's process, and what the process makes of them.
type arguments struct {
	// words are the flags in the form --name=value.
	words []string
	flags flags.Flags
	set   *pflag.FlagSet
}

// formerFlags maps names of flags in older templates of the original to those of today.
var formerFlags = map[string]string{
	"listen-port": "listen-ports", "endpoint-port": "endpoint-ports", "endpoint-addresses": "endpoint-address",
}

// unresolved stands for values that are known only when a pod runs. Names, numbers, lists and
// switches take it.
const unresolved = "1"

// arguments returns those of the container gateway, from its own flags and those of the containers
// it replaces. Of a flag that several containers have, the first container's counts. Flags that the
// process does not know, that have no effect or whose value it would refuse are added to a.ignored.
// Flags that every gateway has are added. With foreign, the command of a container is not executed,
// and its flags are taken over.
func (w wgGateway) arguments(a *adaptation, parts []corev1.Container, gateway corev1.Container,
	foreign bool) *arguments {
	out := &arguments{set: pflag.NewFlagSet(gatewayContainer, pflag.ContinueOnError)}
	out.flags.Add(out.set, func(name string) string {
		if name == "POD_IP" { // an address; it matters only when the pod runs
			return ""
		}
		return unresolved
	})
	out.set.IntP("v", "v", 0, "verbosity of the log; all roles have it")
	from := map[string]int{}
	take := func(i int, words []string) {
		for _, f := range templateFlags(words, out.set) {
			if first, known := from[f.name]; known && first != i {
				continue
			}
			from[f.name] = i
			if !out.accept(f, gateway) {
				a.ignored = append(a.ignored, f.text)
			}
		}
	}
	for i, part := range parts {
		take(i, part.Command[len(roleWords(part.Command)):])
		if !foreign {
			out.words = nil // they stay in the command
		}
		take(i, part.Args[len(roleWords(part.Args)):])
	}
	var uid string
	if owner := metav1.GetControllerOf(w.root); owner != nil {
		uid = string(owner.UID)
	}
	for _, f := range []templateFlag{
		{name: "mode", value: w.mode}, {name: "name", value: w.root.GetName()},
		{name: "namespace", value: w.root.GetNamespace()}, {name: "gateway-uid", value: uid},
		{name: "remote-cluster-id", value: w.root.GetLabels()[api.LabelRemoteClusterID]},
	} {
		if f.value != "" && out.set.Lookup(f.name).Value.String() == "" {
			out.accept(f, gateway)
		}
	}
	return out
}

// accept adds a flag, and reports whether it has an effect.
func (a *arguments) accept(f templateFlag, gateway corev1.Container) bool {
	flag := a.set.Lookup(f.name)
	if flag == nil || flag.Hidden {
		return false
	}
	before := flag.Value.String()
	value, known := expand(f.value, gateway)
	if err := a.set.Set(f.name, value); err != nil {
		_ = flag.Value.Set(before) // a refused number has become zero; lists have not changed
		if known {
			return false
		}
	}
	a.words = append(a.words, "--"+f.name+"="+f.value)
	return true
}

// templateFlag is a flag of a container.
type templateFlag struct {
	// name has no dashes; empty for a word that belongs to no flag.
	name, value string
	// text holds the words of the template.
	text string
}

func isFlag(word string) bool { return strings.HasPrefix(word, "-") }

// roleWords returns the words before the first flag: what is executed.
func roleWords(words []string) []string {
	if i := slices.IndexFunc(words, isFlag); i >= 0 {
		return words[:i]
	}
	return words
}

// templateFlags reads flags of the forms --name=value, --name value and --name.
func templateFlags(words []string, known *pflag.FlagSet) []templateFlag {
	var out []templateFlag
	for i := 0; i < len(words); i++ {
		f := templateFlag{text: words[i]}
		if isFlag(words[i]) {
			name, value, joined := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
			f.name, f.value = cmp.Or(formerFlags[name], name), value
			flag := known.Lookup(f.name)
			switch {
			case joined:
			case i+1 < len(words) && takes(flag, words[i+1]):
				i++
				f.value, f.text = words[i], f.text+" "+words[i]
			case flag != nil:
				f.value = flag.NoOptDefVal
			}
		}
		out = append(out, f)
	}
	return out
}

// takes reports whether the word after a flag is its value; flag is nil if it is not known.
func takes(flag *pflag.Flag, word string) bool {
	_, notBool := strconv.ParseBool(word)
	return !isFlag(word) && (flag == nil || flag.Value.Type() != "bool" || notBool == nil)
}

// reference matches a reference to a variable of the container.
var reference = regexp.MustCompile(`\$\([-._a-zA-Z][-._a-zA-Z0-9]*\)`)

// expand replaces references to variables as Kubernetes does, which leaves those to unknown variables
// as they are. It reports whether the values of all are known.
func expand(text string, c corev1.Container) (value string, known bool) {
	known = true
	value = reference.ReplaceAllStringFunc(text, func(ref string) string {
		i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == ref[2:len(ref)-1] })
		switch {
		case i >= 0 && c.Env[i].ValueFrom == nil:
			return c.Env[i].Value
		case i >= 0 || len(c.EnvFrom) > 0:
			known = false
			return unresolved
		}
		return ref
	})
	return value, known
}
