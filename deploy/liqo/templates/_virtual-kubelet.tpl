{{/*
What virtual kubelets are made from, unless their virtual nodes reference another object. They follow it: a change
reaches those that run already.
*/}}
{{- define "liqo.virtualKubelet" }}
{{- if .Values.offloading.enabled }}
{{- with .Values.offloading }}
---
apiVersion: offloading.liqo.io/v1beta1
kind: VkOptionsTemplate
metadata:
  name: virtual-kubelet-default
  namespace: {{ $.Release.Namespace }}
  {{- include "liqo.meta" (dict "root" $ "name" "virtual-kubelet" "module" "offloading") | nindent 2 }}
spec:
  containerImage: {{ include "liqo.image" (dict "root" $ "image" $.Values.virtualKubelet.image) }}
  pullPolicy: {{ $.Values.pullPolicy }}
  {{- with $.Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  createNode: {{ .createNode }}
  disableNetworkCheck: {{ or .disableNetworkCheck (not $.Values.networking.enabled) }}
  replicas: {{ $.Values.virtualKubelet.replicas }}
  metricsEnabled: {{ or $.Values.metrics.enabled ($.Values.virtualKubelet.metrics).enabled false }}
  metricsAddress: {{ printf ":%v" (($.Values.virtualKubelet.metrics).port | default 5872) | quote }}
  {{- with .reflection.skip.labels }}
  labelsNotReflected: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .reflection.skip.annotations }}
  annotationsNotReflected: {{ toYaml . | nindent 4 }}
  {{- end }}
  reflectorsConfig:
    {{- range $name := list "configmap" "endpointslice" "event" "ingress" "persistentvolumeclaim" "pod" "secret" "service" "serviceaccount" }}
    {{- $r := get $.Values.offloading.reflection $name }}
    {{ $name }}: {workers: {{ $r.workers }}{{ with $r.type }}, type: {{ . }}{{ end }}}
    {{- end }}
    {{- with .reflection.custom }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) (($.Values.virtualKubelet.extra).annotations | default dict) ($.Values.common.globalAnnotations | default dict) }}
  extraAnnotations: {{ include "liqo.strings" . | nindent 4 }}
  {{- end }}
  {{- with merge (dict) (($.Values.virtualKubelet.extra).labels | default dict) (omit (include "liqo.globalLabels" $ | fromYaml) "liqo.io/managed") }}
  extraLabels: {{ include "liqo.strings" . | nindent 4 }}
  {{- end }}
  {{- with $.Values.virtualKubelet.extra }}
  {{- with .args }}
  extraArgs: {{ include "liqo.args" . | nindent 4 }}
  {{- end }}
  {{- with .resources }}
  resources: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with .tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with $.Values.virtualKubelet.virtualNode.extra }}
  {{- with .annotations }}
  nodeExtraAnnotations: {{ include "liqo.strings" . | nindent 4 }}
  {{- end }}
  {{- with .labels }}
  nodeExtraLabels: {{ include "liqo.strings" . | nindent 4 }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
