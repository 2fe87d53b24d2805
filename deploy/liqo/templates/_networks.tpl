{{/*
The ranges of this cluster. Ranges the cluster already uses are taken as they are, whatever pools
say, and may overlap with each other (not-remapped, shared); the ranges Liqo adds are moved when
they clash. The first pod range is always Network pod-cidr, the name users ask for; adding a range
behind it leaves it alone.
*/}}
{{- define "liqo.networks" }}
{{- $podCIDRs := (include "liqo.podCIDRs" . | fromJson).list }}
{{- range $i, $cidr := $podCIDRs }}
{{- $name := ternary "pod-cidr" (printf "pod-cidr-%s" (regexReplaceAll "[^0-9a-f]+" $cidr "-")) (eq $i 0) }}
{{- include "liqo.network" (dict "root" $ "name" $name "type" "pod-cidr" "cidr" $cidr "taken" true) }}
{{- end }}
{{- include "liqo.network" (dict "root" $ "name" "service-cidr" "type" "service-cidr" "cidr" (required "ipam.serviceCIDR is required: the address range of this cluster's Services" .Values.ipam.serviceCIDR) "taken" true) }}
{{- include "liqo.network" (dict "root" $ "name" "external-cidr" "type" "external-cidr" "cidr" (.Values.ipam.externalCIDR | default "10.70.0.0/16") "preAllocated" 1) }}
{{- include "liqo.network" (dict "root" $ "name" "internal-cidr" "type" "internal-cidr" "cidr" (.Values.ipam.internalCIDR | default "10.80.0.0/16")) }}
{{- range $cidr := .Values.ipam.reservedSubnets }}
{{- include "liqo.network" (dict "root" $ "name" (printf "reserved-%s" (regexReplaceAll "[^0-9a-f]+" $cidr "-")) "type" "reserved" "cidr" $cidr "taken" true) }}
{{- end }}
{{- end }}

{{/* One range; its arguments are given above. */}}
{{- define "liqo.network" }}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  {{- $labels := dict "ipam.liqo.io/network-type" .type }}
  {{- if .taken }}
  {{- $labels = merge $labels (dict "ipam.liqo.io/network-not-remapped" "true" "ipam.liqo.io/network-shared" "true") }}
  {{- end }}
  {{- include "liqo.meta" (dict "root" .root "labels" $labels "annotations" (dict "liqo.io/preinstalled" "true")) | nindent 2 }}
spec:
  cidr: {{ .cidr | quote }}
  {{- with .preAllocated }}
  preAllocated: {{ . }}
  {{- end }}
{{- end }}
