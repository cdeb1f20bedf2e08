"""The settings of a run: its data set, and groups of workers with a load each."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from ..conditions import Condition
from ..units import parse_amount, parse_duration_s
from .message import Count, Message, RunLimit, Seconds
from .resources import SHORTEST_S

MAX_WORKERS = 100_000
MAX_IN_FLIGHT = 10_000


def split_list(value: object) -> Any:
    """Split "a, b" into ["a", "b"]: lists can be written as in the reference and on a command line."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


CommaList = Annotated[list[str], BeforeValidator(split_list)]


class PrimaryKey(StrEnum):
    """What generates the primary key, and how."""

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
    """One table, or four that take events in turn."""

    SINGLE = "single"
    MULTIPLE = "multiple"


class Timestamps(StrEnum):
    """Whether a run on existing data continues in time or starts again at the first timestamp."""

    CONTINUE = "continue"
    RESTART = "restart"


class Arrivals(StrEnum):
    """How the requests of an open loop are spaced."""

    EVEN = "even"
    """At equal intervals, the workers' interleaved."""
    POISSON = "poisson"
    """Independently, like those of many unsynchronized devices."""
    RECORDED = "recorded"
    """As in the recording."""


class Role(StrEnum):
    """What the workers of a group do."""

    WRITE = "write"
    """Insert events."""
    FILL = "fill"
    """Insert the prefill, and nothing after it."""
    READ = "read"
    """Run queries."""
    CHECK = "check"
    """Connect, and change nothing."""


# --- a rate that changes, and a fleet that is cut off ---------------------------------------------

MOST_STAGES = 100
"""Each worker keeps a histogram for each stage."""


class RateStage(Message):
    """A time at this rate."""

    duration_s: float = Field(gt=0)
    rate_per_s: float = Field(ge=0)
    """Of all workers together; 0: a pause."""

    def __str__(self) -> str:
        return f"{self.duration_s:.10g}s:{self.rate_per_s:.10g}"


class FleetPause(Message):
    """A time in which the fleet of devices is cut off: events keep becoming due, and are sent once it is
    back."""

    begins_s: Seconds
    """Since the common start."""
    length_s: float = Field(gt=0, le=1e9)

    @property
    def ends_s(self) -> float:
        """Since the common start."""
        return self.begins_s + self.length_s


def parse_stages(text: str) -> list[RateStage]:
    """Parses `2m:1000,10m:5k`; ValueError explains the syntax."""
    stages = [_parse_stage(part.strip()) for part in text.split(",")]
    if len(stages) > MOST_STAGES:
        raise ValueError(f"{len(stages)} stages: {MOST_STAGES} at most")
    if not any(stage.rate_per_s for stage in stages):
        raise ValueError(f"{text!r}: one stage at least needs a rate above 0")
    return stages


def _parse_stage(part: str) -> RateStage:
    length, colon, rate = part.partition(":")
    duration_s, amount = parse_duration_s(length), parse_amount(rate)
    if not colon or duration_s is None or duration_s <= 0 or amount is None or amount < 0:
        raise ValueError(f"{part!r}: write stages as in 2m:1000,10m:5000,2m:1000")
    return RateStage(duration_s=duration_s, rate_per_s=float(amount))


def _read_stages(value: object) -> Any:
    if isinstance(value, str):
        return parse_stages(value) if value else []
    return value


def format_stages(stages: Sequence[RateStage]) -> str:
    """Stages as `parse_stages` reads them; empty if there are none."""
    return ",".join(map(str, stages))


Stages = Annotated[
    list[RateStage],
    BeforeValidator(_read_stages),
    PlainSerializer(format_stages, return_type=str, when_used="json"),
]
"""Stages, written in files and messages as on a command line."""


def sum_durations_s(stages: Sequence[RateStage]) -> float:
    """The total length of all stages."""
    return round(sum(stage.duration_s for stage in stages), 9)


