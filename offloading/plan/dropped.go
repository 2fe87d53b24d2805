// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// dropped returns the verdict that the pod lacks fields of the ShadowPod; the zero value if it lacks none.
func (in ShadowPodInput) dropped() desired.Verdict {
	if len(in.Dropped) == 0 {
		return desired.Verdict{}
	}
	return desired.Wait(api.ReasonFieldsDropped, "the API server does not know %s; upgrade Kubernetes, or make the "+
		"pod without it", strings.Join(in.Dropped, ", ")).Verdict
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
