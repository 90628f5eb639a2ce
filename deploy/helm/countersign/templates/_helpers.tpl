{{- define "countersign.name" -}}
{{- printf "%s-countersign" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "countersign.selector" -}}
app.kubernetes.io/name: countersign
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "countersign.labels" -}}
{{ include "countersign.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "countersign.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "countersign.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- /* What a probe sends as its Host: a name that the web process answers. "*" is no name. */ -}}
{{- define "countersign.host" -}}
{{ include "countersign.hosts" . | splitList "," | first | trimPrefix "." | replace "*" "localhost" }}
{{- end -}}

{{- define "countersign.hosts" -}}
{{ join "," .Values.allowedHosts | required "allowedHosts names the hosts that are answered" }}
{{- end -}}

{{- /* Of each pod; the service account and what schedules it come with the deployments. */ -}}
{{- define "countersign.pod" -}}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
volumes:
  - name: temporary
    emptyDir: {}
  - name: data
    {{- if .Values.data.existingClaim }}
    persistentVolumeClaim:
      claimName: {{ .Values.data.existingClaim }}
    {{- else if .Values.data.ephemeral }}
    emptyDir: {}
    {{- else }}
    {{- fail "name a claim in data.existingClaim, or set data.ephemeral where nobody uploads files" }}
    {{- end }}
{{- end -}}

{{- define "countersign.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Of each container: image, rights, variables and folders. */ -}}
{{- define "countersign.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop:
      - ALL
envFrom:
  - secretRef:
      name: {{ required "secretName names the Secret with COUNTERSIGN_SECRET_KEY and DATABASE_URL" .Values.secretName }}
env:
  - name: DJANGO_SETTINGS_MODULE
    value: {{ .Values.settingsModule | quote }}
  - name: COUNTERSIGN_ALLOWED_HOSTS
    value: {{ include "countersign.hosts" . | quote }}
  - name: COUNTERSIGN_BEHIND_PROXY
    value: "true"
  - name: COUNTERSIGN_CLIENT_ADDRESS_HEADER
    value: {{ .Values.clientAddressHeader | quote }}
  - name: COUNTERSIGN_WORKERS
    value: {{ .Values.worker.slots | quote }}
  - name: COUNTERSIGN_GRACE_SECONDS
    value: {{ .Values.worker.graceSeconds | quote }}
  {{- range $name, $text := .Values.env }}
  - name: {{ $name }}
    value: {{ $text | quote }}
  {{- end }}
volumeMounts:
  - name: temporary
    mountPath: /tmp
  - name: data
    mountPath: /data
{{- end -}}
