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
    """ "a, b" -> ["a", "b"], so that lists can be written as in the reference and on a command line."""
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


# --- what a run is told ---------------------------------------------------------------------------


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
    """What one group of workers does. The command line fills it, the workers get it, the result
    keeps it: a field is named here and nowhere else.

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
    """The queries that readers ask; None: the workload's own, as far as the module has them."""
    weights: dict[str, float] = Field(default_factory=dict)
    """How often readers ask a query in proportion to the others; 1 for those that aren't named."""
    pauses: list[FleetPause] = Field(default_factory=list)
    """When the devices whose events writers send are cut off, in order."""
    events_in_all: int | None = None
    """Events of all workers, where some have fewer than `events`: of a recording that isn't repeated."""

    @property
    def events_per_request(self) -> int:
        """What one request counts for in `rate_per_s`: its events, or the one query that it is."""
        return max(1, self.batch) if self.role is Role.WRITE else 1

    @property
    def total_events(self) -> int:
        """How many events all writers insert, if it is they that end the run."""
        return self.workers * self.events if self.events_in_all is None else self.events_in_all

    def count_due(self, from_s: float, until_s: float) -> float:
        """Events (queries) that the rate comes to in a stretch, counted from the common start; 0 without a
        rate."""
        if not self.stages:
            return (self.rate_per_s or 0.0) * max(0.0, until_s - from_s)
        ends = accumulate(stage.duration_s for stage in self.stages)
        return sum(
            stage.rate_per_s * max(0.0, min(until_s, end) - max(from_s, end - stage.duration_s))
            for stage, end in zip(self.stages, ends, strict=True)
        )

    def count_held(self, at_s: float) -> float:
        """Events that are due by then, and held back since the fleet is cut off."""
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
    """The workload's definition as JSON, if it is the user's own: who builds it needs no file."""
    workload_file: str | None = None
    """The file that it was read from, as the user named it."""
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
        """What --workload says of it, for messages that advise a command."""
        return self.workload_file or self.workload


class Delivery(Message):
    """A recording that processes elsewhere need: which it is, and where they get it, packed into one file."""

    name: str = Field(pattern=r"^[0-9a-f]{8,64}$")
    """Of its folder."""
    sha256: str
    """Of what is packed, before it is compressed."""
    size_bytes: Count
    """Likewise."""
    packed_bytes: Count
    source: str | None = Field(None, repr=False)
    """The file that they mount, or its address, which may be signed; None: the collector is sent it."""


class CarriedState(Message):
    """What a run leaves to the one that continues it."""

    next_event: int
    """First event number that no worker has used."""
    stored: int | None
    """Events in the database."""
    values: dict[str, int] = Field(default_factory=dict)
    """Values of each column in it that the database keeps apart."""
    next_events: dict[int, int] | None = None
    """With a history: the number with which each worker goes on, as all before it are stored. None: that
    isn't certain."""


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
    program: str = "python run.py"
    """How the user calls the tool, for messages that advise another command."""
    duration_option: str = "--duration"
    """By which the user makes a run longer, for messages that advise it."""
    module: str
    options: dict[str, Any] = Field(repr=False)
    secret: dict[str, str] = Field(default_factory=dict, repr=False)
    """What a Secret of the cluster holds, by its keys. Those that are options go over `options`."""
    data: DataSet = DataSet()
    delivery: Delivery | None = None
    """Set if the workload is a recording that isn't on this machine yet."""
    groups: list[Group] = Field(min_length=1)
    after: CarriedState | None = None
    """What the run before left, if this one follows it on the same data. Ignored if the data set is
    `clean`; without it the collector counts what is stored."""
    ready_timeout_s: float = 120
    """How long all workers may take to become ready."""
    silence_timeout_s: float = 60
    """After how long without progress from a worker the run is given up."""
    loads_by_prefill: bool = False
    """Whether the prefill is the loading after which indexes may be built (`create_indices=after`), and what
    is measured the database at work; else the measured inserts are the loading."""
    is_level: bool = False
    """Whether it fills the tables to a level that counts, so that its workers needn't end together."""
    look_up: bool = False
    """Whether each acknowledged event is looked up afterwards, as something is done to the database."""
    abort_limits: list[RunLimit] = Field(default_factory=list)
    """As soon as the run can't keep one of these any more, it is ended."""
    chance: int | None = None
    """By what arrivals and questions are drawn, if not by the data's seed: runs on the same events differ in
    it."""
    linger_s: float = 600
    """How long a collector waits, after the run's end, to be asked for its report."""

    @property
    def workers(self) -> int:
        """The workers of all groups."""
        return sum(group.load.workers for group in self.groups)

    @property
    def patience_s(self) -> float:
        """How long the most patient group lets a request take, retries included; 0: that isn't limited by
        time."""
        return max(group.load.patience_s or 0.0 for group in self.groups)

    def groups_of(self, *roles: Role) -> list[Group]:
        """The groups that do this, or one of these."""
        return [group for group in self.groups if group.load.role in roles]

    def group_of(self, worker: int) -> Group:
        """The group that a worker belongs to; KeyError if there is no such worker."""
        for group in self.groups:
            if group.first <= worker < group.end:
                return group
        raise KeyError(worker)


def make_groups(*loads: Load) -> list[Group]:
    """Groups with these loads, the workers numbered through."""
    groups: list[Group] = []
    for load in loads:
        groups.append(Group(first=groups[-1].end if groups else 0, load=load))
    return groups


def share(total: int, workers: int, worker: int) -> int:
    """A worker's share of `total`, which all shares add up to."""
    return total // workers + (worker < total % workers)
