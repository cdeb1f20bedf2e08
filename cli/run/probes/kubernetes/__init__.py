"""The same on Kubernetes: by the kubelets' statistics, the Metrics API and cgroups of pods."""
