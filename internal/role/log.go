// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package role

import (
	"errors"
	"fmt"
	"io"
	"reflect"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/liqo-go/liqo/api"
)

// Log makes the process log to w, in the format of Kubernetes, and returns its logger. It is also
// the logger of the libraries: of client-go, which uses klog, and of net/http, which uses log.
func Log(w io.Writer) klog.Logger {
	text := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(w)))
	logger := klog.New(printableSink{text.WithCallDepth(1).GetSink()}) // 1 = the sink's own frame
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	klog.CopyStandardLogTo("INFO")
	return logger
}

// printableSink escapes and shortens text that peers may have written, such as error texts of their
// API servers. The message of a record is our own, and quoted.
type printableSink struct{ klog.LogSink }

// Init does nothing: the sink below was initialized with its own logger.
func (s printableSink) Init(klog.RuntimeInfo) {}

// Enabled reports whether the flag --v enables the level.
func (s printableSink) Enabled(level int) bool { return klog.V(klog.Level(level)).Enabled() }

func (s printableSink) Info(level int, msg string, pairs ...any) {
	s.LogSink.Info(level, api.Printable(msg), printables(pairs)...)
}

func (s printableSink) Error(err error, msg string, pairs ...any) {
	if err != nil {
		err = errors.New(api.Printable(fmt.Sprint(err))) // Sprint survives a nil pointer inside err
	}
	s.LogSink.Error(err, api.Printable(msg), printables(pairs)...)
}

func (s printableSink) WithValues(pairs ...any) klog.LogSink {
	return printableSink{s.LogSink.WithValues(printables(pairs)...)}
}

func (s printableSink) WithName(name string) klog.LogSink {
	return printableSink{s.LogSink.WithName(name)}
}

func (s printableSink) WithCallDepth(depth int) klog.LogSink {
	return printableSink{s.LogSink.(interface{ WithCallDepth(int) klog.LogSink }).WithCallDepth(depth)}
}

// printables returns keys and values of a record, with values as text unless they are numbers.
func printables(pairs []any) []any {
	out := make([]any, len(pairs))
	for i, v := range pairs {
		isNumber := reflect.ValueOf(v).Kind() < reflect.Array   // so are bool and nil
		if i%2 == 0 || isNumber || pairs[i-1] == "stacktrace" { // a key, or many lines of the runtime's
			out[i] = v
			continue
		}
		out[i] = api.Printable(fmt.Sprint(v))
	}
	return out
}
