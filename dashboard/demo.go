// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	_ "embed"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/view"
)

//go:embed demo.yaml
var demo string

// Demo returns a recorded cluster that has a peer of each kind: a provider that works, one whose tunnel is down, a
// consumer, and one that is both.
func Demo() (*view.Snapshot, error) {
	out, err := Recorded("rome", demo)
	if err == nil {
		out.Traffic = map[string]view.Traffic{"milan": {Received: 4_210_000, Sent: 312_000},
			"turin": {Received: 84, Sent: 96}}
	}
	return out, err
}

// Recorded returns a snapshot of objects in YAML, which are separated by lines of "---". It fails on objects that
// cannot be decoded and on kinds that no page shows.
func Recorded(clusterID, manifests string) (*view.Snapshot, error) {
	decoder := serializer.NewCodecFactory(scheme.New()).UniversalDeserializer()
	out := &view.Snapshot{ClusterID: clusterID, Namespace: api.Namespace, Command: "liqoctl",
		Hidden: map[string]string{}}
	for i, text := range strings.Split(manifests, "\n---\n") {
		decoded, _, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decode recorded object %d: %w", i+1, err)
		}
		if object, ok := decoded.(view.Object); !ok || !out.Add(object) {
			return nil, fmt.Errorf("recorded object %d is a %T, which no page shows", i+1, decoded)
		}
	}
	return out, nil
}
