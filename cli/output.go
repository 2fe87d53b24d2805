// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// print writes the objects to standard output instead of applying them.
func (e *env) print(format string, objects ...client.Object) error {
	if err := checkFormat(format); err != nil {
		return err
	}
	for i, object := range objects {
		m, err := e.manifest(object)
		if err != nil {
			return err
		}
		text, err := encode(m.Object, format)
		if err != nil {
			return err
		}
		if i > 0 && format == "yaml" {
			fmt.Fprintln(e.Out, "---")
		}
		fmt.Fprint(e.Out, text)
	}
	return nil
}

// checkFormat refuses formats other than json and yaml.
func checkFormat(format string) error {
	if format != "yaml" && format != "json" {
		return fmt.Errorf("output %q is neither json nor yaml", format)
	}
	return nil
}
