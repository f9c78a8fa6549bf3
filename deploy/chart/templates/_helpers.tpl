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
  - --config=/etc/muster/settings.yaml
  - --role={{ $role }}
  - --metrics-port=9090
{{- if not $controller }}
  - --webhook-port=9443
  - --workers={{ $values.workers }}
{{- end }}
{{- if and $controller (not $root.Values.ledger.sqlite.size) }}
  env:
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
  - {name: settings, mountPath: /etc/muster/settings.yaml, subPath: settings.yaml, readOnly: true}
  - {name: tmp, mountPath: /tmp}
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

{{/* The settings file: what the values say, and over it what belongs to the chart. */}}
{{- define "muster.settings" -}}
{{- $own := dict
      "webhook" (dict "service" (printf "%s/muster-webhook:443" .Release.Namespace))
      "lease" (dict "namespace" .Release.Namespace) }}
{{- if .Values.ledger.sqlite.size }}
{{- $_ := set $own "ledger" (dict "url" "sqlite:////var/lib/muster/ledger.sqlite3") }}
{{- end }}
{{- mustMergeOverwrite (deepCopy .Values.settings) $own | toYaml }}
{{- end }}
