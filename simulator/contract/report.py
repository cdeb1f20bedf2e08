"""The outcome of a run: the models of `result.json`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, computed_field, model_validator

from .figures import Measured, MinuteLatency, WorkerSpan, WorkerTimeline
from .message import Message
from .resources import (
    DeletionCost,
    Machine,
    Mark,
    Outage,
    Resources,
    RetentionResult,
    SkippedFault,
    Storage,
)
from .settings import CarriedState, Role

BOUND_PAUSE_SHARE = 0.5
"""Share of the time in which readers of a closed loop had an answer and no further query in flight; from this
share on, their queries per second are the client's."""

LEAST_JUDGED_S = 1.0
"""Readers that were active for less are not judged. What is paid only once (the first execution of each
query, and decoding its answer) is then a large part of their work, and says nothing about later queries. Five
executions of thirteen quick queries take a tenth of a second. On a busy machine 50 queries within 0.16 s cost
920 µs of CPU each, and 5,000 within 1.3 s 81 µs: 0.04 s were paid once."""


class Client(Message):
    """What the load generator itself cost, all workers together."""

    cpu_s: float
    cpu_share: float
    """Of the busiest worker: CPU seconds ÷ its time; at 1.0 it never waited for the database."""
    generate_s: float
    encode_s: float
    ceiling_share: float
    """Rate ÷ the rate that generating and encoding alone would reach."""
    throttled_share: float | None
    """Share of the periods of its CPU limit in which a worker was stopped: of the worker that was stopped
    most often."""
    in_flight: int | None = None
    """Requests that each worker could have in flight. With one, the client's CPU time is part of every
    request's time."""
    pause_share: float | None = None
    """Of readers in a closed loop: the share of time in which a place in flight was free, from an answer to
    the next query."""
    bound: bool
    """Whether the figure is the client's speed, not the database's."""
    bound_reason: str | None = None

    def describe_pause(self) -> str | None:
        """The effect of the readers' pauses on the database; None if unknown."""
        if self.pause_share is None:
            return None
        share = f"{self.pause_share:.0%}"
        if self.in_flight == 1:
            return f"between an answer and the next query the database waited {share} of the time"
        return (
            f"in-flight capacity was idle between an answer and the next query {share} of the time"
        )


class Verification(Message):
    """Whether the database holds what it acknowledged."""

    expected: int
    stored: int | None
    """Events with all their values: an upper bound from counts."""
    ok: bool
    partial: int = 0
    """Events with only some of their values: a lower bound, for a database that stores values separately."""
    columns: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Column with too few or too many values -> actual and expected number."""


class Lookup(Message):
    """Acknowledged events, looked up by device and time in the database."""

    events: int | None = None
    """How many were looked up; None if impossible."""
    missing: int | None = None
    incomplete: int = 0
    """Missing ones of which some values are stored."""
    doubled: int | None = None
    """Stored twice, or never acknowledged."""
    per_group: int | None = None
    """How many consecutive events of a device were counted together: large runs aren't looked up one by
    one."""
    reason: str | None = None
    """Why it was impossible."""


class Lateness(Message):
    """Shares of late events, if fewer came than expected: the others would have come after the run."""

    asked: float
    came: float


class Queryable(Message):
    """How soon events were queryable, for a database that acknowledges them earlier."""

    lag_s: float
    """Time from the last worker's end until all events could be counted, to the precision of the counting
    interval."""
    events_per_s: float
    """Acknowledged events ÷ (window + lag)."""


class WrongAnswer(Message):
    """A wrong answer."""

    query: str
    workers: list[int]
    """The workers that got it."""
    parameters: str
    """Devices and window of this execution, in words."""
    difference: str
    """The first difference."""


class Answers(Message):
    """The first answer to each query of each reader, compared with the right one."""

    checked: int
    """Checked answers, right or wrong."""
    unchecked: int = 0
    reasons: dict[str, list[str]] = Field(default_factory=dict)
    """Why answers weren't checked -> the queries concerned."""
    wrong: list[WrongAnswer] = Field(default_factory=list)


class LongWindows(Message):
    """Queries whose windows exceed the time span of the stored events."""

    stored_ms: int
    queries: dict[str, int]
    """Query -> its window in ms."""


def _leave_out(data: Any, *computed: str) -> Any:
    """A model's fields without computed ones, which are written for other readers of the file."""
    if not isinstance(data, dict):
        return data
    return {name: value for name, value in data.items() if name not in computed}


