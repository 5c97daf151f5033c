{{/* What the operator does with the objects of the namespaces that it watches. */}}
{{- define "llmendpoint.operatorRules" -}}
- apiGroups: [llmendpoint.io]
  resources: [llmendpoints]
  verbs: [list, watch]
- apiGroups: [llmendpoint.io]
  resources: [llmendpoints/status]
  # patch: for the previous operator, which leads until the new one takes over during an upgrade. To be removed in the
  # next version.
  verbs: [update, patch]
# Children carry an owner reference with blockOwnerDeletion, which the OwnerReferencesPermissionEnforcement admission
# plugin allows only to those who may set the owner's finalizers.
- apiGroups: [llmendpoint.io]
  resources: [llmendpoints/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments, controllerrevisions]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch, delete]
# Jobs that ask what a model's source is, download it to a cache, read its size there, and delete what is not used any
# more.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [list, watch, create, patch]
# One of both for an endpoint whose autoscaling.provider is hpa or keda. They write the endpoint's /scale.
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list, watch, create, patch, delete]
# patch: the annotation that says which pod goes first when replicas go down.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
# get and patch: a decision that is taken again counts up the Event that is there. list: what autoscalers and the
# attach controller say of an engine pod that waits.
- apiGroups: [""]
  resources: [events]
  verbs: [create, get, list, patch]
{{- end }}

{{/* The gateway only reads, and has the operator's tokens reviewed (below). */}}
{{- define "llmendpoint.gatewayRules" -}}
- apiGroups: [llmendpoint.io]
  resources: [llmendpoints]
  verbs: [list, watch]
{{- if ne (include "llmendpoint.authentication" .) "Off" }}
# Keys hold hashes: the gateway reads no Secret.
- apiGroups: [llmendpoint.io]
  resources: [llmkeys]
  verbs: [list, watch]
{{- end }}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- end }}

{{/* What the gateway needs of the whole cluster: tokens have no namespace. */}}
{{- define "llmendpoint.gatewayClusterRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- end }}

{{/* With the release's namespace in it: cluster-wide roles of several releases must not share a name. */}}
{{- define "llmendpoint.roleName" -}}
llmendpoint-{{ .component }}.{{ .root.Release.Namespace }}
{{- end }}
