"""What a run came to: the models of `result.json`."""

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
"""Share of the time in which readers of a closed loop had an answer and no further question under way, from
which on their queries per second are the client's."""

LEAST_JUDGED_S = 1.0
"""Readers that were at work for less are not judged: what is paid only once (the first question of each
query, its first answer, which is decoded) is then much of all they did, and says nothing of the questions
that would follow. Five executions of thirteen quick queries take a tenth of a second. On a busy machine
50 questions within 0.16 s cost 920 µs of CPU each, and 5,000 within 1.3 s 81: 0.04 s were paid once."""


class Client(Message):
    """What the load generator itself cost, all workers together."""

    cpu_s: float
    cpu_share: float
    """Of the busiest worker: CPU seconds ÷ its time; 1.0 never waited for the database."""
    generate_s: float
    encode_s: float
    ceiling_share: float
    """Rate ÷ the rate that generating and encoding alone would reach."""
    throttled_share: float | None
    """Of the periods of its CPU limit, those in which it was stopped: the worker's that was most often."""
    in_flight: int | None = None
    """Requests that each worker could have under way at once. With one, the client's CPU time is a part
    of every request's time."""
    pause_share: float | None = None
    """Of readers in a closed loop: the share of their places' time from an answer to the next question."""
    bound: bool
    """The number is the client's speed, not the database's."""
    bound_reason: str | None = None

    def describe_pause(self) -> str | None:
        """What the readers' pauses mean for the database; None if they aren't known."""
        if self.pause_share is None:
            return None
        share = f"{self.pause_share:.0%}"
        if self.in_flight == 1:
            return f"between an answer and the next query the database waited {share} of the time"
        return (
            f"places in flight were idle between an answer and the next query {share} of the time"
        )


class Verification(Message):
    """Whether the database holds what was acknowledged."""

    expected: int
    stored: int | None
    """Events with all their values, as far as counts tell: no more than this."""
    ok: bool
    partial: int = 0
    """Events with only a part of their values, at least, in a database that keeps values apart."""
    columns: dict[str, tuple[int, int]] = Field(default_factory=dict)
    """Column with too few or too many values -> how many there are, and how many there should be."""


class Lookup(Message):
    """What was acknowledged, looked up by device and time in what the database holds."""

    events: int | None = None
    """How many were looked for; None if they couldn't be."""
    missing: int | None = None
    incomplete: int = 0
    """Of the missing ones, those of which some values are there."""
    doubled: int | None = None
    """Stored twice, or by nobody that was acknowledged."""
    per_group: int | None = None
    """So many consecutive events of a device were counted together: of a large run not each by itself."""
    reason: str | None = None
    """Why they couldn't be."""


class Lateness(Message):
    """Shares of late events, where fewer came than were to: the others would have come after the run."""

    asked: float
    came: float


class Queryable(Message):
    """How fast events could be queried, of a database that acknowledges them before that."""

    lag_s: float
    """Time from the last worker's end until all events could be counted; as exact as the interval
    between two counts."""
    events_per_s: float
    """Acknowledged events ÷ (window + lag)."""


class WrongAnswer(Message):
    """An answer that isn't the right one."""

    query: str
    workers: list[int]
    """Who got it."""
    parameters: str
    """Devices and window of this execution, in words."""
    difference: str
    """The first row that differs, and how."""


class Answers(Message):
    """The first answer to each query of each reader, beside the right one."""

    checked: int
    """Right or wrong."""
    unchecked: int = 0
    reasons: dict[str, list[str]] = Field(default_factory=dict)
    """Why answers weren't checked -> to which queries."""
    wrong: list[WrongAnswer] = Field(default_factory=list)


class LongWindows(Message):
    """Queries whose windows are longer than the time of the stored events: they get these only."""

    stored_ms: int
    queries: dict[str, int]
    """Query -> its window in ms."""


def _leave_out(data: Any, *computed: str) -> Any:
    """A model's fields without those that are computed: they are written for other readers of the file."""
    if not isinstance(data, dict):
        return data
    return {name: value for name, value in data.items() if name not in computed}