class GroupResult(Measured):
    """The measurements of a run's writers or readers. Figures are None if the run failed."""

    role: Role
    workers: int
    invalid_reasons: list[str] = Field(default_factory=list)
    count: int | None = None
    """Total events acknowledged, or queries answered."""
    window_s: float | None = None
    rate_per_s: float | None = None
    """Events or queries of the window ÷ (last worker's end − first worker's start)."""
    rate_per_s_mean_duration: float | None = None
    """Acknowledged events ÷ mean worker duration: the formula of the published comparison."""
    metrics_per_s: float | None = None
    """Measured values per second: `rate_per_s` × values per event (workload cpu: ten)."""
    overlap: float | None = None
    """Share of the window in which all workers were active; None if unknown."""
    warm_up_s: float = 0.0
    """How much of the beginning is excluded from all figures."""
    client: Client | None = None
    minutes: list[MinuteLatency] = Field(default_factory=list)
    """Latencies over time, for runs of more than a minute."""
    deletion_cost: DeletionCost | None = None
    """For a run with deletions by retention."""
    slowest_worker: WorkerTimeline | None = None
    """The worker with the lowest rate; the other timelines are only in the sum."""
    per_worker: list[WorkerSpan] = Field(default_factory=list)
    # Only for writers.
    verification: Verification | None = None
    outages: list[Outage] = Field(default_factory=list)
    """The effect of each of the run's marks."""
    lookup: Lookup | None = None
    """For a run with disturbances."""
    lateness: Lateness | None = None
    """Only if fewer events came late than expected."""
    storage: Storage | None = None
    """Disk space of the tables after the run."""
    storage_during: Storage | None = None
    """The same around the middle of it, without a flush; None if it was too short."""
    storage_compacted: Storage | None = None
    """The same after `--compact`."""
    queryable: Queryable | None = None
    """Only for a database in which events become queryable after they are acknowledged."""
    # Only for readers.
    answers: Answers | None = None
    """None if checking was off."""
    long_windows: LongWindows | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def valid(self) -> bool:
        """Whether its figures count."""
        return not self.invalid_reasons

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        return _leave_out(data, "valid")


class EarlyEnd(Message):
    """A run that ended early because it could no longer keep a limit."""

    limit: str
    """The limit as given."""
    at_s: float
    """Since the common start."""
    reason: str
    """The evidence."""

    def __str__(self) -> str:
        return f"ended after {self.at_s:.1f} s: {self.limit} can no longer be kept ({self.reason})"


class RunResult(Message):
    """One run, as in `result.json`: common fields, and a group of writers, of readers, or both."""

    run: int = 1
    fill_level: int | None = None
    """Events in the database when the measured window began, if counted; for readers alone, counted
    afterwards."""
    prefilled: int | None = None
    """Events inserted before the start, outside of all figures; `phases_s` has the time it took."""
    began_at: str | None = None
    ended_at: str | None = None
    """The measured window by the collector's clock, in UTC (ISO 8601)."""
    index_build_s: float | None = None
    """Time to build indexes outside of the measured window: after loading, or between prefill and start."""
    machines: list[Machine] = Field(default_factory=list)
    """The machines on which the workers ran."""
    resources: Resources | None = None
    """The database's resource use meanwhile."""
    marks: list[Mark] = Field(default_factory=list)
    """Disturbances of the database meanwhile."""
    undone: list[SkippedFault] = Field(default_factory=list)
    """Planned disturbances that were not done."""
    retention: RetentionResult | None = None
    """For a run that deletes old events."""
    phases_s: dict[str, float] = Field(default_factory=dict)
    step_s: int = 1
    """The length of each entry of its timelines, which begins at its second: more than one second in runs of
    more than an hour, so that a timeline has at most 3,600 entries."""
    aborted: EarlyEnd | None = None
    """Only for a run that ended early, which is also among its `invalid_reasons`, since its figures cover a
    shorter time than requested."""
    groups: list[GroupResult]

    def group(self, role: Role) -> GroupResult | None:
        """The group with this role, if any."""
        return next((group for group in self.groups if group.role is role), None)

    @property
    def writers(self) -> GroupResult | None:
        """The group of writers."""
        return self.group(Role.WRITE)

    @property
    def readers(self) -> GroupResult | None:
        """The group of readers."""
        return self.group(Role.READ)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def invalid_reasons(self) -> list[str]:
        """The reasons of all groups, each once."""
        return list(dict.fromkeys(text for group in self.groups for text in group.invalid_reasons))

    @property
    def failures(self) -> list[str]:
        """The same, without an early end on purpose."""
        return [text for text in self.invalid_reasons if text != str(self.aborted)]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def valid(self) -> bool:
        """Whether all of its figures count."""
        return not self.invalid_reasons

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        return _leave_out(data, "valid", "invalid_reasons")


class Report(Message):
    """GET /report: one run, complete."""

    run: RunResult
    environment: dict[str, Any]
    """`client` and `database`, as found by the collector."""
    carried: CarriedState
    window_s: tuple[float, float] | None = None
    """The measured window, like `began_at` and `ended_at` of the run, by `simulator.machine.read_clock_s` of
    the collector's machine: for observers on the same machine, independent of wall-clock changes."""
    failure: str | None = None
    """Why the run was aborted; it has what was measured by then, and no further run is possible."""
