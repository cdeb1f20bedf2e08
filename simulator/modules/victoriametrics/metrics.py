"""What VictoriaMetrics tells of itself by /metrics, in Prometheus's text format.

https://docs.victoriametrics.com/victoriametrics/single-server-victoriametrics/#monitoring
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...units import parse_duration_ms

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Metrics:
    """One reading."""

    version: str
    """Empty in builds that don't tell."""
    built_by: str
    """The version of Go."""
    flags: Mapping[str, str]
    """Name -> value of all flags, also of those that aren't set; the server hides secret ones."""
    sizes: Mapping[str, int]
    """Kind of a part, as storage/small or indexdb/file -> bytes."""
    rows: int
    """Samples in these parts, of all series."""
    merges: int
    """Forced merges that are under way."""

    def duration_ms(self, flag: str, unit: str = "s") -> int | None:
        """A flag that is a duration; a bare number is of this unit. None: there is no such flag."""
        text = self.flags.get(flag)
        found = None if text is None else parse_duration_ms(text, unit)
        return None if found is None else round(found)


def parse_metrics(text: str) -> Metrics:
    """What is of interest in it."""
    flags: dict[str, str] = {}
    sizes: dict[str, int] = {}
    version = built_by = ""
    rows = merges = 0
    for name, labels, value in _SAMPLE.findall(text):
        if name not in _READ:
            continue
        found = dict(_LABEL.findall(labels))
        if name == "flag":
            flags[found["name"]] = found["value"]
        elif name == "vm_data_size_bytes":
            sizes[found["type"]] = int(float(value))
        elif name == "vm_rows":
            rows += int(float(value)) * found["type"].startswith("storage/")
        elif name == "vm_app_version":
            version = found["short_version"] or found["version"]
        elif name == "go_info":
            built_by = found["version"]
        else:
            merges = int(float(value))
    return Metrics(version, built_by, flags, sizes, rows, merges)


_READ = {
    "flag",
    "vm_data_size_bytes",
    "vm_rows",
    "vm_app_version",
    "go_info",
    "vm_active_force_merges",
}
