// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/liqo-go/liqo/internal/ctl"
)

// queue holds the keys (namespace and name at home) of one kind that are to be looked at.
type queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// Back-off of a key that fails, doubled each time. The first is short because conflicts are settled
// by the next event. Refused objects are tried in turn besides: see ctl.Refused.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// newQueue makes a queue that is fair between namespaces and has no rate limit but back-off.
func newQueue() queue {
	return ctl.FairQueue("",
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		func(key types.NamespacedName) string { return key.Namespace })
}
