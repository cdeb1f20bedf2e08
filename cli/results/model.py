"""The model of a result (format 2), as stored in result.json."""

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
"""Incremented when a field changes meaning or is removed, but not for a new optional field."""


def as_mapping(value: Any) -> Mapping[str, Any]:
    """A mapping within untrusted data; empty if it isn't one."""
    return value if isinstance(value, Mapping) else {}


MOST_STATEMENT_CHARACTERS = 4000
"""The longest statement kept: a table with 2,000 columns would dominate the result."""


class SentStatements(Bounded, BaseModel):
    """The statements of the schema, the indexes, or a query (with the parameters of one execution)."""

    title: str
    """What they are, in words."""
    lines: list[str]
    """The statements, or why there are none."""
    query: str | None = None
    """The query they implement."""
    own: bool = False
    """Whether the statement comes from the workload instead of the module."""

    def shorten(self) -> Self:
        """The same, shortened for a result."""
        text = "\n".join(self.lines)
        more = len(text) - MOST_STATEMENT_CHARACTERS
        if more > 0:
            kept = text[:MOST_STATEMENT_CHARACTERS]
            text = f"{kept}… ({more:,} characters more: `workloads --show-queries`)"
        return self.model_copy(update={"lines": text.split("\n")})


MATCHED = frozenset({"workers", "runs", "steps"})
"""The options that match figures of several results: the request, not its conditions."""


class Settings(Bounded, BaseModel):
    """The options of a command as kept in its result. `Load` and `DataSet` declare there what their options
    affect; the others are declared here. Results from other sources have only some; a missing option is None,
    which is not its default.
    """

    model_config = ConfigDict(extra="allow")

    workers: Annotated[int | list[int] | None, Condition.NONE] = None
    """The counts of an insert command, the number of a query command."""
    runs: Annotated[int | None, Condition.NONE] = None
    steps: Annotated[int | None, Condition.NONE] = None
    readers_beside: Annotated[int | None, Condition.WORKLOAD] = Field(None, alias="readers")
    """The readers of a mixed command."""
    query_rate_per_s: Annotated[float | None, Condition.WORKLOAD] = None
    """Their total queries per second."""
    query_stages: Annotated[str | None, Condition.WORKLOAD] = None
    """The stages of that rate."""
    reader_in_flight: Annotated[int | None, Condition.CLIENT] = None
    """Queries that each reader may have in flight."""
    queries: Annotated[dict[str, float] | list[str] | None, Condition.WORKLOAD] = None
    """The readers' queries, with the weights of a mixed command."""
    limits: Annotated[list[str] | None, Condition.LOAD] = None
    """The limits of each run, or of each step of a search."""
    abort_on_limit: Annotated[bool | None, Condition.NONE] = None
    disturbances: Annotated[list[str] | None, Condition.LOAD] = None
    """The planned disturbances of each run."""
    precision: Annotated[float | None, Condition.NONE] = None
    max_steps: Annotated[int | None, Condition.NONE] = None
    """For the search, like the next."""
    timeout_s: Annotated[float | None, Condition.NONE] = None
    insert_mode: Annotated[str | None, Condition.BATCH] = None
    module: dict[str, Any] = {}
    """The options of the database module."""

    @property
    def load(self) -> Load:
        """The writers' load, as far as the result has it: its `model_fields_set`."""
        return _pick(Load, self.model_extra or {})

    @property
    def data(self) -> DataSet:
        """The data set, as far as the result has it: its `model_fields_set`."""
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
    """A run and its client."""

    client: str
    run: int
    """Its number."""


