// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// mostLeftOut is the number of labels and annotations that a message names.
const mostLeftOut = 16

// reportMissing makes a plan report what the pod does not get of its ShadowPod: fields that the API server does not
// know, and labels and annotations that consumers may not set. The ShadowPod is planned again after a while,
// because no event tells that the API server knows the fields now.
func (in ShadowPodInput) reportMissing(p *desired.Plan) {
	reason, missing := api.ReasonMetadataLeftOut, []string{}
	if len(in.Dropped) > 0 {
		p.RequeueAfter = cmp.Or(p.RequeueAfter, Heartbeat)
		reason, missing = api.ReasonFieldsDropped, append(missing, fmt.Sprintf("the API server does not know %s; "+
			"upgrade Kubernetes, or make the pod without it", strings.Join(in.Dropped, ", ")))
	}
	if out := in.Guests.foreign(in.Root, in.Pod); len(out) > 0 {
		missing = append(missing, fmt.Sprintf("pods of consumers do not get %s; add what they begin with to the value "+
			"offloading.guestPods.annotations, or have the consumer leave them out",
			strings.Join(out[:min(len(out), mostLeftOut)], ", ")))
	}
	if len(missing) > 0 {
		p.Degraded = desired.Wait(reason, "%s", strings.Join(missing, "; ")).Verdict
	}
}

// refuses returns why the ShadowPod gets no pod, or empty: by the administrator's choice, or because the
// API server does not know the source of a volume or of a projection, and would make an emptyDir of it.
func (in ShadowPodInput) refuses() string {
	for _, path := range in.Dropped {
		if api.IsVolumeSource(path) {
			return fmt.Sprintf("the API server does not know %s, and would make an emptyDir of the volume; upgrade "+
				"Kubernetes, or make the pod without it", path)
		}
	}
	return in.Guests.refuses(in.Root)
}
