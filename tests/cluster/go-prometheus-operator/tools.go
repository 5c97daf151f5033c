//go:build tools

// No program is built: this names the module so that go.mod keeps it.
package prometheusoperator

import _ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
