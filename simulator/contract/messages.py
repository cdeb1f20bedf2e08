"""Messages between collector, workers and executor during a run."""

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
"""Sent with the end of a run: the state for the next one, a `CarriedState` as JSON."""
OFFSET_HEADER = "X-Offset"
"""Sent with a part of a recording: its offset in the packed file. The answer says how much has arrived."""

TOO_EARLY = 425
"""HTTP status of a collector that is busy with another run of its series: try again."""


# --- worker -> collector --------------------------------------------------------------------------


class Stage(StrEnum):
    """What a worker is ready for."""

    PREPARED = "prepared"
    """Ready to connect, once the tables exist."""
    RUN = "run"
    """Ready to start the measured run together with all others."""
    CHECK = "check"
    """Ready to submit answers, once all have submitted their measurements."""


class Ready(Message):
    """POST /ready: held open until the stage begins, or for some seconds (then try again)."""

    worker: Count
    stage: Stage
    prefilled: Count = 0
    """Events that the worker's prefill stored (stage RUN)."""


@dataclass(frozen=True)
class StoredPart:
    """Events of one worker in the database, numbered from `first`."""

    worker: Count
    first: Count
    count: Count


class Go(Message):
    """Answer to `Ready`. `go` false without `failure`: try again."""

    go: bool
    start_in_s: Instant = 0.0
    first_event: Count = 0
    """Number of the worker's first event, including its prefill (stage PREPARED)."""
    prefill: Count = 0
    """Events that the worker must insert before the start (stage PREPARED)."""
    stored: list[StoredPart] = Field(default_factory=list)
    """The events that query parameters can be drawn from, if there are such queries (stage PREPARED)."""
    sharing_workers: Count | None = None
    """How many workers shared the devices of these events, if the workload has a total number of devices."""
    before_ms: int | None = None
    """Drawn times are before this one, in ms since 1970: later events are still being added."""
    failure: str | None = None


class QueryProgress(Message):
    """A reader's executions of one query so far."""

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
    """Events or queries due but not done; None in a closed loop."""
    latency: Histogram | None = None
    """Of the requests of the window so far, with two significant digits."""
    rows: Count = 0
    bytes: Count = 0
    """Of the answers of the window so far."""
    queries: dict[str, QueryProgress] = Field(default_factory=dict)
    """Per query, if limits may end the run."""


class ProgressAnswer(Message):
    """Answer to `Progress`."""

    ends_in_s: Seconds | None = None
    """When the worker must end early; None: it needn't."""


class GivenAnswer(Message):
    """The first answer to a query that a reader got."""

    query: str
    devices: list[str] | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    """This and the next two: as in `simulator.workloads.drawing.BoundQuery`."""
    columns: list[list[Any]] = Field(default_factory=list)
    """Plain values, as `simulator.oracle.answers.normalize` gives them."""
    malformed: str | None = None
    """Why there are none, if the form is wrong."""


class WorkerAnswers(Message):
    """POST /answers, once from each reader that announced it."""

    # A database may answer NaN, which must not arrive as a missing value. The outermost message's config
    # applies.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    worker: Count
    answers: list[GivenAnswer]
    unchecked: dict[str, str] = Field(default_factory=dict)
    """Query whose answer isn't submitted -> why."""


class WorkerResult(Message):
    """POST /result, once per worker."""

    worker: Count
    node: str
    elapsed_s: Instant
    """Since the common start, when this was sent: shows the offset of the worker's clock."""
    late_at_most_s: Instant | None = None
    """The maximum by which the worker can have started late, from the round trip that told it when; None if
    it was too late to measure."""
    machine: Machine | None = None
    """How busy the worker's machine was during the load."""
    figures: WorkerFigures | None = None
    """Its measurements; None if it measures nothing."""
    failure: str | None = None
    """Why the worker gave up during the run; what it had measured by then is here."""
    chunk: tuple[Count, Count] | None = None
    """For a writer: first number and size of the last chunk of events. All earlier ones are sent, and of the
    chunk as many as complete the worker's count, in encoding order."""
    lacking: dict[str, Count] = Field(default_factory=dict)
    """Nullable column -> how many of the worker's stored events, including a prefill, have no value in it."""
    answers_follow: bool = False
    """Whether the worker will submit `WorkerAnswers`."""

    @property
    def done(self) -> int:
        """Events acknowledged, or queries answered; including failed ones if their number ends the run."""
        if self.figures is None:
            return 0
        return self.figures.count + sum(
            query.errors for query in self.figures.queries if query.each
        )


class Failure(Message):
    """POST /failure: a worker, or the executor for a dead worker, aborts the run."""

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
    """Phases before or after the measurement."""
    RUN = "run"
    VERIFY = "verify"
    CHECK = "check"
    CLEAN_UP = "clean_up"
    DONE = "done"
    FAILED = "failed"


QUIET_S = 10.0
"""The silence of the database that is reported."""


class GroupStatus(Message):
    """What all workers of a role have done in this phase."""

    role: Role
    done: int
    """Events or queries."""
    total: int | None = None
    """The final number; None for a run with a duration."""
    rate_per_s: float | None = None
    """Over the last seconds; None while unknown."""
    p99_ms: float | None = None
    """Over all requests of the window so far."""
    is_open: bool = False
    """Whether there is a schedule, so that times are response times and not service times."""
    recent_p50_ms: float | None = None
    recent_p99_ms: float | None = None
    """Over those answered in the last seconds."""
    rows_per_s: float | None = None
    bytes_per_s: float | None = None
    """In readers' answers, over the last seconds; None for writers."""
    backlog: int | None = None
    """Due but not done; None in a closed loop."""
    retries: int = 0
    failed: int = 0
    """Queries without an answer."""
    minute: MinuteLatency | None = None
    """The latest completed one, for some seconds after its end."""


class DatabaseUse(Message):
    """The database's current CPU use."""

    cpus_used: float
    cpus: float | None = None
    """The CPUs available to it."""


class Status(Message):
    """GET /status."""

    run_id: str = ""
    phase: Phase
    age_s: float
    """Since the collector process began."""
    groups: list[GroupStatus] = Field(default_factory=list)
    """The roles active in this phase: writers, readers, or prefilling workers."""
    elapsed_s: float | None = None
    """Since the common start, in the measured phase."""
    warm_up_s: float = 0.0
    duration_s: float | None = None
    """When a run with a duration ends, since the common start."""
    workers_ready: int = 0
    waiting_for: list[int] = Field(default_factory=list)
    """Workers that the barrier is waiting for (at most 20)."""
    quiet_s: float = 0.0
    """How long nothing has come back from the database."""
    failure: str | None = None
    database: DatabaseUse | None = None
    """Added by the executor; None while unknown."""
    marks: list[Mark] = Field(default_factory=list)
    """Disturbances so far, added by the code that performs them."""
