"""Where collector and workers run. One file per executor; `base` says what an executor is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..cluster import Place
from ..signals import Interrupts
from ..target import ExecutorName, NamedExecutor
from .base import Executor, SingleExecutor


def make_executor(
    name: ExecutorName,
    interrupts: Interrupts,
    place: Place,
    values: Mapping[str, Any],
    database_pids: Collection[int] = (),
) -> SingleExecutor:
    """The executor of that name; `place` and the chart's `values` are for Kubernetes, the database's
    processes for this machine."""
    if name is ExecutorName.LOCAL:
        from .local import LocalExecutor

        return LocalExecutor(interrupts, database_pids)
    from .kubernetes import KubernetesExecutor

    return KubernetesExecutor(interrupts, place, values)


def share_workers(
    executors: Sequence[NamedExecutor],
    collector: str,
    interrupts: Interrupts,
    place: Place,
    database_pids: Collection[int] = (),
) -> Executor:
    """Several executors as one, each in its own context and namespace. `collector`: the address at which the
    first one's collector is reached; `place`: whose kubeconfig is used."""
    from .several import SeveralExecutors

    parts = {
        executor.name: make_executor(
            executor.kind,
            interrupts,
            Place(executor.namespace or place.namespace, place.kubeconfig, executor.context),
            executor.kubernetes,
            database_pids,
        )
        for executor in executors
    }
    return SeveralExecutors(parts, collector)
