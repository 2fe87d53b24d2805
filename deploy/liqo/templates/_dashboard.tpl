{{/*
Copyright The Liqo Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/*
A dashboard of Grafana as JSON, from a file of dashboards/. Call with (dict "name" … "board" …). A panel has a title,
queries by the name of their series and, where they differ from the usual, type, unit, width (24 fill the line), text,
and alarm: the value from which it is red. Queries use $peer, the IDs of the chosen peers.
*/}}
{{- define "liqo.dashboard" -}}
{{- $source := dict "type" "prometheus" "uid" "${datasource}" -}}
{{- $panels := list -}}
{{- $x := 0 -}}
{{- $y := 0 -}}
{{- $height := 0 -}}
{{- range $i, $p := .board.panels }}
  {{- $type := $p.type | default "timeseries" -}}
  {{- $width := int ($p.width | default (ternary 4 12 (eq $type "stat"))) -}}
  {{- if gt (add $x $width) 24 }}{{ $y = add $y $height }}{{ $x = 0 }}{{ end -}}
  {{- $height = ternary 4 8 (eq $type "stat") -}}
  {{- $targets := list -}}
  {{- range $legend, $query := $p.queries }}
    {{- $letter := printf "%c" (add 65 (len $targets)) -}}
    {{- $target := dict "refId" $letter "datasource" $source "expr" $query "legendFormat" $legend -}}
    {{- if eq $type "table" }}{{ $target = merge $target (dict "instant" true "format" "table") }}{{ end -}}
    {{- $targets = append $targets $target -}}
  {{- end }}
  {{- $steps := list (dict "color" "green" "value" nil) -}}
  {{- if $p.alarm }}{{ $steps = append $steps (dict "color" "red" "value" $p.alarm) }}{{ end -}}
  {{- if eq $type "state-timeline" }}{{ $steps = list (dict "color" "red" "value" nil) (dict "color" "green" "value" 1) }}{{ end -}}
  {{- $defaults := dict "unit" ($p.unit | default "short") "min" (ternary nil 0 (eq $type "table"))
    "color" (dict "mode" (ternary "palette-classic" "thresholds" (eq $type "timeseries")))
    "thresholds" (dict "mode" "absolute" "steps" $steps) -}}
  {{- $panels = append $panels (dict "id" (add1 $i) "type" $type "title" $p.title "description" ($p.text | default "")
    "datasource" $source "targets" $targets "gridPos" (dict "x" $x "y" $y "w" $width "h" $height)
    "fieldConfig" (dict "defaults" $defaults "overrides" list) "options" (dict)) -}}
  {{- $x = add $x $width -}}
{{- end }}
{{- $variables := list
  (dict "name" "datasource" "type" "datasource" "query" "prometheus" "label" "Data source")
  (dict "name" "peer" "type" "query" "label" "Peer" "datasource" $source "refresh" 2 "sort" 1 "multi" true
    "query" "label_values(liqo_peer_info, cluster_id)" "includeAll" true "allValue" ".*"
    "current" (dict "text" "All" "value" "$__all")) -}}
{{- dict "uid" (printf "liqo-%s" .name) "title" (printf "Liqo / %s" .board.title) "tags" (list "liqo")
  "schemaVersion" 39 "annotations" (dict "list" list) "editable" true "refresh" "30s" "time" (dict "from" "now-3h" "to" "now")
  "links" (list (dict "type" "dashboards" "title" "Liqo" "tags" (list "liqo") "asDropdown" true "keepTime" true
    "includeVars" true "icon" "" "tooltip" "" "url" "" "targetBlank" false))
  "templating" (dict "list" $variables) "panels" $panels | toPrettyJson }}
{{- end }}
