// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package patience says how long tests wait for a condition. It is for tests only.
package patience

import "time"

// Limit is the time after which a test gives up. It bounds a test that hangs, not a speed: a slow
// machine under load may need minutes for what takes a second elsewhere.
const Limit = 10 * time.Minute
