"""What is known of a command while it runs. Its own thread writes, the server's threads read. A slow reader
never keeps the command waiting."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from simulator.contract import GroupStatus, Mark, Phase, Role, RunLimit, Status

from ...show.status import describe_extent, describe_phase, describe_quiet, find_share

MOST_POINTS = 1200
"""Ten minutes, at two points a second."""
MOST_LISTED = 100
"""How many runs and marks are listed: the latest ones."""

Totals = Counter[str]
"""How much a group has `done`, its `retries`, and how much `failed`."""

_COUNTED = (Phase.PREFILL, Phase.RUN)
"""Phases in which groups insert or query. In other phases they do something else."""


@dataclass(frozen=True)
class LiveFigure:
    """A figure of a group in the run under way."""

    key: str
    """Its name on the live page."""
    metric: str
    """Its name at `/metrics`; `{unit}`: events or queries."""
    about: str
    read: Callable[[GroupStatus], float | None]
    scale: float = 1.0
    """The factor to base units, which metrics use."""


LIVE = (
    LiveFigure("rate", "{unit}_per_second", "{Unit} per second over the last seconds.",
               lambda group: group.rate_per_s),
    LiveFigure("backlog", "backlog_{unit}", "{Unit} due but not done (open loop).",
               lambda group: group.backlog),
    LiveFigure("p50", "recent_p50_seconds",
               "p50 of the last seconds: response times; in a closed loop, service times.",
               lambda group: group.recent_p50_ms, 1e-3),
    LiveFigure("p99", "recent_p99_seconds",
               "p99 of the last seconds: response times; in a closed loop, service times.",
               lambda group: group.recent_p99_ms, 1e-3),
    LiveFigure("rows", "answer_rows_per_second",
               "Rows per second in queries' answers, over the last seconds.",
               lambda group: group.rows_per_s),
    LiveFigure("bytes", "answer_bytes_per_second",
               "Bytes per second in queries' answers, over the last seconds.",
               lambda group: group.bytes_per_s),
)  # fmt: skip
"""The figures of a run under way, defined once for the page and `/metrics`."""


class JobState(StrEnum):
    """The state of a campaign's job."""

    LEFT = "left"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Figures:
    """What a scrape reads, all from the same instant."""

    command: str
    target: str
    status: Status | None
    """The status of the run under way."""
    totals: Mapping[Role, Totals]
    """What each group did in all runs of the command. It only rises."""
    runs_ended: int
    marks: int
    jobs: Mapping[JobState, int]
    """In a campaign: how many jobs are in each state."""


@dataclass
class _Section:
    """A part of the page, sent again when it has changed."""

    content: Any
    serial: int = 0


@dataclass
class _Run:
    label: str
    number: int
    status: Status | None = None
    left: Sequence[str] = ()
    begun: float = 0.0
    """In seconds since 1970."""
    origin: float | None = None
    """When its workers began together, in the same unit."""
    totals: dict[Role, Totals] = field(default_factory=dict)


