//go:build tools

// Programs that are built as they are: named here so that go.mod keeps what they need.
package prometheus

import _ "github.com/prometheus/prometheus/cmd/promtool"
