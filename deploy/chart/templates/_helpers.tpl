{{/* Names are fixed: a cluster has one Muster, whose webhook configurations are named `muster` whatever the release. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* What a role's Deployment and its pods have in common. Call: list $ "webhook" or list $ "controller". */}}
{{- define "muster.podSpec" -}}
{{- $root := index . 0 }}
{{- $role := index . 1 }}
{{- $values := index $root.Values $role }}
{{- $controller := eq $role "controller" }}
serviceAccountName: muster
# Variables such as MUSTER_WEBHOOK_PORT are settings here.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
priorityClassName: {{ $root.Values.priorityClassName }}
# A pod that is told to end goes on answering for as long as it lingers, then finishes what is under way (10 s).
terminationGracePeriodSeconds: {{ add (ceil $root.Values.settings.webhook.linger) 20 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
topologySpreadConstraints:
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- topologyKey: {{ $key }}
  maxSkew: 1
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "muster.selector" $role | nindent 6 }}
{{- end }}
containers:
- name: muster
  image: {{ include "muster.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args:
  - serve
  # Not options of `serve`, so that commands that are run in the pod have the same settings.
  env:
  - {name: MUSTER_CONFIG, value: /etc/muster/settings/muster.toml}
  - {name: MUSTER_ROLES, value: {{ $role }}}
  - {name: MUSTER_METRICS_PORT, value: "9090"}
{{- if not $controller }}
  - {name: MUSTER_WEBHOOK_PORT, value: "9443"}
  - {name: MUSTER_WEBHOOK_WORKERS, value: {{ $values.workers | quote }}}
{{- end }}
{{- if and $controller (not $root.Values.ledger.sqlite.size) }}
  - name: MUSTER_LEDGER_URL
    valueFrom:
      secretKeyRef: {name: {{ $root.Values.ledger.secret }}, key: {{ $root.Values.ledger.key }}}
{{- end }}
  ports:
{{- if not $controller }}
  - {name: webhook, containerPort: 9443}
{{- end }}
  - {name: metrics, containerPort: 9090}
  # It listens as soon as it has reached the API server, and is ready when it has read the cluster.
  startupProbe:
    httpGet: {path: /healthz, port: metrics}
    periodSeconds: 2
    failureThreshold: 60
  readinessProbe:
    httpGet: {path: /readyz, port: metrics}
    periodSeconds: 5
    timeoutSeconds: 5
  livenessProbe:
    httpGet: {path: /healthz, port: metrics}
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 6
  resources: {{- toYaml $values.resources | nindent 4 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
  volumeMounts:
  # The folder, not the file in it, or a running pod would never see a change.
  - {name: settings, mountPath: /etc/muster/settings, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- if and (not $controller) $values.certManager.enabled }}
  - {name: certificate, mountPath: /etc/muster/certificate, readOnly: true}
{{- end }}
{{- if and $controller $root.Values.ledger.certificates }}
  - {name: ledger-certificates, mountPath: /etc/muster/ledger, readOnly: true}
{{- end }}
{{- if and $controller $root.Values.ledger.sqlite.size }}
  - {name: ledger, mountPath: /var/lib/muster}
{{- end }}
volumes:
- name: settings
  configMap: {name: muster}
# The key of the webhook's certificate stands here for a moment when it is renewed.
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- if and (not $controller) $values.certManager.enabled }}
- name: certificate
  secret: {secretName: muster-webhook-tls}
{{- end }}
{{- if and $controller $root.Values.ledger.certificates }}
- name: ledger-certificates
  secret: {secretName: {{ $root.Values.ledger.certificates }}}
{{- end }}
{{- if and $controller $root.Values.ledger.sqlite.size }}
- name: ledger
  persistentVolumeClaim: {claimName: muster-ledger}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{- define "muster.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The settings file. */}}
{{- define "muster.settings" -}}
{{- include "muster.chosen" . | fromJson | toToml }}
{{- end }}

{{/* The settings that a new value of needs new pods: all but those that are live (docs/settings.md). */}}
{{- define "muster.lasting" -}}
{{- $settings := include "muster.chosen" . | fromJson }}
{{- range list "log_level" "ledger.open_days" "controller.resync" "controller.debounce" "controller.steps" "controller.writes" }}
{{- $path := splitList "." . }}
{{- $parent := $settings }}
{{- if gt (len $path) 1 }}
{{- $parent = get $settings (first $path) | default dict }}
{{- end }}
{{- $_ := unset $parent (last $path) }}
{{- end }}
{{- range $name := keys $settings }}
{{- if eq (toJson (get $settings $name)) "{}" }}
{{- $_ := unset $settings $name }}
{{- end }}
{{- end }}
{{- $settings | toJson }}
{{- end }}

{{/* What the values say, and over it what belongs to the chart. */}}
{{- define "muster.chosen" -}}
{{- $own := dict
      "webhook" (dict "service" (printf "%s/muster-webhook:443" .Release.Namespace))
      "lease" (dict "namespace" .Release.Namespace) }}
{{- if .Values.webhook.certManager.enabled }}
{{- $files := dict "certificate" "/etc/muster/certificate/tls.crt" "key" "/etc/muster/certificate/tls.key" }}
{{- $_ := set $files "inject" (printf "%s/muster-webhook" .Release.Namespace) }}
{{- $_ := set $own "webhook" (merge $files $own.webhook) }}
{{- end }}
{{- if .Values.ledger.sqlite.size }}
{{- $_ := set $own "ledger" (dict "url" "sqlite:////var/lib/muster/ledger.sqlite3") }}
{{- end }}
{{- mustMergeOverwrite (deepCopy .Values.settings) $own | toJson }}
{{- end }}
