"""The model of a result (format 2), as it stands in result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    computed_field,
    field_validator,
    model_validator,
)

from simulator.conditions import Condition
from simulator.contract import (
    Answers,
    Bounded,
    DataSet,
    GroupResult,
    Load,
    QueryResult,
    Role,
    RunResult,
)

from ..plan.request import JobId
from .answers import Capacity, RunVerdict, Tuning
from .summaries import (
    GroupRun,
    InsertSummary,
    QuerySummary,
    find_slowest,
    list_groups,
    summarize_inserts,
    summarize_queries,
)

__all__ = [
    "FORMAT", "MATCHED", "MOST_STATEMENT_CHARACTERS", "ClientComparison", "ClientTurn", "GroupRun",
    "InsertSummary", "JobId", "QuerySummary", "Result", "SentStatements", "Settings", "as_mapping",
    "list_groups",
]  # fmt: skip

FORMAT: Literal[2] = 2
"""Raised when a field changes its meaning or goes. A new optional one leaves it as it is."""


def as_mapping(value: Any) -> Mapping[str, Any]:
    """A part of what a stranger may have written; empty if it is none."""
    return value if isinstance(value, Mapping) else {}


MOST_STATEMENT_CHARACTERS = 4000
"""The most that a result keeps of each `SentStatements`: a table with 2,000 columns would be most of it."""


class SentStatements(Bounded, BaseModel):
    """The schema, the indexes, or what a query is asked by; a query's with the parameters of an execution."""

    title: str
    """Which of them, in words."""
    lines: list[str]
    """The statements, or why there are none."""
    query: str | None = None
    """The query that is asked so."""
    own: bool = False
    """Whether the statement is the workload's own, and not the module's."""

    def shorten(self) -> Self:
        """The same for a result."""
        text = "\n".join(self.lines)
        more = len(text) - MOST_STATEMENT_CHARACTERS
        if more > 0:
            kept = text[:MOST_STATEMENT_CHARACTERS]
            text = f"{kept}… ({more:,} characters more: `workloads --show-queries`)"
        return self.model_copy(update={"lines": text.split("\n")})


MATCHED = frozenset({"workers", "runs", "steps"})
"""The options by which figures of several results are matched: no conditions, but what was asked for."""


class Settings(Bounded, BaseModel):
    """The options of a command as its result keeps them. Those of `Load` and `DataSet` declare there
    what they change, the others here.

    A result that wasn't measured by this tool has only some; what it lacks is
    None, which is not the option's default.
    """

    model_config = ConfigDict(extra="allow")

    workers: Annotated[int | list[int] | None, Condition.NONE] = None
    """The counts of an insert command, the number of a query command."""
    runs: Annotated[int | None, Condition.NONE] = None
    steps: Annotated[int | None, Condition.NONE] = None
    readers_beside: Annotated[int | None, Condition.WORKLOAD] = Field(None, alias="readers")
    """The readers of a mixed command."""
    query_rate_per_s: Annotated[float | None, Condition.WORKLOAD] = None
    """What they are to ask together."""
    query_stages: Annotated[str | None, Condition.WORKLOAD] = None
    """How that changes."""
    reader_in_flight: Annotated[int | None, Condition.CLIENT] = None
    """Queries that each reader may have in flight."""
    queries: Annotated[dict[str, float] | list[str] | None, Condition.WORKLOAD] = None
    """What readers ask, with the weights of a mixed command."""
    limits: Annotated[list[str] | None, Condition.LOAD] = None
    """What each run is to keep to, or each step of a search."""
    abort_on_limit: Annotated[bool | None, Condition.NONE] = None
    disturbances: Annotated[list[str] | None, Condition.LOAD] = None
    """What was to be done to the database in each run."""
    precision: Annotated[float | None, Condition.NONE] = None
    max_steps: Annotated[int | None, Condition.NONE] = None
    """These two of the search for it."""
    timeout_s: Annotated[float | None, Condition.NONE] = None
    insert_mode: Annotated[str | None, Condition.BATCH] = None
    module: dict[str, Any] = {}
    """The database module's own."""

    @property
    def load(self) -> Load:
        """What the writers did, as far as the result says so: its `model_fields_set`."""
        return _pick(Load, self.model_extra or {})

    @property
    def data(self) -> DataSet:
        """What was written, as far as the result says so: its `model_fields_set`."""
        return _pick(DataSet, self.model_extra or {})

    @property
    def readers(self) -> int:
        """The workers of a query command."""
        return self.workers if isinstance(self.workers, int) else 1


