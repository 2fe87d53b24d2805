// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
)

// Recorder returns the manager's recorder for events of the source. It escapes and shortens notes,
// because peers write parts of them and the API server refuses an event with a longer note.
func Recorder(mgr manager.Manager, source string) events.EventRecorder {
	return recorder{mgr.GetEventRecorder(source)}
}

type recorder struct{ events.EventRecorder }

func (r recorder) Eventf(regarding, related runtime.Object, level, reason, action, note string, args ...any) {
	r.EventRecorder.Eventf(regarding, related, level, reason, action, "%s", api.Printable(fmt.Sprintf(note, args...)))
}
