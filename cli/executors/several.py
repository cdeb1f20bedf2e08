"""Several executors that share a run's workers out, for databases that one cluster can't load.

The first has the collector. The others' workers come to it over the network, by the messages of any worker:
one barrier, one merged result, and how late each began is bounded by when its messages came, as between pods.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from simulator.contract import Phase, Report, RunSettings, Status

from ..errors import RunFailed
from ..faults.injector import Action, Disturbance, Doer
from .base import Executor, Part, PartSeries, Series, SingleExecutor, Watch


class SeveralExecutors(Executor):
    """The first has the collector and does what is done to the database; workers are dealt to all in turn."""

    def __init__(self, executors: Mapping[str, SingleExecutor], collector: str) -> None:
        """`executors`: by name, two at least. `collector`: where workers of the others reach it (a URL)."""
        self._executors = executors
        self._first = next(iter(executors.values()))
        self._parts = {
            name: Part(number, len(executors), collector) for number, name in enumerate(executors)
        }
        self._entered = ExitStack()

    def __enter__(self) -> SeveralExecutors:
        with ExitStack() as stack:
            for executor in self._executors.values():
                stack.enter_context(executor)
            self._entered = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered.__exit__(*error)

    def check_capacity(self, worker_counts: Sequence[int], in_flight: int) -> None:
        for name, executor in self._executors.items():
            counts = [len(self._parts[name].list_workers(count)) for count in worker_counts]
            executor.check_capacity(list(filter(None, counts)), in_flight)

    def find_doers(self) -> Mapping[Action, Doer]:
        return self._first.find_doers()

    def check_disturbances(self, disturbances: Sequence[Disturbance]) -> None:
        self._first.check_disturbances(disturbances)

    @contextmanager
    def open_series(self, settings: Sequence[RunSettings], logs: Path) -> Iterator[Series]:
        workers = settings[0].workers
        counts = {name: len(part.list_workers(workers)) for name, part in self._parts.items()}
        opened: dict[str, PartSeries] = {}
        with ExitStack() as stack:
            for name, executor in self._executors.items():
                if counts[name]:
                    folder = logs / name if opened else logs
                    folder.mkdir(exist_ok=True)
                    series = executor.open_part(settings, folder, self._parts[name])
                    opened[name] = stack.enter_context(series)
            yield _SharedSeries(opened, counts)


class _SharedSeries(Series):
    def __init__(self, opened: Mapping[str, PartSeries], counts: Mapping[str, int]) -> None:
        """`opened`: of the executors that have workers; `counts`: how many each has."""
        self._leader, *_ = opened.values()
        self._helpers = dict(list(opened.items())[1:])
        self._counts = counts

    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        over = threading.Event()
        helpers = [_Helper(name, series, settings, over) for name, series in self._helpers.items()]

        def show(status: Status) -> None:
            # The collector listens from then on.
            if status.phase is not Phase.START:
                for helper in helpers:
                    helper.ensure_started()
            watch(status)

        try:
            report = self._leader.run(settings, timeout_s, show)
        finally:
            over.set()
            for helper in helpers:
                helper.end()
        report.environment["executors"] = {
            name: {"workers": count} for name, count in self._counts.items()
        }
        for helper in helpers:
            report.environment["executors"][helper.name] |= helper.environment
        return report


class _Helper:
    """Another executor's workers in one run, looked after by a thread."""

    def __init__(
        self, name: str, series: PartSeries, settings: RunSettings, over: threading.Event
    ) -> None:
        self.name = name
        self.environment: Mapping[str, Any] = {}
        """Where they ran."""
        self._series = series
        self._settings = settings
        self._over = over
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def ensure_started(self) -> None:
        """Begin, if that has not been done; RunFailed if the workers can't go on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        elif self._failure is not None:
            raise RunFailed(f"executor {self.name}: {self._failure}") from self._failure

    def _work(self) -> None:
        try:
            self.environment = self._series.assist(self._settings, self._over)
        except Exception as error:  # noqa: BLE001 - raised where the run is waited for
            self._failure = error

    def end(self) -> None:
        """Wait until its workers have ended: the next run must not share the machines with them."""
        if self._thread is not None:
            self._thread.join()
