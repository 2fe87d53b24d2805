{{/*
A job that Helm runs once, before it upgrades ("pre-upgrade"), before it deletes ("pre-delete") or for 'helm test'
("test"), with the rights of a role. Call with (dict "root" $ "hook" "pre-delete" "role" "cleanup" "args" (list …));
"rules" may hold further rules.
Nothing is rendered without a cluster: what applies that manifest would run the job at once, or never.
*/}}
{{- define "liqo.hook" -}}
{{- if lookup "v1" "Namespace" "" "default" }}
{{- $pod := .root.Values.uninstaller.pod | default dict }}
{{- $name := printf "liqo-%s" .hook }}
{{- $c := dict "root" .root "name" .hook "module" "uninstaller" "pod" $pod }}
{{- $early := dict "helm.sh/hook" .hook "helm.sh/hook-weight" "-5" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded,hook-failed" }}
{{- $late := merge (dict "helm.sh/hook-weight" "0") $early }}
{{- /* Flux's helm-controller panics when it is told to print logs: https://github.com/fluxcd/helm-controller/issues/1562 */}}
{{- if and .root.Values.hookLogs (not (.root.Capabilities.APIVersions.Has "helm.toolkit.fluxcd.io/v2")) }}
{{- $_ := set $late "helm.sh/hook-output-log-policy" "hook-succeeded,hook-failed" }}
{{- else }}
{{- /* A Job that failed stays until the next try, for its logs. */}}
{{- $_ := set $late "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
{{- end }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "liqo.meta" (merge (dict "annotations" $early) $c) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  {{- include "liqo.meta" (merge (dict "annotations" $early) $c) | nindent 2 }}
{{ include "liqo.rules" (dict "root" .root "role" .role) }}
{{- with .rules }}
{{- toYaml . | nindent 2 }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  {{- include "liqo.meta" (merge (dict "annotations" $early) $c) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ .root.Release.Namespace }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace }}
  {{- include "liqo.meta" (merge (dict "annotations" $late) $c) | nindent 2 }}
spec:
  backoffLimit: 1
  template:
    metadata:
      {{- include "liqo.podmeta" $c | nindent 6 }}
    spec:
      {{- include "liqo.podspec" $c | nindent 6 }}
      serviceAccountName: {{ $name }}
      restartPolicy: Never
      {{- include "liqo.placement" .root | nindent 6 }}
      containers:
        - name: {{ .role }}
          image: {{ include "liqo.image" (dict "root" .root "image" .root.Values.uninstaller.image) }}
          imagePullPolicy: {{ .root.Values.pullPolicy }}
          args: {{ include "liqo.args" .args | nindent 12 }}
          env:
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
          resources: {{ toYaml ($pod.resources | default dict) | nindent 12 }}
          securityContext: {{ include "liqo.unprivileged" .root | nindent 12 }}
{{- end }}
{{- end }}
