{{- define "labels" -}}
app.kubernetes.io/name: private-counts
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* (dict "root" $ "role" "worker"): what selects the Pods of a role, for ever */}}
{{- define "selects" -}}
app.kubernetes.io/name: private-counts
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end }}

{{- /* (dict "root" $ "role" "worker"): what an operator wrote for all Pods, and for those of a role */}}
{{- define "own" -}}
{{- mergeOverwrite (deepCopy .root.Values.pods) (deepCopy (get .root.Values .role)) | toJson }}
{{- end }}

{{- /* (dict "root" $ "role" "worker" "configuration" ...): the Pods of a role start anew with a new configuration */}}
{{- define "annotations" -}}
{{- $own := (include "own" . | fromJson).podAnnotations }}
{{- merge (dict "checksum/configuration" (toYaml .configuration | sha256sum)) $own | toJson }}
{{- end }}

{{- /* (dict "root" $ "role" "worker"): what holds for every Pod: no root, no token of the cluster; and where it runs */}}
{{- define "pod" -}}
{{- $own := include "own" . | fromJson -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "serviceAccountName" }}
{{- with get $own $name }}
{{ $name }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end }}

{{- /* (dict "root" $ "role" ... "command" ... "resources" ... "env" ...): what holds for every container */}}
{{- define "container" -}}
image: {{ include "image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
args: [{{ .command }}, --config, /etc/private-counts/stream-app.yaml]
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{ toJson .resources }}
{{- with concat (.env | default list) (include "own" . | fromJson).extraEnv }}
env: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* a role's values: its own volumes, as an operator adds them */}}
{{- define "extraVolumes" -}}
{{- with .extraVolumes }}{{ toYaml . }}{{ end }}
{{- end }}
{{- define "extraVolumeMounts" -}}
{{- with .extraVolumeMounts }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /* while a Pod ends, connections may still be sent to it for some seconds */}}
{{- define "endsLater" -}}
lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
{{- end }}

{{- /* (dict "root" $ "role" "worker"): spread a role's Pods over the nodes, if there are enough */}}
{{- define "spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ include "selects" . | fromYaml | toJson }}}
{{- end }}
