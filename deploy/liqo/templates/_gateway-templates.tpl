{{/*
What a gateway is made from, unless it references another template. Text in backquotes is for the
controller, which fills it in for each gateway; the rest is decided at installation.
*/}}
{{- define "liqo.gatewayTemplates" }}
{{- if .Values.networking.enabled }}
{{- $t := .Values.networking.gatewayTemplates }}
{{- $pod := $t.pod | default dict }}
{{- $service := ($t.server).service | default dict }}
{{- $labels := dict
  "networking.liqo.io/gateway-name" "{{ .Name }}"
  "networking.liqo.io/gateway-namespace" "{{ .Namespace }}"
  "networking.liqo.io/component" "gateway" }}
{{- $podlabels := merge (dict "liqo.io/managed" "true" "app.kubernetes.io/name" "gateway") $labels }}
{{- /* Ours win: selectors and rights follow them. */ -}}
{{- $_ := merge $podlabels (omit ($pod.labels | default dict) "networking.liqo.io/active") (include "liqo.globalLabels" $ | fromYaml) }}
{{- if eq (int $t.replicas) 1 }}
{{- $_ := set $podlabels "networking.liqo.io/active" "true" }}
{{- end }}
{{- $podannotations := dict }}
{{- range $k, $v := include "liqo.strings" (.Values.common.globalAnnotations | default dict) | fromYaml }}
{{- $_ := set $podannotations $k (replace "{{" "{{`{{`}}" $v) }}
{{- end }}
{{- $podannotations = merge (dict) ($pod.annotations | default dict) $podannotations }}
{{- $ports := `{{ range $i, $p := .Spec.Endpoint.Ports }}{{ if $i }},{{ end }}{{ $p }}{{ else }}{{ .Spec.Endpoint.Port }}{{ end }}` }}
{{- range $mode := list "server" "client" }}
---
apiVersion: networking.liqo.io/v1beta1
kind: WgGateway{{ title $mode }}Template
metadata:
  name: wireguard-{{ $mode }}
  namespace: {{ $.Release.Namespace }}
  {{- include "liqo.meta" (dict "root" $) | nindent 2 }}
