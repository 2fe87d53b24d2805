// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The default storage class of a cluster, "local", has its provisioner in the first process of the
// control plane. A volume is a directory on the node of the first pod, which kubelet makes; it
// belongs to that node, and goes with its claim or with the cluster. One that is
// asked to grow has grown: a directory has any size.

const (
	volumesProvisioner = "testbed/local"
	// volumesDir lies in the node's own /var/lib.
	volumesDir = "/var/lib/volumes"

	storageClassPath = "/apis/storage.k8s.io/v1/storageclasses/local"
	storageClass     = `{
  "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
  "metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
  "provisioner": "` + volumesProvisioner + `", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true
}`
	claimsPath  = "/api/v1/persistentvolumeclaims"
	volumesPath = "/api/v1/persistentvolumes"
)

// volumeClaim is what the provisioner reads of a claim.
type volumeClaim struct {
	Metadata struct {
		Namespace, Name, UID string
		Annotations          map[string]string
	}
	Spec struct {
		VolumeName, VolumeMode, StorageClassName string

		AccessModes []string
		Resources   struct{ Requests map[string]string }
	}
	Status struct{ Capacity map[string]string }
}

// grows tells whether a claim with a volume of ours asks for another size than it has. A directory has
// any size, so it is only written down.
func (c volumeClaim) grows() bool {
	has := c.Status.Capacity["storage"]
	return c.Spec.VolumeName == "pvc-"+c.Metadata.UID && c.Metadata.Annotations["volume.kubernetes.io/storage-provisioner"] == volumesProvisioner &&
		has != "" && has != c.Spec.Resources.Requests["storage"]
}

// waits tells whether a claim waits for us, and for which node.
func (c volumeClaim) waits() (node string, waits bool) {
	node = c.Metadata.Annotations["volume.kubernetes.io/selected-node"]
	return node, node != "" && c.Spec.VolumeName == "" && c.Metadata.Annotations["volume.kubernetes.io/storage-provisioner"] == volumesProvisioner
}

// volumeOf is the volume for a claim on a node.
func volumeOf(c volumeClaim, node string) (path, body string) {
	name := "pvc-" + c.Metadata.UID
	o := map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"metadata": map[string]any{"name": name, "annotations": map[string]string{"pv.kubernetes.io/provisioned-by": volumesProvisioner}},
		"spec": map[string]any{
			"capacity": c.Spec.Resources.Requests, "accessModes": c.Spec.AccessModes, "volumeMode": c.Spec.VolumeMode,
			"storageClassName": c.Spec.StorageClassName, "persistentVolumeReclaimPolicy": "Delete",
			"hostPath": map[string]string{"path": volumesDir + "/" + name, "type": "DirectoryOrCreate"},
			"claimRef": map[string]string{
				"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": c.Metadata.Namespace, "name": c.Metadata.Name, "uid": c.Metadata.UID,
			},
			"nodeAffinity": map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
				map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}},
			}}}}},
		},
	}
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings only
	}
	return volumesPath + "/" + name, string(b)
}

// volume is what the provisioner reads of one.
type volume struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec   struct{ PersistentVolumeReclaimPolicy string }
	Status struct{ Phase string }
}

// done tells whether nobody wants a volume of ours any more.
func (v volume) done() bool {
	return v.Metadata.Annotations["pv.kubernetes.io/provisioned-by"] == volumesProvisioner &&
		v.Status.Phase == "Released" && v.Spec.PersistentVolumeReclaimPolicy == "Delete"
}

// provisionVolumes runs for ever. dir holds the directories of the cluster's nodes.
func provisionVolumes(ctx context.Context, api client, dir string) {
	said := ""
	for {
		versions, err := serveVolumes(ctx, api, dir)
		if err != nil && err.Error() != said {
			log.Printf("volumes: %v", err)
			said = err.Error()
		}
		if err != nil {
			time.Sleep(time.Second) // the API server has a difficulty
			continue
		}
		said = ""
		awaitVolumes(ctx, api, versions)
	}
}

// serveVolumes makes the volumes claims wait for and removes those nobody wants. It returns the
// versions of the lists it has read, by path.
func serveVolumes(ctx context.Context, api client, dir string) (map[string]string, error) {
	var claims struct {
		Metadata struct{ ResourceVersion string }
		Items    []volumeClaim
	}
	var volumes struct {
		Metadata struct{ ResourceVersion string }
		Items    []volume
	}
	if err := errors.Join(api.get(ctx, claimsPath, &claims), api.get(ctx, volumesPath, &volumes)); err != nil {
		return nil, err
	}
	for _, c := range claims.Items {
		if node, waits := c.waits(); waits {
			path, body := volumeOf(c, node)
			if err := api.apply(ctx, path, body); err != nil {
				return nil, err
			}
		}
		if c.grows() {
			if err := resize(ctx, api, c); err != nil {
				return nil, err
			}
		}
	}
	for _, v := range volumes.Items {
		if !v.done() {
			continue
		}
		places, err := filepath.Glob(filepath.Join(dir, "*", strings.TrimPrefix(volumesDir, "/var/"), v.Metadata.Name))
		for _, place := range places {
			err = errors.Join(err, os.RemoveAll(place))
		}
		if err != nil {
			return nil, err
		}
		if _, err := api.do(ctx, http.MethodDelete, volumesPath+"/"+v.Metadata.Name, "", nil); err != nil {
			return nil, err
		}
	}
	return map[string]string{claimsPath: claims.Metadata.ResourceVersion, volumesPath: volumes.Metadata.ResourceVersion}, nil
}

// resize writes down that a claim has what it asks for.
func resize(ctx context.Context, api client, c volumeClaim) error {
	const merge = "application/merge-patch+json"
	capacity := fmt.Sprintf(`{"capacity": {"storage": %q}}`, c.Spec.Resources.Requests["storage"])
	if _, err := api.do(ctx, http.MethodPatch, volumesPath+"/"+c.Spec.VolumeName, merge, []byte(`{"spec": `+capacity+`}`)); err != nil {
		return err
	}
	claim := "/api/v1/namespaces/" + c.Metadata.Namespace + "/persistentvolumeclaims/" + c.Metadata.Name + "/status"
	_, err := api.do(ctx, http.MethodPatch, claim, merge, []byte(`{"status": `+capacity+`}`))
	return err
}

// awaitVolumes returns when a claim or a volume changed, or after some seconds.
func awaitVolumes(ctx context.Context, api client, versions map[string]string) {
	ctx, cancel := context.WithTimeout(ctx, 9*time.Second)
	defer cancel()
	changed := make(chan error, len(versions))
	for path, version := range versions {
		go func() { changed <- api.firstEvent(ctx, fmt.Sprintf("%s?watch=1&resourceVersion=%s", path, version)) }()
	}
	if err := <-changed; err != nil && ctx.Err() == nil {
		time.Sleep(time.Second) // the API server has a difficulty
	}
}
