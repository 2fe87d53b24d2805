{{/* The default objects as YAML texts in the map "files", whose keys are <kind>.<name>.yaml. */}}
{{- define "liqo.defaults" -}}
{{- $texts := printf "%s%s%s" (include "liqo.networks" .) (include "liqo.gatewayTemplates" .) (include "liqo.virtualKubelet" .) -}}
{{- $files := dict -}}
{{- range splitList "\n---\n" $texts -}}
{{- $default := fromYaml . -}}
{{- with $default.Error }}{{ fail . }}{{ end -}}
{{- if $default -}}
{{- $_ := set $default.metadata.labels "app.kubernetes.io/managed-by" "liqo-controller-manager" -}}
{{- $_ := set $files (printf "%s.%s.yaml" (lower $default.kind) $default.metadata.name) (toYaml $default) -}}
{{- end -}}
{{- end -}}
{{ dict "files" $files | toYaml }}
{{- end }}
