// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"testing"
)

// Which claims get a volume, and which volumes go.
func TestVolumes(t *testing.T) {
	for claim, want := range map[string]bool{
		`{"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "testbed/local", "volume.kubernetes.io/selected-node": "rome-n1"}}}`:                                  true,
		`{"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "testbed/local"}}}`:                                                                                   false,
		`{"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "liqo.io/storage", "volume.kubernetes.io/selected-node": "rome-n1"}}}`:                                false,
		`{"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": "testbed/local", "volume.kubernetes.io/selected-node": "rome-n1"}}, "spec": {"volumeName": "pvc-1"}}`: false,
	} {
		var c volumeClaim
		if err := json.Unmarshal([]byte(claim), &c); err != nil {
			t.Fatal(err)
		}
		if _, got := c.waits(); got != want {
			t.Errorf("%s waits: %t", claim, got)
		}
	}
	for claim, want := range map[string]bool{
		`{"metadata": {"uid": "1", "annotations": {"volume.kubernetes.io/storage-provisioner": "testbed/local"}}, "spec": {"volumeName": "pvc-1", "resources": {"requests": {"storage": "2Mi"}}}, "status": {"capacity": {"storage": "1Mi"}}}`:   true,
		`{"metadata": {"uid": "1", "annotations": {"volume.kubernetes.io/storage-provisioner": "testbed/local"}}, "spec": {"volumeName": "pvc-1", "resources": {"requests": {"storage": "2Mi"}}}, "status": {"capacity": {"storage": "2Mi"}}}`:   false,
		`{"metadata": {"uid": "1", "annotations": {"volume.kubernetes.io/storage-provisioner": "testbed/local"}}, "spec": {"volumeName": "pvc-1", "resources": {"requests": {"storage": "2Mi"}}}}`:                                               false,
		`{"metadata": {"uid": "1", "annotations": {"volume.kubernetes.io/storage-provisioner": "liqo.io/storage"}}, "spec": {"volumeName": "pvc-1", "resources": {"requests": {"storage": "2Mi"}}}, "status": {"capacity": {"storage": "1Mi"}}}`: false,
	} {
		var c volumeClaim
		if err := json.Unmarshal([]byte(claim), &c); err != nil {
			t.Fatal(err)
		}
		if c.grows() != want {
			t.Errorf("%s grows: %t", claim, !want)
		}
	}
	for text, want := range map[string]bool{
		`{"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "testbed/local"}}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}, "status": {"phase": "Released"}}`:   true,
		`{"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "testbed/local"}}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}, "status": {"phase": "Bound"}}`:      false,
		`{"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "testbed/local"}}, "spec": {"persistentVolumeReclaimPolicy": "Retain"}, "status": {"phase": "Released"}}`:   false,
		`{"metadata": {"annotations": {"pv.kubernetes.io/provisioned-by": "liqo.io/storage"}}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}, "status": {"phase": "Released"}}`: false,
	} {
		var v volume
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if v.done() != want {
			t.Errorf("%s done: %t", text, v.done())
		}
	}
}
