{{/*
Copyright The Liqo Authors.
SPDX-License-Identifier: Apache-2.0
*/}}

{{/*
The image of a workload. Call with (dict "root" $ "image" .Values.x.image), of which name and version come before those
for all, or with $ alone. Names and releases of the original's images are ignored: they are not of this chart.
*/}}
{{- define "liqo.image" -}}
{{- $root := .root | default . -}}
{{- $image := .image | default dict -}}
{{- $name := $root.Values.image.name -}}
{{- if and $image.name (not (include "liqo.originalImage" (dict "root" $root "image" $image))) }}{{ $name = $image.name }}{{ end -}}
{{- $own := $root.Chart.AppVersion -}}
{{- $tag := $own -}}
{{- range list $root.Values.tag $image.version }}
{{- if and . (not (include "liqo.originalTag" (dict "root" $root "tag" .))) }}{{ $tag = include "liqo.text" . }}{{ end -}}
{{- end -}}
{{- if and $root.Values.image.digest (eq (trimPrefix "v" $tag) (trimPrefix "v" $own)) -}}
{{ $name }}@{{ $root.Values.image.digest }}
{{- else -}}
{{ $name }}:{{ $tag }}
{{- end -}}
{{- end }}

{{/*
Not empty for an image of the original, in its registry or in a mirror of it: by its name, or by its own version. Call
with (dict "root" $ "image" .Values.x.image).
*/}}
{{- define "liqo.originalImage" -}}
{{- if regexMatch "(^|/)liqotech/" (.image.name | default "") }}true
{{- else }}{{ include "liqo.originalTag" (dict "root" .root "tag" .image.version) }}{{ end -}}
{{- end }}

{{/* Not empty for a release of the original: this chart has none from 1.0 on as long as it is 0.x itself. Call with (dict "root" $ "tag" …). */}}
{{- define "liqo.originalTag" -}}
{{- if and (regexMatch "^v?1\\.[0-9]+\\.[0-9]+" (toString .tag)) (regexMatch "^v?0\\." .root.Chart.AppVersion) }}true{{ end -}}
{{- end }}

