"""Where collector and workers run. An executor starts runs, watches them, returns their reports and cleans
up. This file has the shared parts, including the wait for a report; each executor has its own file."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from simulator.contract import Phase, Report, RunSettings, Status

from ...plan.disturbances import Action, Disturbance
from ...plan.target import ExecutorName
from ...system.errors import RunFailed
from ...system.output import note
from ...system.processes import Interrupts
from ..cluster import Place
from ..faults import Doer

Watch = Callable[[Status], None]
"""Called about twice a second with the collector's status and the executor's view of the database."""


class Series(ABC):
    """Runs with one worker count, one after the other."""

    @abstractmethod
    def run(self, settings: RunSettings, timeout_s: float, watch: Watch) -> Report:
        """Make the next run. `timeout_s`: 0 for no timeout. RunFailed if there is no report: then no further
        run is possible. The report's `phases_s` include the phases that only the executor sees: start and
        clean_up."""


class Executor(ABC):
    """A context manager that surrounds all runs of a command."""

    @abstractmethod
    def __enter__(self) -> Executor: ...

    @abstractmethod
    def __exit__(self, *_: object) -> None: ...

    def check_capacity(  # noqa: B027 - not every executor needs it
        self, worker_counts: Sequence[int], in_flight: int
    ) -> None:
        """Called before the first run. ConfigError if runs with this many workers and requests in flight are
        certainly impossible here."""

    def find_doers(self) -> Mapping[Action, Doer]:
        """The disturbances that only this executor can do."""
        return {}

    def check_disturbances(self, disturbances: Sequence[Disturbance]) -> None:  # noqa: B027 - as above
        """Called before the first run. ConfigError if one of these is impossible."""

    @abstractmethod
    def open_series(
        self, settings: Sequence[RunSettings], logs: Path
    ) -> AbstractContextManager[Series]:
        """Prepare the runs with these settings, which differ only in what is stored before them. `logs`: the
        folder for the processes' logs. Nothing of the runs is left when the context ends."""


# --- the wait for a report ------------------------------------------------------------------------

POLL_S = 0.5
"""How often the collector's status is polled."""

_EASY_WORKERS = 250
"""Up to this many workers, the API server is polled at full frequency."""


def ease(workers: int) -> float:
    """The factor for the pauses between requests to the API server, which is busy with many pods: a run of
    1,000 workers makes fewer than 50 requests a minute."""
    return max(1.0, workers / _EASY_WORKERS)


@dataclass(frozen=True)
class ReportArrived:
    """The run is over, and this is its report."""

    report: Report


@dataclass(frozen=True)
class Failed:
    """There will be no report."""

    reason: str


@dataclass(frozen=True)
class PartChanged:
    """An event of a part of the run, which only its executor understands. A plain text is for the user."""

    news: Any


Event = ReportArrived | Failed | PartChanged | Status
"""Events from an executor's threads."""

_THREADS_POLL_S = 0.1


@dataclass(frozen=True)
class Problem:
    """A reason to end the run if it lasts for `patience_s`. Some problems resolve themselves."""

    text: str
    patience_s: float = 0.0
    rank: int = 0
    """The problem with the lowest rank is reported: a pod's is more specific than its Job's."""


class Problems:
    """The problem of each part of a run, and since when it has lasted."""

    def __init__(self) -> None:
        self._problems: dict[str, tuple[float, Problem]] = {}

    def note(self, part: str, problem: Problem | None) -> None:
        """Set the problem of a part; None clears it."""
        if problem is None:
            self._problems.pop(part, None)
            return
        since, before = self._problems.get(part, (time.monotonic(), None))
        if before != problem:
            self._problems[part] = (since, problem)

    def first_due(self) -> float | None:
        """When the next problem will have lasted too long, by `time.monotonic()`."""
        due = (since + problem.patience_s for since, problem in self._problems.values())
        return min(due, default=None)

    def raise_due(self) -> None:
        """RunFailed if a problem has lasted too long."""
        now = time.monotonic()
        due = [
            (problem.rank, since + problem.patience_s, problem.text)
            for since, problem in self._problems.values()
            if since + problem.patience_s <= now
        ]
        if due:
            raise RunFailed(min(due)[2])

    def find_lasting(self, seconds: float) -> Problem | None:
        """The first problem that has lasted this long, whether due or not."""
        until = time.monotonic() - seconds
        problems = self._problems.values()
        return next((problem for since, problem in problems if since <= until), None)

    def first_text(self) -> str | None:
        """The most specific problem, whether due or not."""
        ranked = [(problem.rank, since, problem.text) for since, problem in self._problems.values()]
        return min(ranked)[2] if ranked else None


