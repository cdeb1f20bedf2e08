"""The same by the kubelets' statistics, the Metrics API and cgroups of pods."""