{{/* Labels of every object of the chart. */}}
{{- define "liqo.labels" -}}
{{- $own := dict
  "app.kubernetes.io/part-of" "liqo"
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/version" .Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) -}}
{{ include "liqo.strings" (merge $own (include "liqo.globalLabels" . | fromYaml)) }}
{{- end }}

{{/* Labels of users for all objects and pods, without those that selectors and rights follow. */}}
{{- define "liqo.globalLabels" -}}
{{ omit (.Values.common.globalLabels | default dict) "app.kubernetes.io/name" "app.kubernetes.io/instance"
  "app.kubernetes.io/component" "networking.liqo.io/active" | toYaml }}
{{- end }}

{{/* Labels that select the pods of a component. Call with (dict "root" $ "name" "proxy" "module" "networking"). */}}
{{- define "liqo.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}-{{ .name }}
{{- end }}

{{/* Labels of the objects of a component; arguments as above. */}}
{{- define "liqo.component" -}}
{{ include "liqo.selector" . }}
app.kubernetes.io/component: {{ .module }}
{{ include "liqo.labels" .root }}
{{- end }}

{{/*
The cluster ID: given, else the one installed, else a random one. It is decided once: later
includes of the same rendering read what the first one stored in the values.
*/}}
{{- define "liqo.clusterID" -}}
{{- $config := .Values.discovery.config -}}
{{- $installed := "" -}}
{{- with lookup "v1" "ConfigMap" .Release.Namespace "liqo-clusterid-configmap" -}}
{{- $installed = dig "data" "CLUSTER_ID" "" . -}}
{{- end -}}
{{- if and $installed $config.clusterID (ne $installed $config.clusterID) -}}
{{- fail (printf "the cluster ID is %q and cannot be changed to %q: peers know the cluster by it; uninstall first, or leave discovery.config.clusterID empty" $installed $config.clusterID) -}}
{{- end -}}
{{- $_ := set $config "clusterID" ($config.clusterID | default $installed | default uuidv4) -}}
{{ $config.clusterID }}
{{- end }}

{{/* Pod CIDRs as a JSON list in "list", also from the deprecated single value. */}}
{{- define "liqo.podCIDRs" -}}
{{- $cidrs := .Values.ipam.podCIDRs | default (list .Values.ipam.podCIDR | compact) -}}
{{- if not $cidrs -}}
{{- fail "ipam.podCIDRs is required: the address ranges of this cluster's pods" -}}
{{- end -}}
{{ dict "list" $cidrs | toJson }}
{{- end }}

{{/* A map as k=v,k=v in the order of its keys, for an argument: there $$ is $. */}}
{{- define "liqo.pairs" -}}
{{- $pairs := list -}}
{{- range $k, $v := include "liqo.strings" . | fromYaml }}{{ $pairs = append $pairs (printf "%s=%s" $k $v) }}{{ end -}}
{{ join "," $pairs | replace "$" "$$" }}
{{- end }}

{{/* "name" or "name;default" per class, from a list of {name, default}. */}}
{{- define "liqo.classes" -}}
{{- $classes := list -}}
{{- range . }}{{ $classes = append $classes (ternary (printf "%s;default" .name) .name (dig "default" false .)) }}{{ end -}}
{{ join "," $classes }}
{{- end }}

{{/* A value as text. Numbers of values files are floats, which toString writes with exponents. */}}
{{- define "liqo.text" -}}
{{ ternary (toJson .) (toString .) (kindIs "float64" .) }}
{{- end }}

{{/* A map whose values are text, whatever type users gave them: YAML reads 10 and true as others. */}}
{{- define "liqo.strings" -}}
{{- $strings := dict -}}
{{- range $k, $v := . }}
{{- if not (kindIs "invalid" $v) }}{{ $_ := set $strings $k (include "liqo.text" $v) }}{{ end }}
{{- end -}}
{{ toYaml $strings }}
{{- end }}

{{/*
Labels and annotations of an object, those for all objects included. Call with (dict "root" $ "labels" {…} "annotations" {…}),
of which the last two may be missing; with "name" and "module" as for liqo.selector it belongs to a component.
*/}}
{{- define "liqo.meta" -}}
{{- $component := hasKey . "name" -}}
{{- $labels := include (ternary "liqo.component" "liqo.labels" $component) (ternary . .root $component) | fromYaml -}}
labels: {{- include "liqo.strings" (merge (dict) (.labels | default dict) $labels) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) (.root.Values.common.globalAnnotations | default dict) }}
annotations: {{- include "liqo.strings" . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Rules of a process, generated from the markers beside its code. Call with (dict "root" $ "role" "controller"). */}}
{{- define "liqo.rules" -}}
{{- $role := .root.Files.Get (printf "files/rbac/%s.yaml" .role) | fromYaml -}}
rules: {{- $role.rules | default list | toYaml | nindent 2 }}
{{- end }}

{{/* Security context of a container that needs no right at all. */}}
{{- define "liqo.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/*
Pod template metadata. Call with (dict "root" $ "name" … "module" … "pod" .Values.x.pod); "podlabels" may hold further
labels. Users' labels do not replace those that selectors follow.
*/}}
{{- define "liqo.podmeta" -}}
{{- $labels := merge (dict) (.podlabels | default dict)
  (omit (.pod.labels | default dict) "app.kubernetes.io/name" "app.kubernetes.io/instance") -}}
{{ include "liqo.meta" (dict "root" .root "name" .name "module" .module "labels" $labels "annotations" .pod.annotations) }}
{{- end }}

{{/* Further arguments of a container, as list items. Call with (dict "root" $ "pod" .Values.x.pod). */}}
{{- define "liqo.extraargs" -}}
{{- with concat (.root.Values.common.extraArgs | default list) (.pod.extraArgs | default list) }}{{ include "liqo.args" . }}{{ end -}}
{{- end }}

{{/* Arguments as list items that are text. Call with the list. */}}
{{- define "liqo.args" -}}
{{- $args := list -}}
{{- range . }}{{ if not (kindIs "invalid" .) }}{{ $args = append $args (include "liqo.text" .) }}{{ end }}{{ end -}}
{{ toYaml $args }}
{{- end }}

{{/* Fields of a pod that all Deployments share; arguments as above. */}}
{{- define "liqo.podspec" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* Where Deployments run. */}}
{{- define "liqo.placement" -}}
{{- with .Values.common.nodeSelector }}
nodeSelector: {{ include "liqo.strings" . | nindent 2 }}
{{- end }}
{{- with .Values.common.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if .Values.common.affinity }}
  {{- toYaml .Values.common.affinity | nindent 2 }}
{{- else }}
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - {key: liqo.io/type, operator: NotIn, values: [virtual-node]}
{{- end }}
{{- end }}

{{/* Whether a virtual kubelet makes a request, in CEL. */}}
{{- define "liqo.byVirtualKubelet" -}}
request.userInfo.username.matches('^system:serviceaccount:[^:]+:vk-') &&
authorizer.group('offloading.liqo.io').resource('virtualnodes').check('watch').allowed()
{{- end }}

{{/* Which new pods tolerate the taint of virtual nodes because they tolerate all: match conditions. KeepHome in
offloading/plan decides the same. */}}
{{- define "liqo.toleratesAll" -}}
- name: tolerates-everything
  expression: >-
    object.spec.?tolerations.orValue([]).exists(t, t.?key.orValue('') == '' && t.?operator.orValue('') == 'Exists' &&
    t.?effect.orValue('NoExecute') in ['', 'NoExecute'])
- name: does-not-mean-virtual-nodes
  expression: >-
    object.spec.tolerations.all(t, t.?key.orValue('') != 'virtual-node.liqo.io/not-allowed') &&
    !('liqo.io/type' in object.spec.?nodeSelector.orValue({})) &&
    object.spec.?runtimeClassName.orValue('') != {{ .Values.offloading.runtimeClass.name | squote }}
- name: goes-where-the-scheduler-says
  expression: >-
    object.spec.?nodeName.orValue('') == '' &&
    !object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'DaemonSet' && o.?controller.orValue(false))
{{- end }}

{{/* Whether the API server has MutatingAdmissionPolicies, as from Kubernetes 1.36 on; empty if not, or not known. */}}
{{- define "liqo.mutatingPolicies" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}true{{ end }}
{{- end }}
