"""What collector, workers and executor tell each other while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import ConfigDict, Field

from ..histograms import Histogram
from .figures import MinuteLatency, WorkerFigures
from .message import Count, Instant, Message, Seconds
from .resources import Machine, Mark
from .settings import Role

RUN_HEADER, TOKEN_HEADER = "X-Run-Id", "X-Run-Token"
AFTER_HEADER = "X-After"
"""With the word that a run is over: what the next one goes on from, a `CarriedState` as JSON."""
OFFSET_HEADER = "X-Offset"
"""With a part of a recording: where in the packed file it begins. The answer says how much is there."""

TOO_EARLY = 425
"""HTTP status of a collector that is busy with another run of its series: ask again."""


# --- worker -> collector --------------------------------------------------------------------------


class Stage(StrEnum):
    """What a worker is ready for."""

    PREPARED = "prepared"
    """Ready to connect, once the tables are there."""
    RUN = "run"
    """Ready to start the measured run together with all others."""
    CHECK = "check"
    """Ready to hand in answers, once all have handed in what they measured."""


class Ready(Message):
    """POST /ready: held open until the stage begins, or some seconds (then ask again)."""

    worker: Count
    stage: Stage
    prefilled: Count = 0
    """Events that the worker's prefill stored (stage RUN)."""


@dataclass(frozen=True)
class StoredPart:
    """Events of one worker that are in the database: numbered from `first` on."""

    worker: Count
    first: Count
    count: Count


class Go(Message):
    """Answer to `Ready`. `go` false and no `failure`: ask again."""

    go: bool
    start_in_s: Instant = 0.0
    first_event: Count = 0
    """Number of the worker's first event, its prefill's among them (stage PREPARED)."""
    prefill: Count = 0
    """Events that the worker is to insert before the start (stage PREPARED)."""
    stored: list[StoredPart] = Field(default_factory=list)
    """What queries with drawn parameters can be drawn for, if there are such queries (stage PREPARED)."""
    sharing_workers: Count | None = None
    """How many workers shared the devices of these events, if the workload has devices in all."""
    before_ms: int | None = None
    """Drawn times lie before this one, in ms since 1970: of later ones, events are added meanwhile."""
    failure: str | None = None


class QueryProgress(Message):
    """One query, as a reader has asked it so far."""

    latency: Histogram | None = None
    failed: Count = 0


class Progress(Message):
    """POST /progress, once a second while a worker inserts or queries."""

    worker: Count
    stage: Literal["prefill", "run"]
    elapsed_s: Instant
    """Since the common start on the worker's clock (stage run)."""
    done: Count
    """Events acknowledged, or queries answered, in this stage."""
    retries: Count = 0
    failed: Count = 0
    """Queries without an answer."""
    backlog: Count | None = None
    """Events or queries that are due and not done; None of a closed loop."""
    latency: Histogram | None = None
    """Of the requests of the window so far, with two significant digits."""
    rows: Count = 0
    bytes: Count = 0
    """Of the answers of the window so far."""
    queries: dict[str, QueryProgress] = Field(default_factory=dict)
    """Of each query apart, if limits may end the run."""


class ProgressAnswer(Message):
    """Answer to `Progress`."""

    ends_in_s: Seconds | None = None
    """When the worker is to end, before its own end; None: it isn't."""


class GivenAnswer(Message):
    """The first answer to a query that a reader got."""

    query: str
    devices: list[str] | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    """These three as in `simulator.workloads.drawing.BoundQuery`."""
    columns: list[list[Any]] = Field(default_factory=list)
    """Plain values, as `simulator.oracle.answers.normalize` gives them."""
    malformed: str | None = None
    """Why it has none, if its form is wrong."""


class WorkerAnswers(Message):
    """POST /answers, once of each reader that said that it will."""

    # A database may well answer NaN: that must not arrive as a missing value. What counts is the config of
    # the whole message.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    worker: Count
    answers: list[GivenAnswer]
    unchecked: dict[str, str] = Field(default_factory=dict)
    """Query whose answer isn't handed in -> why."""


