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

// reportDropped makes a plan report that the pod lacks fields of the ShadowPod. The ShadowPod is planned
// again after a while, because no event tells that the API server knows them now.
func (in ShadowPodInput) reportDropped(p *desired.Plan) {
	if len(in.Dropped) == 0 {
		return
	}
	p.Degraded = desired.Wait(api.ReasonFieldsDropped, "the API server does not know %s; upgrade Kubernetes, or make "+
		"the pod without it", strings.Join(in.Dropped, ", ")).Verdict
	p.RequeueAfter = cmp.Or(p.RequeueAfter, Heartbeat)
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
