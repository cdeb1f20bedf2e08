"""What all workers have in common: settings, the common start, the result."""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..build import build
from ..contract import RunSettings, Stage, WorkerFigures, WorkerResult
from ..machine import Reading, measure_machine, node_name, read_machine
from .client import CollectorClient, RunOver

EARLY_S = 0.005
"""So long before the start, a worker whose schedule waits for it gets ready: threads and all take 1 to
2 ms, by which the first requests of an open loop would be late."""


class Worker(ABC):
    """One worker of a run; its group's role says which kind."""

    def __init__(self, settings: RunSettings, number: int, client: CollectorClient) -> None:
        self._data = settings.data
        self._group = settings.group_of(number)
        self._load = self._group.load
        self._number = number
        self._client = client
        self._workload, self._module = build(settings)
        self._late_at_most_s: float | None = None
        self._machine_at_start: Reading | None = None

    @abstractmethod
    def run(self) -> WorkerResult:
        """Do the work, together with all others; what was measured.

        Raises RunOver if the collector gave the run up, SimulatorError or Retryable if this worker did.
        """

    def finish(self) -> None:  # noqa: B027 - most have nothing left to do
        """What is left to do once the result is handed in; raises as `run`."""

    def _await_start(self, prefilled: int = 0, early_s: float = 0.0) -> float:
        """Wait until `early_s` before the common start; the start's instant on this process's
        `perf_counter`.

        Asked twice: the first answer was held until all were ready, so how long it took says nothing
        of its way. Of the second, the round trip is known, and nothing can be later than by that.
        """
        go = self._client.ready(Stage.RUN, prefilled)
        origin = time.perf_counter() + go.start_in_s
        asked = time.perf_counter()
        again = self._client.ready(Stage.RUN, prefilled)
        answered = time.perf_counter()
        if again.start_in_s > 0:
            origin = min(origin, answered + again.start_in_s)
            self._late_at_most_s = answered - asked
        self._machine_at_start = read_machine()
        time.sleep(max(0.0, origin - early_s - time.perf_counter()))
        return origin

    def _result(
        self, elapsed_s: float, figures: WorkerFigures | None = None, **more: Any
    ) -> WorkerResult:
        """The result; `figures`: what was measured; `more`: other fields."""
        begin = self._machine_at_start
        return WorkerResult(
            worker=self._number,
            node=node_name(),
            machine=begin and measure_machine(node_name(), begin, read_machine()),
            elapsed_s=elapsed_s,
            late_at_most_s=self._late_at_most_s,
            figures=figures,
            **more,
        )

    def _check_on(self) -> None:
        """RunOver if the collector has given the run up."""
        if self._client.failure:
            raise RunOver(self._client.failure)


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """No garbage collection meanwhile: its pauses would be charged to the database.

    The loop makes no reference cycles, so memory stays flat (benchmarks/memory.py).
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
