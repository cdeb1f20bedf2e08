"""Every message between the command line, the collector and the workers: one pydantic model each.

Times are seconds on the sender's monotonic clock unless a name ends in another unit; no two
machines' wall clocks are ever compared. The models of a run's report are those of `result.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .conditions import Condition

MAX_WORKERS = 100_000


class Message(BaseModel):
    """Base of all messages: unknown fields are refused, and no error shows a value."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


def split_list(value: object) -> Any:
    """ "a, b" -> ["a", "b"], so that lists can be written as in the reference and on a command line."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


CommaList = Annotated[list[str], BeforeValidator(split_list)]


class PrimaryKey(StrEnum):
    """Who makes the primary key, and how."""

    SQL = "sql"
    """The database: standard identity column, its sequence cached for one batch."""
    DB = "db"
    """The database: its own older way (PostgreSQL's serial)."""
    CLIENT = "client"
    """The worker, from the event's content."""
    UUID = "uuid"
    """The database: a random UUID."""
    NONE = "none"
    """Nobody: the table has no key column."""


class Tables(StrEnum):
    """One table, or four to which the events are dealt in turn."""

    SINGLE = "single"
    MULTIPLE = "multiple"


class Timestamps(StrEnum):
    """Whether a run on existing data goes on in time or starts again at the first timestamp."""

    CONTINUE = "continue"
    RESTART = "restart"


class Role(StrEnum):
    """What the workers of a group do."""

    WRITE = "write"
    """Insert events."""
    READ = "read"
    """Ask queries."""
    CHECK = "check"
    """Connect, and change nothing."""


def _option(default: Any, description: str, role: Role | None = None, **limits: Any) -> Any:
    """A field that is an option of the command line: of commands with this role, or of all."""
    return Field(
        default, description=description, json_schema_extra={"option": role or True}, **limits
    )


def fields_of(model: type[BaseModel], role: Role | None = None) -> set[str]:
    """The fields of a model that are options of the command line, for this role."""
    found = set()
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get("option") in (True, role):
            found.add(name)
    return found


class Load(Message):
    """What one group of workers does. The command line fills it, the workers get it, the result
    keeps it: a field is named here and nowhere else.

    `alias` is the field's name on the command line and in `result.json` where that differs.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, validate_by_name=True)

    role: Role = Role.WRITE
    workers: int = Field(1, ge=1, le=MAX_WORKERS)
    """How many take part."""
    primary_key: Annotated[PrimaryKey, Condition.KEY] = _option(
        PrimaryKey.DB,
        "Who makes the primary key: the database by an identity column (sql), in its own older way"
        " (db: serial) or as a UUID (uuid), the worker from the event (client), or nobody (none).",
        Role.WRITE,
    )
    tables: Annotated[Tables, Condition.KEY] = _option(
        Tables.SINGLE, "Insert into one table, or into four in turn.", Role.WRITE
    )
    events: int = _option(10_000, "Events per worker.", Role.WRITE, ge=1, alias="num_inserts")
    batch: Annotated[int, Condition.BATCH] = _option(
        0, "Events per request; 0: each event is a request of its own.", Role.WRITE, ge=0
    )
    runs: int = _option(3, "How often each worker asks each query.", Role.READ, ge=1)
    queries: CommaList | None = None
    """Of readers: the queries to ask; None: all that the module has for the workload."""


class DataSet(Message):
    """Which events are generated, and what they are added to."""

    workload: str = _option("temperature", "What is generated.")
    workload_options: dict[str, Any] = {}
    seed: int = _option(
        0, "Other events of the same kind; the same seed gives the same events.", ge=0, le=2**64 - 1
    )
    prefill: int = _option(0, "Insert this many events before the measured run, in batches.", ge=0)
    clean: bool = _option(True, "Drop and recreate the tables before each run.")
    timestamps: Timestamps = _option(
        Timestamps.CONTINUE,
        "On existing data: go on in time, or start again at the first timestamp.",
    )


class Carried(Message):
    """What a run leaves to the one that continues it."""

    next_event: int
    """First event number that no worker has used."""
    stored: int | None
    """Events in the database."""


class Group(Message):
    """Workers of a run that do the same: those numbered from `first` to before `end`."""

    first: int = Field(0, ge=0)
    load: Load

    @property
    def end(self) -> int:
        """The number after that of the last worker."""
        return self.first + self.load.workers


class RunSettings(Message):
    """All that a collector or worker needs to know of its run. May hold passwords: never logged."""

    run_id: str
    token: str = Field(repr=False)
    target: str
    module: str
    options: dict[str, Any] = Field(repr=False)
    data: DataSet = DataSet()
    groups: list[Group] = Field(min_length=1)
    after: Carried | None = None
    """What the run before left, if this one follows it on the same data. Ignored if the data set is
    `clean`; without it the collector counts what is stored."""
    ready_timeout_s: float = 120
    """How long all workers may take to become ready."""
    silence_timeout_s: float = 60
    """After how long without progress from a worker the run is given up."""
    linger_s: float = 600
    """How long a collector waits, after the run's end, to be asked for its report."""

    @property
    def workers(self) -> int:
        """The workers of all groups."""
        return sum(group.load.workers for group in self.groups)

    def groups_of(self, role: Role) -> list[Group]:
        """The groups that do this."""
        return [group for group in self.groups if group.load.role is role]

    def group_of(self, worker: int) -> Group:
        """The group that a worker belongs to; KeyError if there is no such worker."""
        for group in self.groups:
            if group.first <= worker < group.end:
                return group
        raise KeyError(worker)


def grouped(*loads: Load) -> list[Group]:
    """Groups with these loads, the workers numbered through."""
    groups: list[Group] = []
    for load in loads:
        groups.append(Group(first=groups[-1].end if groups else 0, load=load))
    return groups


RUN_HEADER, TOKEN_HEADER = "X-Run-Id", "X-Run-Token"

TOO_EARLY = 425
"""HTTP status of a collector that is busy with another run of its series: ask again."""


# --- worker -> collector --------------------------------------------------------------------------


class Stage(StrEnum):
    """What a worker is ready for."""

    PREPARED = "prepared"
    """To connect, once the tables are there."""
    RUN = "run"
    """To start the measured run together with all others."""


class Ready(Message):
    """POST /ready: held open until the stage begins, or some seconds (then ask again)."""

    worker: int
    stage: Stage
    prefilled: int = 0
    """Events that the worker's prefill stored (stage RUN)."""


class Go(Message):
    """Answer to `Ready`. `go` false and no `failure`: ask again."""

    go: bool
    start_in_s: float = 0.0
    first_event: int = 0
    failure: str | None = None


class Progress(Message):
    """POST /progress, once a second while a worker inserts or queries."""

    worker: int
    stage: Literal["prefill", "run"]
    elapsed_s: float
    """Since the common start on the worker's clock (stage run)."""
    done: int
    """Events acknowledged, or queries answered, in this stage."""
    retries: int = 0


class WorkerInsert(Message):
    """What one worker measured while inserting. Times count from the common start."""

    start_s: float
    end_s: float
    events: int
    """Acknowledged by the database."""
    cpu_s: float
    """CPU of the whole process in [start_s, end_s]."""
    generate_s: float
    encode_s: float
    """CPU spent making the events and payloads that were sent in the window. The first of them are
    made before it opens, so that this is no part of `cpu_s`."""
    ceiling_per_s: float
    """Events per CPU second that generating and encoding alone would reach in this worker."""
    histogram: str
    """Latency of each request in µs: base64 of a compressed HDR histogram (V2)."""
    timeline: list[tuple[int, int]]
    """(second, events acknowledged in it)."""
    retries: int
    errors: dict[str, int]
    """Errors met by kind, those that a retry cured included."""
    throttled_share: float | None
    """Share of the container's scheduling periods that its CPU limit cut short, if known."""


class QueryRun(Message):
    """One execution of one query by one worker; `error` instead of the figures if it failed."""

    query: str
    run: int
    worker: int
    duration_s: float | None
    rows: int | None
    error: str | None = None


class WorkerQueries(Message):
    """What one worker asked. Times count from the common start."""

    start_s: float
    end_s: float
    executions: list[QueryRun]


class WorkerResult(Message):
    """POST /result, once per worker."""

    worker: int
    node: str
    elapsed_s: float
    """Since the common start, when this was sent: shows how far the worker's clock is off."""
    insert: WorkerInsert | None = None
    queries: WorkerQueries | None = None

    @property
    def done(self) -> int:
        """Events acknowledged and queries answered."""
        inserted = self.insert.events if self.insert else 0
        return inserted + (len(self.queries.executions) if self.queries else 0)


class Failure(Message):
    """POST /failure: a worker, or the executor for a worker that died, gives the run up."""

    worker: int | None
    reason: str


# --- collector -> executor ------------------------------------------------------------------------

STATUS_PREFIX, REPORT_PREFIX, FAILURE_PREFIX = "STATUS ", "REPORT ", "FAILURE "
"""Begin a line of the collector's standard output with a `Status`, a `Report` or a JSON string, for
an executor that can read its log but not reach it."""


class Phase(StrEnum):
    """Where a run is."""

    START = "start"
    PREPARE = "prepare"
    PREFILL = "prefill"
    BARRIER = "barrier"
    RUN = "run"
    VERIFY = "verify"
    CLEAN_UP = "clean_up"
    DONE = "done"
    FAILED = "failed"


class Status(Message):
    """GET /status."""

    run_id: str = ""
    phase: Phase
    age_s: float
    """Since the collector process began."""
    done: int = 0
    """Events (or queries) in this phase, of all workers."""
    total: int = 0
    rate_per_s: float | None = None
    retries: int = 0
    workers_ready: int = 0
    waiting_for: list[int] = []
    """Workers that the barrier waits for (at most 20 named)."""
    quiet_s: float = 0.0
    """For how long nothing has come back from the database."""
    failure: str | None = None


class LatencyMs(Message):
    """Percentiles of the requests' latency over all workers, in milliseconds."""

    p50: float
    p90: float
    p99: float
    p99_9: float
    max: float


class Client(Message):
    """What the load generator itself cost, all workers together."""

    cpu_s: float
    cpu_share: float
    """CPU seconds ÷ (workers × window): 1.0 is a worker that never waited for the database."""
    generate_s: float
    encode_s: float
    ceiling_share: float
    """Rate ÷ the rate that generating and encoding alone would reach."""
    throttled_share: float | None
    bound: bool
    """The number is the client's speed, not the database's."""
    bound_reason: str | None = None


class Verification(Message):
    """Whether the database holds what was acknowledged."""

    expected: int
    stored: int | None
    ok: bool


class Queryable(Message):
    """How fast events could be queried, of a database that acknowledges them before that."""

    lag_s: float
    """From the last worker's end until all events could be counted, to the time between two counts."""
    events_per_s: float
    """Acknowledged events ÷ (window + lag)."""


class WorkerSpan(Message):
    """One worker's share of a run."""

    worker: int
    node: str
    start_s: float
    end_s: float
    events: int
    cpu_s: float
    clock_offset_s: float
    """Upper bound of how late this worker started against the collector's clock; its times, which
    count from the collector's start, have it added."""


class WorkerTimeline(Message):
    """What one worker stored over time."""

    worker: int
    timeline: list[tuple[int, int]]
    """(second, events acknowledged in it)."""


class InsertRun(Message):
    """One insert run, as in `result.json`. The figures are None if the run failed."""

    workers: int
    run: int
    fill_level: int
    """Events in the database when the measured window began."""
    valid: bool
    invalid_reasons: list[str]
    events: int | None = None
    window_s: float | None = None
    inserts_per_s: float | None = None
    """Acknowledged events ÷ (last worker's end − first worker's start)."""
    inserts_per_s_mean_duration: float | None = None
    metrics_per_s: float | None = None
    """Measured values per second: `inserts_per_s` times those of an event (workload cpu: ten)."""
    """Acknowledged events ÷ mean worker duration: the formula of the published comparison."""
    overlap: float | None = None
    """Share of the window in which all workers were active."""
    latency_ms: LatencyMs | None = None
    histogram: str | None = None
    client: Client | None = None
    retries: int = 0
    errors: dict[str, int] = {}
    verification: Verification | None = None
    queryable: Queryable | None = None
    """Only of a database for which this differs from being acknowledged."""
    timeline: list[tuple[int, int]] = []
    """(second since the common start, events acknowledged in it) of all workers together."""
    slowest_worker: WorkerTimeline | None = None
    """The worker with the lowest rate; the others' timelines are only in the sum."""
    phases_s: dict[str, float] = {}
    per_worker: list[WorkerSpan] = []


class Report(Message):
    """GET /report: one run, complete."""

    insert: InsertRun | None = None
    queries: list[QueryRun] | None = None
    fill_level: int | None = None
    """Of queries: the events in the database, counted after them. None if they could not be counted."""
    invalid_reasons: list[str] = []
    phases_s: dict[str, float]
    environment: dict[str, Any]
    """`client` and `database`, as found by the collector."""
    carried: Carried

    def with_phases(self, phases_s: Mapping[str, float]) -> Report:
        """The same, with how long each phase lasted."""
        changes: dict[str, Any] = {"phases_s": dict(phases_s)}
        if self.insert is not None:
            changes["insert"] = self.insert.model_copy(update=changes)
        return self.model_copy(update=changes)
