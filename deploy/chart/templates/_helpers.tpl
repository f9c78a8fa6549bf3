{{/* Names are fixed: a cluster has one Muster, whose webhook configurations are named `muster` whatever the release. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* Labels and annotations of an object. Call: list $ "webhook" annotations labels, of which the last two may be left out;
     the component is "" where the object belongs to no single one. What is Muster's own goes before the values. */}}
{{- define "muster.metadata" -}}
{{- $values := (index . 0).Values }}
{{- $own := dict "app.kubernetes.io/name" "muster" }}
{{- if index . 1 }}
{{- $own = include "muster.selector" (index . 1) | fromYaml }}
{{- end }}
{{- $labels := ternary dict (last .) (lt (len .) 4) }}
{{- $annotations := dict }}
{{- if gt (len .) 2 }}
{{- $annotations = index . 2 }}
{{- end -}}
labels: {{- mustMerge $own (deepCopy $labels) $values.commonLabels | toYaml | nindent 2 }}
{{- with mustMerge (deepCopy $annotations) $values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What its pods are told apart by, and what they carry besides. Call: list $ "webhook" "muster.chosen". */}}
{{- define "muster.podMetadata" -}}
{{- $root := index . 0 }}
{{- $role := index . 1 }}
{{- $values := index $root.Values $role }}
{{- $own := dict "checksum/settings" (include "muster.lasting" (list $root (index . 2)) | sha256sum) -}}
{{- include "muster.metadata" (list $root $role (mustMerge $own $values.podAnnotations) $values.podLabels) }}
{{- end }}

{{/* The metadata and spec of a pod that runs one command to its end. Call: list $ values account arguments; values are
     those of `uninstall` or `smokeTest`, of which the account has the name. */}}
{{- define "muster.jobPod" -}}
{{- $root := index . 0 }}
{{- $values := index . 1 }}
{{- $account := index . 2 -}}
metadata:
  {{- include "muster.metadata" (list $root (trimPrefix "muster-" $account) $values.podAnnotations $values.podLabels) | nindent 2 }}
spec: {{- include "muster.jobPodSpec" . | nindent 2 }}
{{- end }}