def find_mean_rate(stages: Sequence[RateStage]) -> float:
    """The mean rate of all stages."""
    return sum(stage.duration_s * stage.rate_per_s for stage in stages) / sum_durations_s(stages)


# --- the settings -----------------------------------------------------------------------------------


def _option(default: Any, description: str, role: Role | None = None, **limits: Any) -> Any:
    """A field that is an option of the command line: of commands with this role, or of all."""
    return Field(
        default, description=description, json_schema_extra={"option": role or True}, **limits
    )


def fields_of(model: type[BaseModel], role: Role | None = None) -> set[str]:
    """The fields of a model that are options of the command line, for this role."""
    names = set()
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, dict) and extra.get("option") in (True, role):
            names.add(name)
    return names


class Load(Message):
    """What one group of workers does. The command line fills it, the workers get it, the result stores it: a
    field is named here and nowhere else.

    `alias` is the field's name on the command line and in `result.json` where that differs.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, validate_by_name=True)

    role: Role = Role.WRITE
    workers: int = Field(1, ge=1, le=MAX_WORKERS)
    """How many take part."""
    primary_key: Annotated[PrimaryKey, Condition.SCHEMA] = _option(
        PrimaryKey.DB,
        "What generates the primary key: the database with an identity column (sql), its older"
        " form (db: serial) or a UUID (uuid), the worker from the event (client), or nothing"
        " (none).",
        Role.WRITE,
    )
    tables: Annotated[Tables, Condition.SCHEMA] = _option(
        Tables.SINGLE, "Insert into one table, or into four in turn.", Role.WRITE
    )
    events: int = _option(10_000, "Events per worker.", Role.WRITE, ge=1, alias="num_inserts")
    batch: Annotated[int, Condition.BATCH] = _option(
        0, "Events per request; 0: one request per event.", Role.WRITE, ge=0
    )
    rate_per_s: Annotated[float | None, Condition.LOAD] = _option(
        None,
        "Offer this many events (queries) per second, over all workers, whether or not the"
        " database keeps up: an open loop. Without it, the next request is sent when the last one"
        " is answered: a closed loop.",
        gt=0,
    )
    stages: Annotated[Stages, Condition.LOAD] = _option(
        [], "The rate changes: `rate_per_s` is its mean, `duration_s` how long all stages take."
    )
    arrivals: Annotated[Arrivals, Condition.LOAD] = _option(
        Arrivals.POISSON,
        "With --rate: at equal intervals, independently of each other, or as they were recorded.",
    )
    speed: Annotated[float | None, Condition.LOAD] = _option(
        None,
        "Send a recording by its own clock, so many times as fast; max: as fast as the database takes"
        " its events. Default: what the definition says.",
        Role.WRITE,
        ge=0,
    )
    in_flight: Annotated[int | None, Condition.CLIENT] = _option(
        None,
        "Requests that each worker may have in flight; default: the target's.",
        Role.WRITE,
        ge=1,
        le=MAX_IN_FLIGHT,
    )
    duration_s: Annotated[float | None, Condition.NONE] = _option(
        None, "How long to run, warm-up included (60s, 5m, 1h).", gt=0
    )
    warm_up_s: Annotated[float, Condition.NONE] = _option(
        0, "Exclude this much of the beginning from all figures (10s, 1m).", ge=0
    )
    patience_s: Annotated[float | None, Condition.NONE] = _option(
        None,
        "How long one request may take, retries included, if the database is away for a while"
        " (30s, 5m); default: limited by the target's max_retries only.",
        Role.WRITE,
        gt=0,
    )
    runs: int = _option(3, "How many times each worker runs each query.", Role.READ, ge=1)
    redraw: Annotated[bool, Condition.WORKLOAD] = _option(
        True,
        "Draw new devices and windows for each execution of a query, or repeat those of the first.",
        Role.READ,
    )
    check: Annotated[bool, Condition.NONE] = _option(
        True,
        "Compare the first answer to each query with the right one, once everything is measured.",
        Role.READ,
    )
    queries: CommaList | None = None
    """The queries that readers run; None: all of the workload's own that the module supports."""
    weights: dict[str, float] = Field(default_factory=dict)
    """How often a query is run relative to the others; 1 if not given."""
    pauses: list[FleetPause] = Field(default_factory=list)
    """When the devices whose events writers send are cut off, in order."""
    events_in_all: int | None = None
    """Events of all workers together, if some have fewer than `events`: for a recording that isn't
    repeated."""

    @property
    def events_per_request(self) -> int:
        """How much one request counts for in `rate_per_s`: its events, or the one query."""
        return max(1, self.batch) if self.role is Role.WRITE else 1

    @property
    def total_events(self) -> int:
        """How many events all writers insert, if their number ends the run."""
        return self.workers * self.events if self.events_in_all is None else self.events_in_all

    def count_due(self, from_s: float, until_s: float) -> float:
        """Events or queries that are due at the rate between two instants, counted from the common start; 0
        without a rate."""
        if not self.stages:
            return (self.rate_per_s or 0.0) * max(0.0, until_s - from_s)
        ends = accumulate(stage.duration_s for stage in self.stages)
        return sum(
            stage.rate_per_s * max(0.0, min(until_s, end) - max(from_s, end - stage.duration_s))
            for stage, end in zip(self.stages, ends, strict=True)
        )

    def count_held(self, at_s: float) -> float:
        """Events that are due by `at_s` and held back because the fleet is cut off."""
        away = [pause for pause in self.pauses if pause.begins_s < at_s < pause.ends_s]
        return sum(self.count_due(pause.begins_s, at_s) for pause in away)