_Model = TypeVar("_Model", bound=BaseModel)
_STEPS: TypeAdapter[int | None] = TypeAdapter(int | None)


def _pick(model: type[_Model], options: Mapping[str, Any]) -> _Model:
    names = [field.alias or name for name, field in model.model_fields.items()]
    values = {name: options[name] for name in names if options.get(name) is not None}
    return model.model_validate(values)


_KINDS = {
    "query": "queries", "mixed": "mixed runs", "capacity": "capacities", "tune": "tunings",
    "clients": "clients",
}  # fmt: skip


class ClientTurn(Bounded, BaseModel):
    """A run, and what it inserted, or asked, by."""

    client: str
    run: int
    """Its number."""


class ClientComparison(Bounded, BaseModel):
    """What official clients cost compared with the lean path."""

    ways: dict[str, str]
    """Value of the option `client` -> how it inserts, or asks, in words; the lean path first."""
    asks: bool = False
    """Whether they ask, and don't insert. Then the first run is nobody's: it inserts what is asked about."""
    turns: list[ClientTurn] = []
    """In the order in which they were made."""

    def find_client(self, run: int) -> str | None:
        """What a run inserted, or asked, by; None of one that is nobody's."""
        return next((turn.client for turn in self.turns if turn.run == run), None)


class Result(Bounded, BaseModel):
    """One command's result, as in result.json."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[2] = FORMAT
    command: Literal["insert", "query", "mixed", "capacity", "tune", "clients"]
    target: str
    module: str
    executor: str
    started_at: str
    label: str | None = None
    """What the user calls it."""
    candidate: str | None = None
    """In a campaign: what was measured, a target with a number of nodes and a variant."""
    step: str | None = None
    """In a campaign: what the step is called."""
    repetition: int | None = Field(None, ge=1)
    """In a campaign: which one."""
    tags: dict[str, str] = {}
    """What the user has noted with it."""
    source: str | None = None
    """Where the figures come from, if this tool didn't measure them."""
    complete: bool = True
    """False if the command ended before all its runs were done."""
    ended_by: str | None = None
    """What ended it then; None if it couldn't say: it was killed or is still at work."""
    cost_per_hour: float | None = Field(None, gt=0)
    """What the target's database costs, in a currency of the user's choice."""
    options: dict[str, Any]
    environment: dict[str, Any]
    runs: list[RunResult]
    """Of `query`: one. Of `capacity`: one for each step."""
    baseline: list[RunResult] = []
    """Of `mixed --baseline`: the same runs with one group at a time."""
    verdicts: list[RunVerdict] = []
    """What became of the limits in each of the runs, in their order; none without limits. Of a search they
    are in its steps."""
    capacity: Capacity | None = None
    """Of a capacity command: the answer, and the verdict on each run."""
    tuning: Tuning | None = None
    """Of a tune command: what was varied, and what each combination gave."""
    clients: ClientComparison | None = None
    """Of a clients command: what each run inserted, or asked, by."""
    statements: list[SentStatements] = []
    """What the database was sent: the schema, and of readers what each query was asked by. None if only the
    cluster knew the module's options."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        # These are written for other readers of the file.
        computed = cls.model_computed_fields
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if name not in computed}

    @model_validator(mode="after")
    def _check_command(self) -> Result:
        no_roles = {"query": Role.WRITE, "insert": Role.READ}
        if self.clients is not None:
            no_roles["clients"] = Role.WRITE if self.clients.asks else Role.READ
        other = no_roles.get(self.command)
        if any(group.role is other for run in self.runs for group in run.groups):
            raise ValueError(f"runs are not those of a command {self.command!r}")
        return self

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        settings = Settings.model_validate(options)
        _ = settings.load, settings.data
        return options

    @property
    def job(self) -> JobId | None:
        """The job of a campaign that gave it; None outside campaigns."""
        if self.candidate is None or self.step is None or self.repetition is None:
            return None
        return JobId(self.candidate, self.step, self.repetition)

    @property
    def judged(self) -> list[tuple[RunResult, RunVerdict]]:
        """Each run with what became of its limits."""
        return list(zip(self.runs, self.verdicts, strict=False))

    @property
    def settings(self) -> Settings:
        """The command's options, typed."""
        return Settings.model_validate(self.options)

    def describe(self, part: str) -> Mapping[str, Any]:
        """What its environment says of `tool`, `client`, `database` or `kubernetes`; nothing, if it isn't
        there."""
        return as_mapping(self.environment.get(part))

    @property
    def by_fill_level(self) -> bool:
        """Whether the runs are steps on growing data."""
        # Asked of each run for each caveat: as `settings` reads it, without all the others.
        return bool(_STEPS.validate_python(self.options.get("steps")))

    @property
    def kind(self) -> str:
        """What can be compared with its like: `inserts`, `fill levels`, `queries`, `mixed runs`,
        `capacities`, `tunings` or `clients`."""
        if self.command != "insert":
            return _KINDS[self.command]
        return "fill levels" if self.by_fill_level else "inserts"

    @property
    def writers(self) -> list[GroupRun]:
        """The writers of each run; none of a query command."""
        return list_groups(self.runs, Role.WRITE)

    @property
    def readers(self) -> list[GroupRun]:
        """The readers of each run that has some."""
        return list_groups(self.runs, Role.READ)

    @property
    def compared(self) -> list[GroupRun]:
        """Of a clients command: the groups of each run by one of them."""
        comparison = self.clients
        if comparison is None:
            return []
        groups = self.readers if comparison.asks else self.writers
        return [run for run in groups if comparison.find_client(run.run.run) is not None]

    @property
    def alone(self) -> list[GroupRun]:
        """The groups of the baseline: writers first."""
        roles = (Role.WRITE, Role.READ)
        return [run for role in roles for run in list_groups(self.baseline, role, alone=True)]

    @property
    def by_number(self) -> bool:
        """Whether readers asked each query a number of times, and not for a time: then each execution is
        kept."""
        return self.command == "query" and self.settings.load.duration_s is None

    @property
    def asked(self) -> list[QueryResult]:
        """What was asked in the runs, those of the baseline left out."""
        return [query for run in self.readers for query in run.group.queries]

    @property
    def own_statements(self) -> list[str]:
        """What was made or asked by statements of the workload's own, and not by the module's: the schema,
        queries."""
        return [sent.query or "the schema" for sent in self.statements if sent.own]

    @property
    def fill_level(self) -> int | None:
        """A query command's: events in the database, if they could be counted. Inserts' runs each have
        their own."""
        return self.runs[0].fill_level if self.command == "query" and self.runs else None

    @property
    def answers(self) -> list[Answers]:
        """Those of all runs with readers that had theirs checked."""
        groups = [*self.readers, *self.alone]
        return [run.group.answers for run in groups if run.group.answers is not None]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def insert_summary(self) -> list[InsertSummary]:
        """One entry per worker count or fill level that has valid runs."""
        if self.command not in ("insert", "mixed"):
            return []
        return summarize_inserts(self.runs, self.by_fill_level)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def query_summary(self) -> list[QuerySummary]:
        """One entry per query that was answered, over all runs."""
        return summarize_queries(self.runs) if self.command in ("query", "mixed") else []

    def list_counted(self, entry: InsertSummary) -> list[GroupResult]:
        """The valid runs that a summary is of."""
        return [
            run.group
            for run in self.writers
            if run.group.valid
            and run.group.workers == entry.workers
            and entry.fill_level in (None, run.run.fill_level)
        ]

    def choose_slowest(self, entry: InsertSummary) -> GroupResult | None:
        """The valid run of a summary with the highest p99, as in the tables."""
        return find_slowest(self.list_counted(entry))

    @property
    def best(self) -> InsertSummary | None:
        """The worker count (or fill level) with the highest median of the inserts per second."""
        return max(self.insert_summary, key=lambda entry: entry.median, default=None)

    @property
    def valid(self) -> bool:
        """Whether every run of it counts. A search tries rates that can't be held: it counts if one of
        them did, or failed by being too slow."""
        if self.command == "capacity":
            return any(run.group.valid for run in self.writers if run.group.offered is not None)
        if self.command == "tune":
            return self.tuning is not None and bool(self.tuning.rank_finalists())
        return all(run.valid for run in self.all_runs)

    @property
    def all_runs(self) -> list[RunResult]:
        """With those of the baseline."""
        return [*self.runs, *self.baseline]
