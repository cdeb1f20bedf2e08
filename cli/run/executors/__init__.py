"""Where collector and workers run. One file per executor; `base` says what an executor is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ...plan.target import ExecutorName
from ...system.processes import Interrupts
from ..cluster import Place
from .base import Executor


def make_executor(
    name: ExecutorName,
    interrupts: Interrupts,
    place: Place,
    values: Mapping[str, Any],
    database_pids: Collection[int] = (),
) -> Executor:
    """The executor of that name; `place` and the chart's `values` are for Kubernetes, the database's
    processes for this machine."""
    if name is ExecutorName.LOCAL:
        from .local import LocalExecutor

        return LocalExecutor(interrupts, database_pids)
    from .kubernetes import KubernetesExecutor

    return KubernetesExecutor(interrupts, place, values)