{{- define "muster.jobPodSpec" -}}
{{- $root := index . 0 }}
{{- $values := index . 1 -}}
restartPolicy: Never
serviceAccountName: {{ index . 2 }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
priorityClassName: {{ $root.Values.priorityClassName }}
{{- with $root.Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
containers:
- name: muster
  image: {{ include "muster.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args: {{- toYaml (index . 3) | nindent 2 }}
  resources: {{- toYaml $values.resources | nindent 4 }}
{{- with $root.Values.securityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
{{- end }}
{{- with $values.extraVolumeMounts }}
  volumeMounts: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.extraVolumes }}
volumes: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* The size of the volume with the books as a SQLite file; empty where PostgreSQL has them. */}}
{{- define "muster.ledgerFile" -}}
{{- with .Values.ledger }}
{{- if not (or .secret .cloudNativePG.enabled) }}{{ .sqlite.size }}{{ end }}
{{- end }}
{{- end }}

{{/* The Secret and its key with the URL of PostgreSQL, as JSON. */}}
{{- define "muster.ledgerSecret" -}}
{{- with .Values.ledger }}
{{- if .secret }}
{{- dict "name" .secret "key" .key | toJson }}
{{- else }}
{{- dict "name" "muster-ledger-app" "key" "uri" | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refuses what would leave the books somewhere that nobody meant. */}}
{{- define "muster.checkLedger" -}}
{{- with .Values.ledger }}
{{- if and .secret .cloudNativePG.enabled }}
{{- fail "ledger: both ledger.secret and ledger.cloudNativePG.enabled say where the books are; leave one" }}
{{- end }}
{{- if not (or .secret .cloudNativePG.enabled .sqlite.size) }}
{{- fail "ledger: say where the books are: ledger.secret, ledger.cloudNativePG.enabled or ledger.sqlite.size" }}
{{- end }}
{{- if and (not .secret) (lookup "v1" "Secret" $.Release.Namespace "muster-ledger") }}
{{- fail "ledger.secret: there is a Secret muster-ledger, which was its default in 0.1, and the books would be begun anew elsewhere; --set ledger.secret=muster-ledger uses it, or delete that Secret" }}
{{- end }}
{{- end }}
{{- end }}

{{/* What a role's Deployment and its pods have in common. Call: list $ "webhook", "controller" or "dashboard". */}}
{{- define "muster.podSpec" -}}
{{- $root := index . 0 }}
{{- $role := index . 1 }}
{{- $controller := eq $role "controller" }}
{{- $webhook := eq $role "webhook" }}
{{- $dashboard := eq $role "dashboard" }}
{{- $values := index $root.Values $role }}
{{- $file := and (not $webhook) (include "muster.ledgerFile" $root) }}
serviceAccountName: {{ $controller | ternary "muster" (printf "muster-%s" $role) }}
# Variables such as MUSTER_WEBHOOK_PORT are settings here.
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- if not $dashboard }}
priorityClassName: {{ $root.Values.priorityClassName }}
{{- end }}
# A pod that is told to end goes on answering for as long as it lingers, then finishes what is under way (10 s).
terminationGracePeriodSeconds: {{ add (ceil $root.Values.settings.webhook.linger) 20 }}
{{- with $root.Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy $values.affinity }}
{{- if and $dashboard $file }}
{{- /* The volume of the books is where the controller is. */}}
{{- $labels := include "muster.selector" "controller" | fromYaml }}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" $labels) }}
{{- $near := $affinity.podAffinity | default dict }}
{{- $terms := append ($near.requiredDuringSchedulingIgnoredDuringExecution | default list) $term }}
{{- $_ := set $affinity "podAffinity" (set $near "requiredDuringSchedulingIgnoredDuringExecution" $terms) }}
{{- end }}
{{- with $affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "muster.selector" $role | fromYaml)) }}
{{- range $values.topologySpreadConstraints }}
- {{ mustMerge (deepCopy .) $selector | toYaml | indent 2 | trim }}
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
{{- if $webhook }}
  - {name: MUSTER_WEBHOOK_PORT, value: "9443"}
  - {name: MUSTER_WEBHOOK_WORKERS, value: {{ $values.workers | quote }}}
{{- end }}
{{- if $dashboard }}
  - {name: MUSTER_DASHBOARD_PORT, value: {{ include "muster.pagesPort" $root | quote }}}
{{- end }}
{{- if not (or $webhook $file) }}
{{- $books := include "muster.ledgerSecret" $root | fromJson }}
{{- if and $dashboard $values.ledger.secret }}
{{- $books = dict "name" $values.ledger.secret "key" $values.ledger.key }}
{{- end }}
  - name: MUSTER_LEDGER_URL
    valueFrom:
      secretKeyRef: {name: {{ $books.name }}, key: {{ $books.key }}}
{{- end }}
{{- range $values.extraEnv }}
{{- if hasPrefix "MUSTER_" .name }}
{{- fail (printf "%s.extraEnv: %s is a setting of Muster's; write it into `settings`" $role .name) }}
{{- end }}
{{- end }}
{{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
{{- end }}
  ports:
{{- if $webhook }}
  - {name: webhook, containerPort: 9443}
{{- end }}
{{- if $dashboard }}
  - {name: pages, containerPort: {{ include "muster.pagesPort" $root }}}
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
{{- with $root.Values.securityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
{{- end }}
  volumeMounts:
  # The folder, not the file in it, or a running pod would never see a change.
  - {name: settings, mountPath: /etc/muster/settings, readOnly: true}
  - {name: tmp, mountPath: /tmp}
{{- if and $webhook $values.certManager.enabled }}
  - {name: certificate, mountPath: /etc/muster/certificate, readOnly: true}
{{- end }}
{{- if and (not $webhook) $root.Values.ledger.certificates }}
  - {name: ledger-certificates, mountPath: /etc/muster/ledger, readOnly: true}
{{- end }}
{{- if $file }}
  - {name: ledger, mountPath: /var/lib/muster}
{{- end }}
{{- if $dashboard }}
{{- range $name, $secret := include "muster.pagesSecrets" $root | fromJson }}
  - {name: {{ $name }}, mountPath: /etc/muster/dashboard/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}
{{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
- name: settings
  configMap: {name: {{ ternary "muster-dashboard-settings" "muster" $dashboard }}}
# What stands somewhere for a moment, as the key of the webhook's certificate when it is renewed.
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- if and $webhook $values.certManager.enabled }}
- name: certificate
  secret: {secretName: muster-webhook-tls}
{{- end }}
{{- if and (not $webhook) $root.Values.ledger.certificates }}
- name: ledger-certificates
  secret: {secretName: {{ $root.Values.ledger.certificates }}}
{{- end }}
{{- if $file }}
- name: ledger
  persistentVolumeClaim: {claimName: muster-ledger}
{{- end }}
{{- if $dashboard }}
{{- range $name, $secret := include "muster.pagesSecrets" $root | fromJson }}
- name: {{ $name }}
  secret: {secretName: {{ $secret }}}
{{- end }}
{{- end }}
{{- with $values.extraVolumes }}
{{- toYaml . | nindent 0 }}
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
{{ required "image.repository: name the image, as registry.example.com/muster; none is published yet, docs/install.md has how to build it" .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* The settings file of "muster.chosen" or "muster.shown". Call: list $ "muster.chosen". */}}
{{- define "muster.settings" -}}
{{- include (index . 1) (index . 0) | fromJson | toToml }}
{{- end }}

{{/* Those of them that a new value of needs new pods: all but those that are live (docs/settings.md). */}}
{{- define "muster.lasting" -}}
{{- $settings := include (index . 1) (index . 0) | fromJson }}
{{- range list "log_level" "ledger.open_days" "controller.resync" "controller.debounce" "controller.steps" "controller.writes" "controller.node_order" }}
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

{{/* What the values say for the webhook and the controller, and over it what belongs to the chart. */}}
{{- define "muster.chosen" -}}
{{- $own := dict
      "webhook" (dict "service" (printf "%s/muster-webhook:443" .Release.Namespace))
      "controller" (dict "user" (printf "system:serviceaccount:%s:muster" .Release.Namespace))
      "lease" (dict "namespace" .Release.Namespace) }}
{{- if .Values.webhook.certManager.enabled }}
{{- $files := dict "certificate" "/etc/muster/certificate/tls.crt" "key" "/etc/muster/certificate/tls.key" }}
{{- $_ := set $files "inject" (printf "%s/muster-webhook" .Release.Namespace) }}
{{- $_ := set $own "webhook" (merge $files $own.webhook) }}
{{- end }}
{{- if include "muster.ledgerFile" . }}
{{- $_ := set $own "ledger" (dict "url" "sqlite:////var/lib/muster/ledger.sqlite3") }}
{{- end }}
{{- omit (mustMergeOverwrite (deepCopy .Values.settings) $own) "dashboard" | toJson }}
{{- end }}

{{/* The same for the dashboard: what concerns it, and where its files are. */}}
{{- define "muster.shown" -}}
{{- $pages := dict
      "host" (ternary "0.0.0.0" "127.0.0.1" (eq (include "muster.pagesReached" .) "true")) }}
{{- $pages = mustMergeOverwrite $pages (deepCopy (.Values.settings.dashboard | default dict)) }}
{{- $secrets := include "muster.pagesSecrets" . | fromJson }}
{{- if $secrets.certificate }}
{{- $_ := set $pages "certificate" "/etc/muster/dashboard/certificate/tls.crt" }}
{{- $_ := set $pages "key" "/etc/muster/dashboard/certificate/tls.key" }}
{{- end }}
{{- if $secrets.authority }}
{{- $_ := set $pages "authority" "/etc/muster/dashboard/authority/ca.crt" }}
{{- end }}
{{- if $secrets.sessions }}
{{- $_ := set $pages "session_keys" (printf "/etc/muster/dashboard/sessions/%s" .Values.dashboard.sessions.key) }}
{{- end }}
{{- set (pick (include "muster.chosen" . | fromJson) "log_level" "log_format" "metrics" "ledger" "tracing") "dashboard" $pages | toJson }}
{{- end }}

{{/* Whether pages are served to other machines; else only `kubectl port-forward` reaches them. */}}
{{- define "muster.pagesReached" -}}
{{- or .Values.dashboard.tls.secret ((.Values.settings.dashboard | default dict).plain) | empty | not }}
{{- end }}

{{- define "muster.pagesPort" -}}
{{- ternary "8443" "8080" (not (empty .Values.dashboard.tls.secret)) }}
{{- end }}

{{/* Secrets whose files the dashboard reads, by the folder in /etc/muster/dashboard. */}}
{{- define "muster.pagesSecrets" -}}
{{- $found := dict }}
{{- with .Values.dashboard }}
{{- range $name, $secret := dict "certificate" .tls.secret "authority" .tls.authority "sessions" .sessions.secret }}
{{- if $secret }}
{{- $_ := set $found $name $secret }}
{{- end }}
{{- end }}
{{- end }}
{{- $found | toJson }}
{{- end }}

{{- define "muster.mayReadMetrics" -}}
- ports:
  - {protocol: TCP, port: metrics}
  from: {{- toYaml .Values.networkPolicy.prometheus | nindent 2 }}
{{- end }}

{{/* Whom the pods of a role may ask. Call: list $ "webhook". */}}
{{- define "muster.mayAsk" -}}
{{- $root := index . 0 }}
{{- $role := index . 1 -}}
# Names.
- ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
# The API server.
- ports:
{{- range $root.Values.networkPolicy.apiServerPorts }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- with $root.Values.settings.tracing }}
{{- with .endpoint }}
# The collector of traces.
- ports:
  - {protocol: TCP, port: {{ (urlParse .).host | regexFind ":[0-9]+$" | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https" .)) }}}
{{- end }}
{{- end }}
{{- if eq $role "controller" }}
{{- with ($root.Values.settings.usage | default dict).prometheus }}
{{- with .url }}
# The server that is asked what devices did.
- ports:
  - {protocol: TCP, port: {{ (urlParse .).host | regexFind ":[0-9]+$" | trimPrefix ":" | default (ternary "443" "80" (hasPrefix "https" .)) }}}
{{- end }}
{{- end }}
{{- end }}
{{- if and (ne $role "webhook") (not (include "muster.ledgerFile" $root)) }}
# The ledger.
- ports:
  - {protocol: TCP, port: {{ $root.Values.networkPolicy.databasePort }}}
{{- end }}
{{- end }}

{{/* Kinds of workloads that pods belong to, as both webhook and controller read them. */}}
{{- define "muster.workloadKinds" }}
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, watch]
- apiGroups: [jobset.x-k8s.io]
  resources: [jobsets]
  verbs: [list, watch]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [list, watch]
- apiGroups: [kubeflow.org]
  resources: [pytorchjobs, tfjobs, xgboostjobs, paddlejobs, jaxjobs, mpijobs]
  verbs: [list, watch]
- apiGroups: [ray.io]
  resources: [rayclusters, rayjobs]
  verbs: [list, watch]
- apiGroups: [sparkoperator.k8s.io]
  resources: [sparkapplications]
  verbs: [list, watch]
- apiGroups: [batch.volcano.sh]
  resources: [jobs]
  verbs: [list, watch]
- apiGroups: [scheduling.k8s.io, scheduling.volcano.sh, scheduling.x-k8s.io, scheduling.run.ai]
  resources: [podgroups]
  verbs: [list, watch]
{{- end }}
