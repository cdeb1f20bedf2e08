"""What is generated. One file per workload; `base` says what a workload is.

Another package adds a workload by an entry point of the group `iot_database_benchmark.workloads`: its
name is what `--workload` says, its object the workload's class.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from ..errors import OptionError, did_you_mean
from .base import Workload
from .cpu import Cpu
from .temperature import Temperature

ENTRY_POINTS = "iot_database_benchmark.workloads"

WORKLOADS: dict[str, type[Workload]] = {workload.name: workload for workload in (Temperature, Cpu)}
"""Those that come with this package."""


def workload_names() -> list[str]:
    """All workloads that can be loaded."""
    return [*WORKLOADS, *sorted(point.name for point in entry_points(group=ENTRY_POINTS))]


def load_workload(name: str) -> type[Workload]:
    """The class of a workload; OptionError if there is none of that name."""
    if name in WORKLOADS:
        return WORKLOADS[name]
    for point in entry_points(group=ENTRY_POINTS, name=name):
        found = point.load()
        assert isinstance(found, type)
        assert issubclass(found, Workload)
        return found
    known = workload_names()
    raise OptionError(
        f"there is no workload {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})"
    )