spec:
  objectKind:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGateway{{ title $mode }}
  template:
    spec:
      {{- if $.Values.metrics.enabled }}
      metrics:
        enabled: true
        service:
          metadata:
            labels: {{ include "liqo.strings" (merge (dict "app.kubernetes.io/name" "gateway-metrics") $labels (dig "service" "labels" dict ($t.metrics | default dict))) | nindent 14 }}
            {{- with dig "service" "annotations" dict ($t.metrics | default dict) }}
            annotations: {{ include "liqo.strings" . | nindent 14 }}
            {{- end }}
          spec:
            selector: {{ toYaml $labels | nindent 14 }}
            ports:
              - {name: gw-metrics, port: 8082, targetPort: gw-metrics, protocol: TCP}
      {{- end }}
      "?secretRef":
        name: {{ `{{ .SecretName }}` | quote }}
      {{- if eq $mode "server" }}
      service:
        metadata:
          labels: {{ toYaml $labels | nindent 12 }}
          {{- with $service.annotations }}
          annotations: {{ include "liqo.strings" . | nindent 12 }}
          {{- end }}
        spec:
          type: {{ `{{ .Spec.Endpoint.ServiceType }}` | quote }}
          selector: {{ toYaml (merge (dict "networking.liqo.io/active" "true") $labels) | nindent 12 }}
          {{- if not (has (toString $service.allocateLoadBalancerNodePorts) (list "" "<nil>")) }}
          allocateLoadBalancerNodePorts: {{ $service.allocateLoadBalancerNodePorts }}
          {{- end }}
          "?loadBalancerIP": {{ `{{ .Spec.Endpoint.LoadBalancerIP }}` | quote }}
          # One entry; with several ports the controller repeats it for each.
          ports:
            - name: wireguard
              protocol: UDP
              port: {{ `{{ .Spec.Endpoint.Port }}` | quote }}
              targetPort: {{ `{{ .Spec.Endpoint.Port }}` | quote }}
              "?nodePort": {{ `{{ .Spec.Endpoint.NodePort }}` | quote }}
      {{- end }}
      deployment:
        metadata:
          labels: {{ toYaml $labels | nindent 12 }}
        spec:
          replicas: {{ $t.replicas }}
          # A successor is ready before a gateway goes.
          strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
          selector:
            matchLabels: {{ toYaml $labels | nindent 14 }}
          template:
            metadata:
              {{- with $podannotations }}
              annotations: {{ include "liqo.strings" . | nindent 16 }}
              {{- end }}
              labels: {{ include "liqo.strings" $podlabels | nindent 16 }}
            spec:
              serviceAccountName: {{ `{{ .Name }}` | quote }}
              # A gateway goes on until its successor has the tunnel, 25 s at most.
              terminationGracePeriodSeconds: 30
              {{- with $.Values.imagePullSecrets }}
              imagePullSecrets: {{ toYaml . | nindent 16 }}
              {{- end }}
              {{- with $pod.priorityClassName }}
              priorityClassName: {{ . }}
              {{- end }}
              {{- with $pod.nodeSelector }}
              nodeSelector: {{ include "liqo.strings" . | nindent 16 }}
              {{- end }}
              {{- with $pod.tolerations }}
              tolerations: {{ toYaml . | nindent 16 }}
              {{- end }}
              affinity:
                {{- if $pod.affinity }}
                {{- toYaml $pod.affinity | nindent 16 }}
                {{- else }}
                nodeAffinity:
                  requiredDuringSchedulingIgnoredDuringExecution:
                    nodeSelectorTerms:
                      - matchExpressions:
                          - {key: liqo.io/type, operator: NotIn, values: [virtual-node]}
                {{- end }}
              {{- if gt (int $t.replicas) 1 }}
              topologySpreadConstraints:
                - maxSkew: 1
                  topologyKey: kubernetes.io/hostname
                  whenUnsatisfiable: DoNotSchedule
                  matchLabelKeys: [pod-template-hash]
                  labelSelector:
                    matchLabels: {{ toYaml $labels | nindent 22 }}
              {{- end }}
              containers:
                - name: gateway
                  image: {{ include "liqo.image" (dict "root" $ "image" $t.container.gateway.image) }}
                  imagePullPolicy: {{ $.Values.pullPolicy }}
                  args:
                    - gateway
                    - --mode={{ $mode }}
                    - {{ `--name={{ .Name }}` | quote }}
                    - {{ `--namespace={{ .Namespace }}` | quote }}
                    - {{ `--remote-cluster-id={{ .ClusterID }}` | quote }}
                    - {{ `--gateway-uid={{ .GatewayUID }}` | quote }}
                    - --node-name=$(NODE_NAME)
                    - --pod-name=$(POD_NAME)
                    - --leader-election={{ gt (int $t.replicas) 1 }}
                    - {{ `--mtu={{ .Spec.MTU }}` | quote }}
                    {{- if eq $mode "server" }}
                    - {{ printf "--listen-ports=%s" $ports | quote }}
                    {{- else }}
                    - {{ `--endpoint-address={{ range $i, $a := .Spec.Endpoint.Addresses }}{{ if $i }},{{ end }}{{ $a }}{{ end }}` | quote }}
                    - {{ printf "--endpoint-ports=%s" $ports | quote }}
                    {{- end }}
                    - --keys-dir=/etc/wireguard/keys
                    - --implementation={{ $t.wireguard.implementation }}
                    - --geneve-port={{ $.Values.networking.genevePort }}
                    {{- with $.Values.networking.overlaySources }}
                    - --overlay-sources={{ join "," . }}
                    {{- end }}
                    - --ping-loss-threshold={{ $t.ping.lossThreshold }}
                    - --ping-interval={{ $t.ping.interval }}
                    - --ping-update-status-interval={{ $t.ping.updateStatusInterval }}
                    - --health-probe-bind-address=:8083
                    - --metrics-address={{ ternary ":8082" "0" ($.Values.metrics.enabled | default false) }}
                  env:
                    - name: NODE_NAME
                      valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
                    - name: POD_NAME
                      valueFrom: {fieldRef: {fieldPath: metadata.name}}
                    - name: POD_IP
                      valueFrom: {fieldRef: {fieldPath: status.podIP}}
                  ports:
                    {{- if $.Values.metrics.enabled }}
                    - {name: gw-metrics, containerPort: 8082, protocol: TCP}
                    {{- end }}
                    - {name: healthz, containerPort: 8083, protocol: TCP}
                  livenessProbe:
                    httpGet: {path: /healthz, port: healthz}
                    # Seconds. On a busy node a restart does not help, and drops connections.
                    timeoutSeconds: 10
                  readinessProbe:
                    httpGet: {path: /readyz, port: healthz}
                    periodSeconds: 2
                  {{- with $t.container.gateway.resources }}
                  resources: {{ toYaml . | nindent 20 }}
                  {{- end }}
                  # Links, routes and rules of the pod: netlink asks for root with NET_ADMIN, nothing more.
                  securityContext:
                    allowPrivilegeEscalation: false
                    readOnlyRootFilesystem: true
                    runAsUser: 0
                    capabilities: {drop: [ALL], add: [NET_ADMIN]}
                    seccompProfile: {type: RuntimeDefault}
                  volumeMounts:
                    - {name: wireguard-config, mountPath: /etc/wireguard/keys, readOnly: true}
                    - {name: tun, mountPath: /dev/net/tun}
              volumes:
                # The controller puts in the Secret with the gateway's keys.
                - name: wireguard-config
                  secret:
                    secretName: {{ `{{ .SecretName }}` | quote }}
                    defaultMode: 256
                # For WireGuard inside the process, where the kernel has none.
                - name: tun
                  hostPath: {path: /dev/net/tun, type: CharDevice}
{{- end }}
{{- end }}
{{- end }}
