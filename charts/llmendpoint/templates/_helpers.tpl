{{/* Labels of every object; call with (dict "root" $ "component" "operator"). */}}
{{- define "llmendpoint.labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "llmendpoint.selector" . }}
{{- end }}

{{- define "llmendpoint.selector" -}}
app.kubernetes.io/name: llmendpoint-{{ .component }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An image reference; call with (dict "root" $ "image" .Values.operator.image). */}}
{{- define "llmendpoint.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- define "llmendpoint.imagePullSecrets" -}}
{{- range .Values.imagePullSecrets }}
- name: {{ . }}
{{- end }}
{{- end }}

{{/* The restricted Pod Security level, and a read-only root file system. */}}
{{- define "llmendpoint.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "llmendpoint.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Base URL of the gateway inside the cluster, as an endpoint's status shows it. */}}
{{- define "llmendpoint.gatewayUrl" -}}
{{- $port := int .Values.gateway.service.port -}}
http://llmendpoint-gateway.{{ .Release.Namespace }}.svc{{ if ne $port 80 }}:{{ $port }}{{ end }}/v1
{{- end }}

{{/* The address at which KEDA reaches the operator, and the name of the ClusterTriggerAuthentication. */}}
{{- define "llmendpoint.kedaAddress" -}}
llmendpoint-operator.{{ .Release.Namespace }}.svc
{{- end }}
{{- define "llmendpoint.kedaName" -}}
llmendpoint-operator.{{ .Release.Namespace }}
{{- end }}

{{/* Peers that may read metrics and state: Prometheus, and those of networkPolicies.from. */}}
{{- define "llmendpoint.scrapers" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ .Values.prometheus.namespace }}}
  podSelector:
    matchLabels: {app.kubernetes.io/name: prometheus}
{{- with .Values.networkPolicies.from }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Whether requests need a key: Off, Optional or Required. In YAML a bare Off is false. */}}
{{- define "llmendpoint.authentication" -}}
{{ .Values.gateway.authentication | default "Off" }}
{{- end }}
