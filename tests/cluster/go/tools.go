//go:build tools

// Programs that are built as they are: named here so that go.mod keeps what they need.
package testbed

import (
	_ "helm.sh/helm/v4/cmd/helm"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
