// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// The types below are values of flags. A value that is refused changes nothing.

// number is the value of a flag that is a whole number from least to most.
type number struct {
	to          *int
	least, most int
}

func port(to *int) number { return number{to, 1, 65535} }

func (n number) String() string {
	if n.to == nil { // pflag compares defaults with a zero value
		return "0"
	}
	return strconv.Itoa(*n.to)
}

// Set takes a number; the error names the bounds.
func (n number) Set(text string) error {
	value, err := strconv.Atoi(text)
	if err != nil || value < n.least || value > n.most {
		return fmt.Errorf("%q must be a number from %d to %d", text, n.least, n.most)
	}
	*n.to = value
	return nil
}

// Type is the type that help shows.
func (n number) Type() string { return "int" }

// ports is the value of a flag for ports, separated by commas; a second one adds more.
type ports struct{ to *[]int }

func (p ports) String() string {
	if p.to == nil {
		return "[]"
	}
	return strings.ReplaceAll(fmt.Sprint(*p.to), " ", ",") // as pflag's own type prints it
}

// Set adds ports.
func (p ports) Set(text string) error {
	all := slices.Clone(*p.to)
	for word := range strings.SplitSeq(text, ",") {
		var n int
		if err := port(&n).Set(word); err != nil {
			return err
		}
		all = append(all, n)
	}
	*p.to = all
	return nil
}

// Type is that of pflag's own type, which help shows as ints.
func (p ports) Type() string { return "intSlice" }

// address is the value of a flag for host and port to listen on; 0 or empty = do not.
type address struct{ to *string }

func (a address) String() string {
	if a.to == nil {
		return ""
	}
	return *a.to
}

// Set takes an address whose port is a number.
func (a address) Set(text string) error {
	if text != "" && text != "0" {
		_, service, err := net.SplitHostPort(text)
		if err != nil {
			return err
		}
		if _, err := strconv.ParseUint(service, 10, 16); err != nil {
			return fmt.Errorf("port %q of %q must be a number from 0 to 65535", service, text)
		}
	}
	*a.to = text
	return nil
}

// Type is the type that help shows.
func (a address) Type() string { return "string" }

// choice is the value of a flag that is one of a few words.
type choice struct {
	to    *string
	words []string
}

func (c choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Set takes a word; the error lists all of them.
func (c choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return fmt.Errorf("%q is none of %s", word, strings.Join(c.words, ", "))
	}
	*c.to = word
	return nil
}

// Type is the type that help shows.
func (c choice) Type() string { return "string" }
