{{- define "drawbridge.chart" -}}
{{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "drawbridge.reference" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end }}
{{- end }}

{{- define "drawbridge.image" -}}
{{ include "drawbridge.reference" (dict "image" .Values.image "version" .Chart.AppVersion) }}
{{- end }}

{{- define "drawbridge.schedulerImage" -}}
{{ include "drawbridge.reference" (dict "image" .Values.bridge.image "version" .Chart.AppVersion) }}
{{- end }}

{{- /* The gates of the bridge's scheduler: those that its sidecar allocates by, and its own. */}}
{{- define "drawbridge.schedulerGates" -}}
{{- $gates := list -}}
{{- range list (dig "sidecar" "featureGates" dict .Values.settings) .Values.bridge.featureGates -}}
{{- range $name, $isOn := . -}}
{{- $gates = append $gates (printf "%s=%t" $name $isOn) -}}
{{- end -}}
{{- end -}}
{{- join "," $gates -}}
{{- end }}

{{- /* The settings with the mode, which is a value of its own. */}}
{{- define "drawbridge.settings" -}}
{{- $translation := merge (dict "mode" .Values.mode) (.Values.settings.translation | default dict) -}}
{{- toYaml (merge (dict "translation" $translation) .Values.settings) }}
{{- end }}

{{- /* The requirement on the labels of a namespace whose pods the mode translates. */}}
{{- define "drawbridge.translatedNamespaces" -}}
- key: drawbridge.internal/translate
{{- if eq .Values.mode "OptIn" }}
  operator: In
  values:
  - "true"
  - "selected"
{{- else }}
  operator: NotIn
  values:
  - "false"
{{- end }}
{{- end }}

{{- define "drawbridge.labels" -}}
app.kubernetes.io/name: drawbridge
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: drawbridge
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ include "drawbridge.chart" . | quote }}
{{- end }}