class GroupResult(Measured):
    """What the writers, or the readers, of a run measured. Figures are None if the run failed."""

    role: Role
    workers: int
    invalid_reasons: list[str] = Field(default_factory=list)
    count: int | None = None
    """Events that were acknowledged, or queries that were answered, in all."""
    window_s: float | None = None
    rate_per_s: float | None = None
    """Events or queries of the window ÷ (last worker's end − first worker's start)."""
    rate_per_s_mean_duration: float | None = None
    """Acknowledged events ÷ mean worker duration: the formula of the published comparison."""
    metrics_per_s: float | None = None
    """Measured values per second: `rate_per_s` times those of an event (workload cpu: ten)."""
    overlap: float | None = None
    """Share of the window in which all workers were active; None if that can't be said."""
    warm_up_s: float = 0.0
    """How much of the beginning is in no figure."""
    client: Client | None = None
    minutes: list[MinuteLatency] = Field(default_factory=list)
    """Latencies over time, of a run of more than a minute."""
    deletion_cost: DeletionCost | None = None
    """Of a run with a retention in which something was deleted."""
    slowest_worker: WorkerTimeline | None = None
    """The worker with the lowest rate; the others' timelines are only in the sum."""
    per_worker: list[WorkerSpan] = Field(default_factory=list)
    # Of writers.
    verification: Verification | None = None
    outages: list[Outage] = Field(default_factory=list)
    """What each of the run's marks did."""
    lookup: Lookup | None = None
    """Of a run in which something was done to the database."""
    lateness: Lateness | None = None
    """Only if fewer events came late than were to."""
    storage: Storage | None = None
    """What the tables take on disk after the run."""
    storage_during: Storage | None = None
    """The same about the middle of it, when nothing is flushed; None if it was too short for that."""
    storage_compacted: Storage | None = None
    """The same after `--compact`."""
    queryable: Queryable | None = None
    """Only for a database in which events can be queried later than they are acknowledged."""
    # Of readers.
    answers: Answers | None = None
    """None if they weren't to be checked."""
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
    """A run that was ended since it could not keep a limit any more."""

    limit: str
    """As it was given."""
    at_s: float
    """Since the common start."""
    reason: str
    """How that showed."""

    def __str__(self) -> str:
        return f"ended after {self.at_s:.1f} s: {self.limit} can no longer be kept ({self.reason})"


class RunResult(Message):
    """One run, as in `result.json`: what all runs have, and a group of writers, of readers, or both."""

    run: int = 1
    fill_level: int | None = None
    """Events in the database when the measured window began, if they were counted; of readers alone, counted
    after it."""
    prefilled: int | None = None
    """Events that were inserted before the start, outside of all figures; `phases_s` has their time."""
    began_at: str | None = None
    ended_at: str | None = None
    """The measured window by the collector's clock, in UTC (ISO 8601)."""
    index_build_s: float | None = None
    """How long it took to build indexes outside of the measured window: once the events were loaded, or
    between prefill and start."""
    machines: list[Machine] = Field(default_factory=list)
    """Those on which the workers ran."""
    resources: Resources | None = None
    """What the database used meanwhile."""
    marks: list[Mark] = Field(default_factory=list)
    """What was done to the database meanwhile."""
    undone: list[SkippedFault] = Field(default_factory=list)
    """What was to be done to the database, and wasn't."""
    retention: RetentionResult | None = None
    """Of a run whose events are deleted when they are too old."""
    phases_s: dict[str, float] = Field(default_factory=dict)
    step_s: int = 1
    """How long each entry of its timelines is, which begins with its second: longer than one second in runs
    of more than an hour, so that a timeline has 3,600 entries at most."""
    aborted: EarlyEnd | None = None
    """Only of a run that was ended early: that is among its `invalid_reasons`, too, since its figures are of
    a shorter time than was asked for."""
    groups: list[GroupResult]

    def group(self, role: Role) -> GroupResult | None:
        """That of these workers, if there is one."""
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
        """Those of all groups, each once."""
        return list(dict.fromkeys(text for group in self.groups for text in group.invalid_reasons))

    @property
    def failures(self) -> list[str]:
        """The same, but that it was ended early on purpose."""
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
    """What was measured, as `began_at` and `ended_at` of the run, by `simulator.machine.read_clock_s` of the
    collector's machine: for who looks at the same machine, however its wall clock is set meanwhile."""
    failure: str | None = None
    """Why the run was given up; what had been measured by then is here, and no further run can be made."""
