{{/* A CEL expression: the expression `value` gives one of `allowed`. An item that ends with * allows every text with that
beginning. Call with (dict "value" "e.name" "allowed" .Values.policies.allowed.env). */}}
{{- define "llmendpoint.cel.isOneOf" -}}
{{- $tests := list }}
{{- range .allowed }}
{{- if hasSuffix "*" . }}
{{- $tests = append $tests (printf "%s.startsWith(%s)" $.value (trimSuffix "*" . | toJson)) }}
{{- else }}
{{- $tests = append $tests (printf "%s == %s" $.value (toJson .)) }}
{{- end }}
{{- end }}
{{- $tests | join " || " | default "false" }}
{{- end }}

{{/* The same list for people. */}}
{{- define "llmendpoint.cel.words" -}}
{{- . | join ", " | default "none" }}
{{- end }}

{{/* Base URLs of the hubs and stores that models are downloaded from. */}}
{{- define "llmendpoint.hubs" -}}
{{- concat (list (.Values.hub.endpoint | default "https://huggingface.co")) .Values.hub.allowed | uniq | toJson }}
{{- end }}

{{/* The service account whose writes bounds.yaml limits. */}}
{{- define "llmendpoint.operatorUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:llmendpoint-operator
{{- end }}