class DataSet(Message):
    """Which events are generated, and what they are added to."""

    workload: str = _option(
        "temperature",
        "Workload to generate: the name of a built-in one or of one under `workloads` in the"
        " config file, or a file with a definition (.yaml).",
    )
    workload_options: dict[str, Any] = Field(default_factory=dict)
    definition: dict[str, Any] | None = None
    """The workload's definition as JSON, if it is the user's own: no file is needed to build it."""
    workload_file: str | None = None
    """The file that it was read from, as named by the user."""
    seed: int = _option(
        0,
        "Another seed gives other events of the same kind; the same seed gives the same events.",
        ge=0,
        le=2**64 - 1,
    )
    prefill: int = _option(
        0,
        "Insert this many events before the measured run, in batches; with --prefill-span behind its"
        " history.",
        ge=0,
    )
    prefill_span_s: float | None = _option(
        None,
        "Store a history of this length before the measured data begin (30d); with --no-clean an"
        " existing one is kept.",
        gt=0,
    )
    prefill_every_s: float | None = _option(
        None,
        "Interval between a device's events in the history (10m). A recording has its own.",
        gt=0,
    )
    clean: bool = _option(True, "Drop and recreate the tables before each run.")
    compact: bool = _option(
        False,
        "After each run, also have the database vacuum, merge or compress, and show the size on"
        " disk before and after.",
    )
    retention_s: Annotated[float | None, Condition.LOAD] = _option(
        None,
        "Delete events that are older than this by their own time, in the way that suits the"
        " database best, while others are inserted (90d); their clock is compressed so that this"
        " time passes within the run.",
        ge=SHORTEST_S,
    )
    timestamps: Timestamps = _option(
        Timestamps.CONTINUE,
        "With existing data: continue in time, or restart at the first timestamp.",
    )

    @property
    def has_history(self) -> bool:
        """Whether older events come before all others."""
        return self.prefill_span_s is not None

    @property
    def workload_argument(self) -> str:
        """The value of --workload, for messages that suggest a command."""
        return self.workload_file or self.workload


