// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/liqo-go/liqo/api"
)

// clusterID is a flag that holds a cluster ID.
type clusterID string

func (v *clusterID) String() string { return string(*v) }
func (v *clusterID) Type() string   { return "clusterID" }
func (v *clusterID) Set(text string) error {
	if err := api.ValidateClusterID(text); err != nil {
		return err
	}
	*v = clusterID(text)
	return nil
}

// cidrs is a flag that holds address ranges, separated by commas or given repeatedly.
type cidrs []string

func (v *cidrs) String() string { return strings.Join(*v, ",") }
func (v *cidrs) Type() string   { return "cidrList" }
func (v *cidrs) Set(text string) error {
	for _, part := range strings.Split(text, ",") {
		prefix, err := parseCIDR(part)
		if err != nil {
			return err
		}
		*v = append(*v, prefix.String())
	}
	return nil
}

// cidr is a flag that holds one address range.
type cidr string

func (v *cidr) String() string { return string(*v) }
func (v *cidr) Type() string   { return "cidr" }
func (v *cidr) Set(text string) error {
	prefix, err := parseCIDR(text)
	if err != nil {
		return err
	}
	*v = cidr(prefix.String())
	return nil
}

// optional is a flag that an empty text leaves as it is.
type optional struct{ pflag.Value }

func (v optional) Set(text string) error {
	if text == "" {
		return nil
	}
	return v.Value.Set(text)
}

// parseCIDR refuses ranges with host bits, which usually are typing errors.
func parseCIDR(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not an address range like 10.0.0.0/16", text)
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has host bits set; did you mean %s?", text, prefix.Masked())
	}
	return prefix, nil
}

// ports is a flag that holds a port, or several separated by commas; 0 means any.
type ports []int32

func (v *ports) Type() string { return "ports" }
func (v *ports) String() string {
	var out []string
	for _, port := range *v {
		out = append(out, strconv.Itoa(int(port)))
	}
	return cmp.Or(strings.Join(out, ","), "0")
}

func (v *ports) Set(text string) error {
	var out ports
	for _, part := range strings.Split(text, ",") {
		port, err := strconv.ParseUint(strings.TrimSpace(part), 10, 16)
		switch {
		case err != nil:
			return fmt.Errorf("%q is not a port between 1 and 65535", part)
		case slices.Contains(out, int32(port)):
			return fmt.Errorf("port %d stands there twice", port)
		case port != 0:
			out = append(out, int32(port))
		}
	}
	*v = out
	return nil
}

// split returns one port or several, as the fields of gateways need them.
func (v ports) split() (one int32, several []int32) {
	switch len(v) {
	case 0:
		return 0, nil
	case 1:
		return v[0], nil
	}
	return 0, v
}

// oneOf is a flag that stores one of a few words.
type oneOf[T ~string] struct {
	into    *T
	choices []string
}

func (v *oneOf[T]) String() string { return string(*v.into) }
func (v *oneOf[T]) Type() string   { return strings.Join(v.choices, "|") }

// words returns the choices, for completion.
func (v *oneOf[T]) words() []string { return slices.Clone(v.choices) }

func (v *oneOf[T]) Set(text string) error {
	for _, choice := range v.choices {
		if strings.EqualFold(choice, text) {
			*v.into = T(choice)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(v.choices, ", "))
}

// choice returns a flag whose default is value; an empty value is no choice.
func choice[T ~string](into *T, value string, further ...string) *oneOf[T] {
	*into = T(value)
	words := append([]string{value}, further...)
	return &oneOf[T]{into, slices.DeleteFunc(words, func(w string) bool { return w == "" })}
}

// base64Bytes is a flag that holds bytes.
type base64Bytes []byte

func (v *base64Bytes) String() string { return base64.StdEncoding.EncodeToString(*v) }
func (v *base64Bytes) Type() string   { return "base64" }
func (v *base64Bytes) Set(text string) error {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return fmt.Errorf("%q is not base64", text)
	}
	*v = data
	return nil
}

// quantities holds the flags for amounts of resources.
type quantities struct {
	cpu, memory, pods string
	others            map[string]string
}

// list parses the amounts and leaves out empty ones.
func (q quantities) list() (corev1.ResourceList, error) {
	wanted := map[string]string{"cpu": q.cpu, "memory": q.memory, "pods": q.pods}
	maps.Copy(wanted, q.others)
	out := corev1.ResourceList{}
	for name, amount := range wanted {
		if amount == "" {
			continue
		}
		parsed, err := resource.ParseQuantity(amount)
		if err != nil || parsed.Sign() < 0 {
			return nil, fmt.Errorf("%s: %q is not an amount like 2, 500m or 4Gi", name, amount)
		}
		out[corev1.ResourceName(name)] = parsed
	}
	return out, nil
}

// addQuantityFlags adds the flags for amounts with their defaults.
func addQuantityFlags(flags *pflag.FlagSet, q *quantities, d quantities) {
	flags.StringVar(&q.cpu, "cpu", d.cpu, "Amount of CPU")
	flags.StringVar(&q.memory, "memory", d.memory, "Amount of memory")
	flags.StringVar(&q.pods, "pods", d.pods, "Number of pods")
	flags.StringToStringVar(&q.others, "resource", nil, "Amounts of other resources (name=amount,…)")
}
