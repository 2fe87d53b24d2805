// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/liqo-go/liqo/internal/ctl"
)

// queue holds the keys (home namespace and name) of one kind that are to be reconciled.
type queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// firstRetry and lastRetry bound the back-off of a failing key, which doubles. The first is short
// because the next event settles a conflict. Refused objects are also retried in turn: see
// ctl.Refused.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// newQueue returns a queue that is fair between namespaces, and delays only keys that fail.
func newQueue() queue {
	return ctl.FairQueue("",
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		func(key types.NamespacedName) string { return key.Namespace })
}
