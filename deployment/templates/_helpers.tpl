{{/* Labels of every object. */}}
{{- define "benchmark.labels" -}}
app.kubernetes.io/name: iot-database-benchmark
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
iot-database-benchmark/run: {{ .Values.run.id | quote }}
{{- end }}

{{/* Labels by which this run's pods of one role are found. */}}
{{- define "benchmark.selector" -}}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* A Job's labels and annotations, for both roles: dict root, component. */}}
{{- define "benchmark.jobMetadata" -}}
name: {{ .root.Release.Name }}-{{ .component }}
labels:
  {{- include "benchmark.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .component }}
  {{- with .root.Values.jobLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  iot-database-benchmark/started-by: {{ .root.Values.run.startedBy | quote }}
  {{- with .root.Values.jobAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* A Job's pod template, for both roles: dict root, component, resources, requests, arguments. */}}
{{- define "benchmark.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "benchmark.labels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with $values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Beside what a service mesh or a log collector injects.
    kubectl.kubernetes.io/default-container: {{ .component }}
    # So that neither autoscaler moves a pod in mid-run.
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    karpenter.sh/do-not-disrupt: "true"
    checksum/settings: {{ $values.run.settings | sha256sum }}
    {{- with $values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  {{- if $values.serviceAccount.annotations }}
  serviceAccountName: {{ .root.Release.Name | quote }}
  {{- else if $values.serviceAccount.name }}
  serviceAccountName: {{ $values.serviceAccount.name | quote }}
  {{- end }}
  enableServiceLinks: false
  # Nothing is left to do for a process that is asked to end.
  terminationGracePeriodSeconds: 2
  securityContext:
    runAsNonRoot: true
    {{- if not (kindIs "invalid" $values.runAsUser) }}
    runAsUser: {{ $values.runAsUser }}
    runAsGroup: {{ $values.runAsUser }}
    fsGroup: {{ $values.runAsUser }}
    {{- end }}
    seccompProfile:
      type: RuntimeDefault
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  {{- with $values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- $affinity := deepCopy $values.affinity }}
  {{- with $values.keepAwayFrom }}
  {{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" .) }}
  {{- with $values.keepAwayFromNamespaces }}
  {{- $_ := set $term "namespaces" . }}
  {{- end }}
  {{- $anti := deepCopy (get $affinity "podAntiAffinity" | default dict) }}
  {{- if eq $values.keepAwayPolicy "required" }}
  {{- $key := "requiredDuringSchedulingIgnoredDuringExecution" }}
  {{- $_ := set $anti $key (append (get $anti $key | default list) $term) }}
  {{- else }}
  {{- $key := "preferredDuringSchedulingIgnoredDuringExecution" }}
  {{- $wish := dict "weight" 100 "podAffinityTerm" $term }}
  {{- $_ := set $anti $key (append (get $anti $key | default list) $wish) }}
  {{- end }}
  {{- $_ := set $affinity "podAntiAffinity" $anti }}
  {{- end }}
  {{- with $affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .component "worker" }}
  {{- with $values.topologySpread }}
  topologySpreadConstraints:
    {{- range . }}
    {{- $selector := dict "matchLabels" (include "benchmark.selector" $ | fromYaml) }}
    - {{- merge (dict "labelSelector" $selector) . | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- end }}
  containers:
    - name: {{ .component }}
      image: "{{ $values.image.name }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args:
        {{- toYaml .arguments | nindent 8 }}
        {{- if $values.existingSecret }}
        - --credentials
        - /run/benchmark/credentials
        {{- end }}
      env:
        - name: NODE_NAME
          valueFrom:
            fieldRef:
              fieldPath: spec.nodeName
        {{- if $values.run.recordingSize }}
        - name: IOTBENCH_RECORDINGS
          value: /run/benchmark/recordings
        {{- end }}
        {{- with $values.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $values.envFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if eq .component "collector" }}
      ports:
        - name: http
          containerPort: 5000
      readinessProbe:
        httpGet:
          path: /readyz
          port: http
        periodSeconds: 1
      {{- end }}
      resources:
        requests:
          {{- merge (deepCopy (.requests | default dict)) .resources | toYaml | nindent 10 }}
        limits:
          {{- toYaml .resources | nindent 10 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: settings
          mountPath: /run/benchmark/settings
          readOnly: true
        {{- if $values.existingSecret }}
        - name: credentials
          mountPath: /run/benchmark/credentials
          readOnly: true
        {{- end }}
        {{- if $values.run.recordingSize }}
        - name: recordings
          mountPath: /run/benchmark/recordings
        {{- end }}
        - name: tmp
          mountPath: /tmp
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: settings
      secret:
        secretName: {{ .root.Release.Name }}
        defaultMode: 0440
    {{- if $values.existingSecret }}
    - name: credentials
      secret:
        secretName: {{ $values.existingSecret | quote }}
        defaultMode: 0440
        {{- with $values.secretKeys }}
        items:
          {{- range $option, $key := . }}
          - key: {{ $key | quote }}
            path: {{ $option | quote }}
          {{- end }}
        {{- end }}
    {{- end }}
    {{- if $values.run.recordingSize }}
    - name: recordings
      {{- with $values.recordings.volume }}
      {{- toYaml . | nindent 6 }}
      {{- else }}
      emptyDir:
        sizeLimit: {{ $values.run.recordingSize }}
      {{- end }}
    {{- end }}
    - name: tmp
      emptyDir:
        sizeLimit: 64Mi
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
