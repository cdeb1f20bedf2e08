#!/usr/bin/env bash
# VictoriaMetrics, single node, by the vendor's chart: see README.md.
# shellcheck source=dbinstall/lib.sh
. "$(dirname "$0")/../lib.sh"
begin install "$@"
target_secret password
chart victoriametrics https://victoriametrics.github.io/helm-charts victoria-metrics-single 0.45.0 single-node.yaml
