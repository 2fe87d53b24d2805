// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// TestPage: Prometheus' own parser reads the page, whatever the values of labels are.
func TestPage(t *testing.T) {
	t.Parallel()
	var p Page
	p.Family("bytes_total", "counter", "Bytes.")
	p.Sample("bytes_total", Labels("peer", "milan", "path", `C:\"`), 1<<40)
	p.Sample("bytes_total", Labels("peer", "\x1b[31m\u202e\xff\n", "path", ""), 12345678)
	p.Family("empty", "gauge", "No sample.")
	p.Family("trip_us", "histogram", "Round trips.")
	p.Sample("trip_us_bucket", Labels("le", "+Inf"), 4)
	p.Sample("trip_us_sum", "", 1000300)
	p.Sample("trip_us_count", "", 4)
	p.Family("share", "gauge", "Extremes.")
	p.Sample("share", "", math.Inf(1))
	p.SampleAt("share", Labels("of", "all"), 0.00001, time.UnixMilli(1_800_000_000_123))
	want := `# HELP bytes_total Bytes.
# TYPE bytes_total counter
bytes_total{peer="milan",path="C:\\\""} 1.099511627776e+12
bytes_total{peer="\\x1b[31m\\u202e\\xff\\n",path=""} 1.2345678e+07
# HELP empty No sample.
# TYPE empty gauge
# HELP trip_us Round trips.
# TYPE trip_us histogram
trip_us_bucket{le="+Inf"} 4
trip_us_sum 1.0003e+06
trip_us_count 4
# HELP share Extremes.
# TYPE share gauge
share +Inf
share{of="all"} 1e-05 1800000000123
`
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
	if _, err := promlint.New(strings.NewReader(p.String())).Lint(); err != nil {
		t.Error(err)
	}
}