class RunUnderWay(ABC):
    """The processes or pods of one or several runs, as seen while waiting for a report."""

    def __init__(self) -> None:
        self.events: SimpleQueue[Event] = SimpleQueue()
        self.problems = Problems()
        self._threads: list[threading.Thread] = []

    def begin(self, work: Callable[..., None], *arguments: Any, vital: bool = True) -> None:
        """Do `work` in a thread until `end_threads`. If it fails, so does the run. If it isn't `vital`, the
        user only gets a warning."""

        def do() -> None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001 - the run must not wait for a dead thread
                text = (
                    f"{work.__name__} failed: unexpected {type(error).__name__}: {error}; a defect"
                )
                self.events.put(
                    Failed(text) if vital else PartChanged(f"warning: {text}; the run continues")
                )

        thread = threading.Thread(target=do, name=work.__name__, daemon=True)
        self._threads.append(thread)
        thread.start()

    def end_threads(self, stop: Callable[[], None], patience_s: float) -> None:
        """Make sure that all threads have ended: one that still reads at exit can abort the interpreter."""
        until = time.monotonic() + patience_s
        for thread in self._threads:
            while thread.is_alive() and time.monotonic() < until:
                stop()
                thread.join(_THREADS_POLL_S)

    def take(self, news: Any) -> None:
        """Print a text for the user, or pass a part's event to `notice`."""
        if isinstance(news, str):
            note(news)
        else:
            self.notice(news)

    @abstractmethod
    def notice(self, news: Any) -> None:
        """Process a part's event, and update its problem."""

    def check(self) -> None:  # noqa: B027 - not every run needs it
        """Called at least twice a second, to check what no event reports."""

    @abstractmethod
    def describe_start(self) -> str:
        """What a run without a status is waiting for, in a few words."""


@dataclass(frozen=True)
class Arrival:
    """A report, with what was observed while waiting for it."""

    report: Report
    heard_at: float | None
    """When the collector first answered, by `time.monotonic()`; None if its report was its first answer."""
    age_s: float
    """How old the collector was then."""


def await_report(run: RunUnderWay, run_id: str, deadline: float | None, show: Watch) -> Arrival:
    """Wait for the run's report. RunFailed if there will be none, or none by the deadline."""
    began = time.monotonic()
    heard_at: float | None = None
    age_s = 0.0
    last: Status | None = None
    while True:
        event = _next_event(run, deadline)
        if isinstance(event, ReportArrived):
            return Arrival(event.report, heard_at, age_s)
        if isinstance(event, Failed):
            raise RunFailed(event.reason)
        if isinstance(event, PartChanged):
            run.take(event.news)
        elif isinstance(event, Status):
            if event.run_id == run_id:  # a late event of the previous run doesn't count
                if heard_at is None:
                    heard_at, age_s = time.monotonic(), event.age_s
                last = event
                show(event)
        elif last is None:
            show(Status(phase=Phase.START, age_s=time.monotonic() - began))
        run.check()
        run.problems.raise_due()
        raise_if_late(run, deadline, last)


def _next_event(run: RunUnderWay, deadline: float | None) -> Event | None:
    """The next event, or None when something else is due first."""
    due = [at for at in (deadline, run.problems.first_due()) if at is not None]
    wait_s = min([POLL_S, *(at - time.monotonic() for at in due)])
    try:
        return run.events.get(timeout=max(0.0, wait_s))
    except Empty:
        return None


def raise_if_late(run: RunUnderWay, deadline: float | None, last: Status | None) -> None:
    """RunFailed if the deadline has passed, with the run's progress and problems."""
    if deadline is None or time.monotonic() < deadline:
        return
    text = "the run was not done when --timeout was reached: "
    text += describe_progress(last) if last else run.describe_start()
    problem = run.problems.first_text()
    raise RunFailed(f"{text}; {problem}" if problem else text)


def describe_progress(status: Status) -> str:
    """How far a run has got, for an error message."""
    text = f"phase {status.phase}"
    for group in status.groups:
        text += f", {group.done}" + (f" of {group.total} done" if group.total else " done")
    if status.elapsed_s is not None and status.duration_s:
        text += f", {status.elapsed_s:.0f} of {status.duration_s:g} s"
    if status.phase is Phase.BARRIER and status.waiting_for:
        text += f", waiting for workers {', '.join(map(str, status.waiting_for))}"
    return text


def make_executor(
    name: ExecutorName,
    interrupts: Interrupts,
    place: Place,
    values: Mapping[str, Any],
    database_pids: Collection[int] = (),
) -> Executor:
    """The executor of that name. `place` and the chart's `values` are for Kubernetes, the database's
    processes for this machine."""
    if name is ExecutorName.LOCAL:
        from .local import LocalExecutor

        return LocalExecutor(interrupts, database_pids)
    from .kubernetes import KubernetesExecutor

    return KubernetesExecutor(interrupts, place, values)