class ClientComparison(Bounded, BaseModel):
    """What official clients cost compared with the lean path."""

    ways: dict[str, str]
    """Value of the option `client` -> how it inserts or queries, in words; the lean path first."""
    asks: bool = False
    """Whether they query instead of inserting. Then the first run belongs to no client: it loads the data."""
    turns: list[ClientTurn] = []
    """In the order in which they were made."""

    def find_client(self, run: int) -> str | None:
        """The client of a run; None for the loading run."""
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
    """The user's name for it."""
    candidate: str | None = None
    """In a campaign: the candidate, a target with a number of nodes and a variant."""
    step: str | None = None
    """In a campaign: the name of the step."""
    repetition: int | None = Field(None, ge=1)
    """In a campaign: the number of the repetition."""
    tags: dict[str, str] = {}
    """Tags given by the user."""
    source: str | None = None
    """The source of the figures, if this tool didn't measure them."""
    complete: bool = True
    """False if the command ended before all its runs were done."""
    ended_by: str | None = None
    """What ended it then; None if it was killed or is still running."""
    cost_per_hour: float | None = Field(None, gt=0)
    """The hourly cost of the target's database, in any currency."""
    options: dict[str, Any]
    environment: dict[str, Any]
    runs: list[RunResult]
    """For `query`: one. For `capacity`: one per step."""
    baseline: list[RunResult] = []
    """For `mixed --baseline`: the same runs with one group at a time."""
    verdicts: list[RunVerdict] = []
    """The outcome of the limits in each run, in order; empty without limits. For a search they are in its
    steps."""
    capacity: Capacity | None = None
    """For `capacity`: the answer, and the verdict on each run."""
    tuning: Tuning | None = None
    """For `tune`: what was varied, and the figure of each combination."""
    clients: ClientComparison | None = None
    """For `clients`: the client of each run."""
    statements: list[SentStatements] = []
    """The statements sent to the database: the schema and, for readers, each query's. None if only the
    cluster knew the module's options."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        # Written for other readers of the file.
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
        """The campaign job that it belongs to; None outside campaigns."""
        if self.candidate is None or self.step is None or self.repetition is None:
            return None
        return JobId(self.candidate, self.step, self.repetition)

    @property
    def judged(self) -> list[tuple[RunResult, RunVerdict]]:
        """Each run with the outcome of its limits."""
        return list(zip(self.runs, self.verdicts, strict=False))

    @property
    def settings(self) -> Settings:
        """The command's options, typed."""
        return Settings.model_validate(self.options)

    def describe(self, part: str) -> Mapping[str, Any]:
        """The part of its environment on `tool`, `client`, `database` or `kubernetes`; empty if missing."""
        return as_mapping(self.environment.get(part))

    @property
    def by_fill_level(self) -> bool:
        """Whether the runs are steps on growing data."""
        # Needed for each run and caveat: reads it like `settings`, without the other options.
        return bool(_STEPS.validate_python(self.options.get("steps")))

    @property
    def kind(self) -> str:
        """The kind of result, which compares only with its own kind: `inserts`, `fill levels`, `queries`,
        `mixed runs`, `capacities`, `tunings` or `clients`."""
        if self.command != "insert":
            return _KINDS[self.command]
        return "fill levels" if self.by_fill_level else "inserts"

    @property
    def writers(self) -> list[GroupRun]:
        """The writers of each run; none for `query`."""
        return list_groups(self.runs, Role.WRITE)

    @property
    def readers(self) -> list[GroupRun]:
        """The readers of each run that has any."""
        return list_groups(self.runs, Role.READ)

    @property
    def compared(self) -> list[GroupRun]:
        """For `clients`: the group of each run by a client."""
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
        """Whether readers ran each query a given number of times, so that each execution is kept."""
        return self.command == "query" and self.settings.load.duration_s is None

    @property
    def asked(self) -> list[QueryResult]:
        """The queries of the runs, without the baseline."""
        return [query for run in self.readers for query in run.group.queries]

    @property
    def own_statements(self) -> list[str]:
        """What used the workload's own statements instead of the module's: the schema, queries."""
        return [sent.query or "the schema" for sent in self.statements if sent.own]

    @property
    def fill_level(self) -> int | None:
        """For `query`: events in the database, if they could be counted. Runs of inserts have their own."""
        return self.runs[0].fill_level if self.command == "query" and self.runs else None

    @property
    def answers(self) -> list[Answers]:
        """The checked answers of all runs with readers."""
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
        """One entry per answered query, over all runs."""
        return summarize_queries(self.runs) if self.command in ("query", "mixed") else []

    def list_counted(self, entry: InsertSummary) -> list[GroupResult]:
        """The valid runs behind a summary."""
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
        """The worker count (or fill level) with the highest median of inserts per second."""
        return max(self.insert_summary, key=lambda entry: entry.median, default=None)

    @property
    def valid(self) -> bool:
        """Whether all its runs count. A search also tries rates that don't hold: it counts if one held, or
        failed only for being too slow."""
        if self.command == "capacity":
            return any(run.group.valid for run in self.writers if run.group.offered is not None)
        if self.command == "tune":
            return self.tuning is not None and bool(self.tuning.rank_finalists())
        return all(run.valid for run in self.all_runs)

    @property
    def all_runs(self) -> list[RunResult]:
        """Including the baseline."""
        return [*self.runs, *self.baseline]