class LiveState:
    """Receives what happens. Describes everything, or what is new since an earlier description."""

    def __init__(
        self,
        command: str,
        target: str,
        shield: Callable[[], AbstractContextManager[None]] = nullcontext,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`shield`: no signal may interrupt its context, since locks are held there."""
        self._shield = shield
        self._clock = clock
        self._lock = threading.Lock()
        self.serial = 0
        """Rises with each change."""
        self._command, self._target = command, target
        self._began = clock()
        self._run: _Run | None = None
        self._runs_begun = self._runs_ended = self._marks_made = 0
        self._ended: str | None = None
        self._totals: dict[Role, Totals] = {}
        self._points: deque[dict[str, Any]] = deque(maxlen=MOST_POINTS)
        self._runs = _Section(deque(maxlen=MOST_LISTED))
        self._marks: _Section = _Section({})
        self._jobs = _Section({})
        self._jobs_left: str | None = None
        self._limits: Sequence[RunLimit] = ()
        self._required: Sequence[RunLimit] = ()
        """The limits that a campaign's requirements state."""

    # --- what happens -----------------------------------------------------------------------------

    def begin_run(self, label: str) -> None:
        """A run begins. May be called again before the run has a status."""
        with self._change():
            self._fold()
            self._runs_begun += self._run is None or self._run.status is not None
            jobs = self._jobs.content.items()
            job = next((name for name, entry in jobs if entry["state"] is JobState.RUNNING), None)
            label = f"{job}: {label}" if job else label
            self._run = _Run(label, self._runs_begun, begun=self._clock())

    def follow(self, status: Status, left: Sequence[str] = ()) -> None:
        """Note the run's progress. `left`: how long things will still take, in words."""
        with self._change():
            run = self._run
            if run is None:
                return
            now = self._clock()
            run.status, run.left = status, left
            if status.phase is Phase.RUN and status.elapsed_s is not None and run.origin is None:
                run.origin = now - status.elapsed_s
            if status.phase in _COUNTED:
                for group in status.groups:
                    own = Totals(done=group.done, retries=group.retries, failed=group.failed)
                    # The maximum of each figure.
                    run.totals[group.role] = run.totals.get(group.role, Totals()) | own
            self._note_marks(run, status.marks)
            point: dict[str, Any] = {"serial": self.serial, "at": now}
            if status.phase in _COUNTED:
                for group in status.groups:
                    point[group.role] = {figure.key: figure.read(group) for figure in LIVE}
            if status.database is not None:
                point["cpus"] = status.database.cpus_used
            self._points.append(point)

    def _note_marks(self, run: _Run, marks: Sequence[Mark]) -> None:
        listed = self._marks.content
        for mark in marks:
            key = run.number, mark.at_s
            shown = {
                "at": (run.origin or self._began) + mark.at_s,
                "took_s": None if mark.ended_s is None else mark.ended_s - mark.at_s,
                "action": mark.action,
                "ok": mark.ok,
                "said": mark.said,
            }
            before = listed.get(key)
            if before is None:
                self._marks_made += 1
                if len(listed) >= MOST_LISTED:
                    del listed[next(iter(listed))]
            if before is None or (before["took_s"] is None and mark.ended_s is not None):
                listed[key] = shown | {"number": before["number"] if before else self._marks_made}
                self._marks.serial = self.serial

    def end_run(self, outcome: str) -> None:
        """The run under way has ended. `outcome`: in a few words."""
        with self._change():
            if self._run is None:
                return
            self._fold()
            self._runs_ended += 1
            self._runs.content.append(
                {"at": self._clock(), "label": self._run.label, "outcome": outcome}
            )
            self._runs.serial = self.serial
            self._run = None

    def plan_jobs(
        self, names: Sequence[str], done: Collection[str], limits: Sequence[RunLimit] = ()
    ) -> None:
        """The jobs of a campaign, which of them are already done, and the limits of those without any."""
        with self._change():
            self._required = limits
            self._jobs.content = {
                name: {"state": JobState.DONE if name in done else JobState.LEFT, "said": None}
                for name in names
            }
            self._jobs.serial = self.serial

    def note_job(self, name: str, state: JobState, detail: str | None = None) -> None:
        """Note the state of a job."""
        with self._change():
            self._jobs.content[name] = {"state": state, "said": detail}
            self._jobs.serial = self.serial

    def note_limits(self, limits: Sequence[RunLimit]) -> None:
        """Note the limits that the following runs have to keep."""
        with self._change():
            self._limits = limits or self._required

    def note_time_left(self, text: str) -> None:
        """Note how long all jobs will still take, in words."""
        with self._change():
            self._jobs_left = text
            self._jobs.serial = self.serial

    def end(self, outcome: str) -> None:
        """The command ends. If several outcomes are given, the first counts."""
        with self._change():
            self._fold()
            self._ended = self._ended or outcome

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Make a change: no signal interrupts it, and nobody sees half of it."""
        with self._shield(), self._lock:
            self.serial += 1
            yield

    def _fold(self) -> None:
        """Add what the run under way has done to the totals of earlier runs."""
        if self._run is not None:
            for role, own in self._run.totals.items():
                self._totals[role] = self._totals.get(role, Totals()) + own
            self._run.totals = {}

    @property
    def has_jobs(self) -> bool:
        """Whether the command is a campaign."""
        return bool(self._jobs.content)

    # --- what is shown -----------------------------------------------------------------------------

    def describe(self, after: int = -1) -> dict[str, Any]:
        """What has changed since the serial number `after`; -1: everything. Its `serial` is the next `after`,
        and `ended` is the outcome once nothing more will come."""
        with self._lock:
            changes = {
                "serial": self.serial,
                "whole": after < 0,
                "now": self._clock(),
                "began": self._began,
                "command": self._command,
                "target": self._target,
                "ended": self._ended,
                "limits": [
                    {
                        "role": Role.READ if limit.query else Role.WRITE,
                        "at_most": limit.at_most,
                        "text": str(limit),
                    }
                    for limit in self._limits
                    if limit.measure.is_time
                ],
                "run": None if self._run is None else _describe_run(self._run),
                "points": [point for point in self._points if point["serial"] > after],
            }
            if self._runs.serial > after:
                changes["runs"] = list(self._runs.content)
            if self._marks.serial > after:
                changes["marks"] = list(self._marks.content.values())
            if self._jobs.serial > after:
                changes["jobs"] = [{"name": name} | job for name, job in self._jobs.content.items()]
                changes["jobs_left"] = self._jobs_left
            return changes

    def read_figures(self) -> Figures:
        """The figures for Prometheus."""
        with self._lock:
            own = {} if self._run is None else self._run.totals
            states = [job["state"] for job in self._jobs.content.values()]
            return Figures(
                command=self._command,
                target=self._target,
                status=None if self._run is None else self._run.status,
                totals={
                    role: self._totals.get(role, Totals()) + own.get(role, Totals())
                    for role in Role
                    if role in self._totals or role in own
                },
                runs_ended=self._runs_ended,
                marks=self._marks_made,
                jobs={state: states.count(state) for state in JobState} if states else {},
            )


def _describe_run(run: _Run) -> dict[str, Any]:
    status = run.status
    if status is None:
        return {"label": run.label, "phase": "", "groups": [], "since": run.begun}
    return {
        "label": run.label,
        "since": run.origin or run.begun,
        "phase": describe_phase(status),
        "share": find_share(status),
        "words": [*describe_extent(status), *run.left],
        "quiet": describe_quiet(status),
        "groups": [
            group.model_dump(mode="json") for group in status.groups if status.phase in _COUNTED
        ],
        "database": None if status.database is None else status.database.model_dump(),
    }