class Delivery(Message):
    """A recording that processes elsewhere need: its identity, and where they get it, packed into one
    file."""

    name: str = Field(pattern=r"^[0-9a-f]{8,64}$")
    """The name of its folder."""
    sha256: str
    """Of the packed content, before compression."""
    size_bytes: Count
    """Also before compression."""
    packed_bytes: Count
    source: str | None = Field(None, repr=False)
    """The file that they mount, or its address, which may be signed; None: it is sent to the collector."""


class CarriedState(Message):
    """The state that a run leaves to the one that continues it."""

    next_event: int
    """The first event number that no worker has used."""
    stored: int | None
    """Events in the database."""
    values: dict[str, int] = Field(default_factory=dict)
    """How many values are stored in each column that the database stores separately."""
    next_events: dict[int, int] | None = None
    """With a history: the number from which each worker continues. None: not known."""
    is_certain: bool = True
    """Whether all events before these numbers are stored."""


class Group(Message):
    """Workers of a run that do the same: numbered from `first`, below `end`."""

    first: int = Field(0, ge=0)
    load: Load

    @property
    def end(self) -> int:
        """The number after the last worker's."""
        return self.first + self.load.workers


class RunSettings(Message):
    """Everything that a collector or worker needs to know about its run. May hold passwords: never logged."""

    run_id: str
    token: str = Field(repr=False)
    target: str
    program: str = "python run.py"
    """How the user calls the tool, for messages that suggest a command."""
    duration_option: str = "--duration"
    """The option that makes a run longer, for messages that suggest it."""
    module: str
    options: dict[str, Any] = Field(repr=False)
    secret: dict[str, str] = Field(default_factory=dict, repr=False)
    """The content of the cluster's Secret, by key. Those that are options override `options`."""
    data: DataSet = DataSet()
    delivery: Delivery | None = None
    """Set if the workload is a recording that isn't on this machine yet."""
    groups: list[Group] = Field(min_length=1)
    after: CarriedState | None = None
    """The state that the previous run left, if this one follows it on the same data. Ignored if the data set
    is `clean`. Without it the collector counts what is stored."""
    ready_timeout_s: float = 120
    """How long all workers may take to become ready."""
    silence_timeout_s: float = 60
    """How long a worker may make no progress before the run is given up."""
    loads_by_prefill: bool = False
    """Whether the prefill counts as the loading after which indexes may be built (`create_indices=after`),
    and the measured inserts as normal operation; otherwise the measured inserts are the loading."""
    is_level: bool = False
    """Whether the run only fills the tables to a level, so its workers needn't end together."""
    look_up: bool = False
    """Whether each acknowledged event is looked up afterwards, because the database is disturbed."""
    abort_limits: list[RunLimit] = Field(default_factory=list)
    """The run is ended as soon as it can no longer keep one of these."""
    chance: int | None = None
    """The seed of arrivals and query parameters, if not the data's: it differs between runs on the same
    events."""
    linger_s: float = 600
    """How long a collector waits for a request for its report after the run's end."""

    @property
    def workers(self) -> int:
        """The workers of all groups."""
        return sum(group.load.workers for group in self.groups)

    @property
    def patience_s(self) -> float:
        """How long the most patient group lets a request take, retries included; 0: no limit by time."""
        return max(group.load.patience_s or 0.0 for group in self.groups)

    def groups_of(self, *roles: Role) -> list[Group]:
        """The groups with one of these roles."""
        return [group for group in self.groups if group.load.role in roles]

    def group_of(self, worker: int) -> Group:
        """The group of a worker. KeyError if there is no such worker."""
        for group in self.groups:
            if group.first <= worker < group.end:
                return group
        raise KeyError(worker)


def make_groups(*loads: Load) -> list[Group]:
    """Groups with these loads; worker numbers run through all of them."""
    groups: list[Group] = []
    for load in loads:
        groups.append(Group(first=groups[-1].end if groups else 0, load=load))
    return groups


def share(total: int, workers: int, worker: int) -> int:
    """A worker's share of `total`; all shares add up to it."""
    return total // workers + (worker < total % workers)