class WorkerResult(Message):
    """POST /result, once per worker."""

    worker: Count
    node: str
    elapsed_s: Instant
    """Since the common start, when this was sent: shows how far the worker's clock is off."""
    late_at_most_s: Instant | None = None
    """How late the worker can have started at most, by the round trip in which it was told when; None
    if it was told too late to ask again."""
    machine: Machine | None = None
    """How busy the worker's machine was while it wrote or read."""
    figures: WorkerFigures | None = None
    """What it measured; None of one that measures nothing."""
    failure: str | None = None
    """Why the worker gave up during the run; what it had measured by then is here."""
    chunk: tuple[Count, Count] | None = None
    """Of a writer: first number and size of the chunk of events that it was sending last. All before it are
    sent, and of it as many as come to the worker's count, in the order in which they are encoded."""
    lacking: dict[str, Count] = Field(default_factory=dict)
    """Nullable column -> how many of the events that the worker stored, a prefill's among them, have no value
    in it."""
    answers_follow: bool = False
    """Whether the worker will hand in `WorkerAnswers`."""

    @property
    def done(self) -> int:
        """Events acknowledged, or queries answered. Failed ones, too, where their number ends the run."""
        if self.figures is None:
            return 0
        return self.figures.count + sum(
            query.errors for query in self.figures.queries if query.each
        )


class Failure(Message):
    """POST /failure: a worker, or the executor for a worker that died, gives the run up."""

    worker: Count | None
    reason: str


# --- collector -> executor ------------------------------------------------------------------------

STATUS_PREFIX, REPORT_PREFIX, FAILURE_PREFIX = "STATUS ", "REPORT ", "FAILURE "
"""Begin a line of the collector's standard output with a `Status`, a `Report` or a JSON string, for
an executor that reads its log."""


class Phase(StrEnum):
    """Where a run is."""

    START = "start"
    PREPARE = "prepare"
    PREFILL = "prefill"
    BARRIER = "barrier"
    INDEX = "index"
    """Before what is measured, or behind it."""
    RUN = "run"
    VERIFY = "verify"
    CHECK = "check"
    CLEAN_UP = "clean_up"
    DONE = "done"
    FAILED = "failed"


QUIET_S = 10.0
"""After this long without anything from the database, that is reported."""


class GroupStatus(Message):
    """What the workers that do the same have done in this phase, all together."""

    role: Role
    done: int
    """Events or queries."""
    total: int | None = None
    """How many it will be in the end; None if the clock ends the run."""
    rate_per_s: float | None = None
    """Over the last seconds; None as long as nothing is known."""
    p99_ms: float | None = None
    """Of all requests of the window so far."""
    is_open: bool = False
    """Whether there is a schedule, so that times are response times and not service times."""
    recent_p50_ms: float | None = None
    recent_p99_ms: float | None = None
    """Of those that were answered in the last seconds."""
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    """Of readers' answers, over the last seconds; None of writers."""
    backlog: int | None = None
    """Due and not done; None of a closed loop."""
    retries: int = 0
    failed: int = 0
    """Queries without an answer."""
    minute: MinuteLatency | None = None
    """The latest that is over; told for some seconds after its end."""


class DatabaseUse(Message):
    """What the database uses of its machines' CPUs at the moment."""

    cpus_used: float
    cpus: float | None = None
    """What it may use."""


class Status(Message):
    """GET /status."""

    run_id: str = ""
    phase: Phase
    age_s: float
    """Since the collector process began."""
    groups: list[GroupStatus] = Field(default_factory=list)
    """Who is at work in this phase: writers, readers, or those that prefill."""
    elapsed_s: float | None = None
    """Since the common start, in the phase that it begins."""
    warm_up_s: float = 0.0
    duration_s: float | None = None
    """When the run ends by the clock, counted from the common start."""
    workers_ready: int = 0
    waiting_for: list[int] = Field(default_factory=list)
    """Workers that the barrier waits for (at most 20 named)."""
    quiet_s: float = 0.0
    """For how long nothing has come back from the database."""
    failure: str | None = None
    database: DatabaseUse | None = None
    """Added by the executor, which sees it; None while it doesn't."""
    marks: list[Mark] = Field(default_factory=list)
    """What was done to the database so far, added by who does it."""
