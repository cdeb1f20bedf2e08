"""Collector and workers as pods: the chart in deployment/, installed for each worker count and removed
after its runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simulator.contract import Phase, Report, RunSettings

from ...cluster import Helm, Place, merge_chart_values
from ...disturbances import Action, Disturbance, Doer
from ...errors import RunFailed
from ...signals import Interrupts
from ..base import Executor, Series, Watch
from .access import may_use_proxy
from .capacity import find_refusal
from .disturbing import PodDisturber
from .nodes import read_nodes
from .problems import UNSCHEDULABLE_PATIENCE_S
from .release import Release

# Pulling the image over a slow line takes minutes; a pod that never can is noticed by its state.
_READY_TIMEOUT_S = 900.0
_CAPACITY_POLL_S = 1.0


class KubernetesExecutor(Executor):
    """Installs a release per worker count, of a name of its own, and watches its Jobs and pods."""

    def __init__(self, interrupts: Interrupts, place: Place, values: Mapping[str, Any]) -> None:
        """`values`: of the chart, as the config file gives them."""
        self._interrupts = interrupts
        self._place = place
        self._values = dict(values)
        self._helm = Helm(place, interrupts.hurry.is_set)

    def __enter__(self) -> KubernetesExecutor:
        self._helm.find_version()
        self._client = self._place.make_client()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def check_capacity(self, worker_counts: Sequence[int]) -> None:
        values = merge_chart_values(self._values)
        until = time.monotonic() + UNSCHEDULABLE_PATIENCE_S
        while True:
            nodes = read_nodes(self._client)
            if nodes is None:
                return
            refusal = find_refusal(worker_counts, values, nodes, self._place.namespace)
            if refusal is None:
                return
            if not refusal.may_pass or time.monotonic() > until:
                raise RunFailed(refusal.text)
            # Wait as long as for the scheduler: other pods may be about to end.
            time.sleep(_CAPACITY_POLL_S)

    def find_doers(self) -> Mapping[Action, Doer]:
        return PodDisturber(self._client, self._place.namespace).doers()

    def check_disturbances(self, disturbances: Sequence[Disturbance]) -> None:
        PodDisturber(self._client, self._place.namespace).check(disturbances)

    @contextmanager
    def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        settings = [
            one.model_copy(update={"ready_timeout_s": _READY_TIMEOUT_S}) for one in settings
        ]
        if may_use_proxy(self._client, self._place.namespace):
            with self.install(settings, logs) as release:
                yield release
        else:
            yield _OneByOne(self, settings, logs)

    @contextmanager
    def install(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Release]:
        """One release for these runs, removed in the end."""
        release = Release(self._interrupts, self._place, self._helm, self._values, settings, logs)
        try:
            release.start()
            yield release
        except RunFailed as error:
            try:
                release.clean_up(failed=True)
            except RunFailed as left:
                raise RunFailed(f"{error.message}\n{left.message}") from error
            raise
        except BaseException:
            release.clean_up(failed=True)
            raise
        else:
            release.clean_up(failed=False)


class _OneByOne(Series):
    """A release for each run: without a way to the collector, nobody could tell it that its report
    has been read and that the next run may begin."""

    def __init__(
        self, executor: KubernetesExecutor, settings: Sequence[RunSettings], logs: Path
    ) -> None:
        self._executor = executor
        self._numbers = {one.run_id: number for number, one in enumerate(settings, 1)}
        self._logs = logs

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        logs = self._logs / f"run-{self._numbers[settings.run_id]:02d}"
        logs.mkdir()
        with self._executor.install([settings], logs) as release:
            report = release.run(settings, timeout_s, watch)
            ended = time.monotonic()
        report.phases_s[Phase.CLEAN_UP] += time.monotonic() - ended
        return report
