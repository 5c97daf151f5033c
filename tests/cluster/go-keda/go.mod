// KEDA's programs, for the extended test alone. Not in ../go: KEDA asks for a thousand modules, and for other versions of
// those that Kubernetes is built from.
module llmendpoint.io/keda

go 1.26.0

require github.com/kedacore/keda/v2 v2.21.0

// A replace holds in the main module alone, so KEDA's own has to be repeated.
replace github.com/nexus-rpc/nexus-proto-annotations v0.1.0 => github.com/nexus-rpc/nexus-proto-annotations v0.1.1-0.20260629224316-835bd8d49cb4
