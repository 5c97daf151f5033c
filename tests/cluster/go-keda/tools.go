//go:build tools

// Programs that are built as they are: named here so that go.mod keeps what they need.
package keda

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
)
