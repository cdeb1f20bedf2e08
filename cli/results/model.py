"""The model of a result (format 1), as it stands in result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from simulator.conditions import Condition
from simulator.contract import (
    Answers,
    Bounded,
    DataSet,
    InsertRun,
    Load,
    LongWindows,
    Machine,
    QueryRun,
    ReadRun,
    Resources,
)

from .capacity import Capacity
from .tuning import Tuning

FORMAT: Literal[1] = 1
"""Raised when a field changes its meaning or goes. A new optional one leaves it as it is."""


MATCHED = frozenset({"workers", "runs", "steps"})
"""The options by which figures of several results are matched: no conditions, but what was asked for."""


class Settings(Bounded, BaseModel):
    """The options of a command as its result keeps them. Those of `Load` and `DataSet` declare there
    what they change, the others here.

    A result that wasn't measured by this tool, or by an older one, has only some; what it lacks is
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
    queries: Annotated[dict[str, float] | list[str] | None, Condition.WORKLOAD] = None
    """What readers ask, with the weights of a mixed command."""
    limits: Annotated[list[str] | None, Condition.LOAD] = None
    """What a capacity is to keep to."""
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


def _pick(model: type[_Model], options: Mapping[str, Any]) -> _Model:
    names = [field.alias or name for name, field in model.model_fields.items()]
    given = {name: options[name] for name in names if options.get(name) is not None}
    return model.model_validate(given)


class InsertSummary(Bounded, BaseModel):
    """The valid runs of one worker count (with `--steps`: of one fill level), in events per second."""

    workers: int
    fill_level: int | None = None
    """With `--steps` only."""
    runs: int
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    cv: float | None
    stable: bool | None


class QuerySummary(Bounded, BaseModel):
    """The executions of one query that were answered, in seconds: without each worker's first, unless
    there are no others."""

    query: str
    runs: int
    """Executions."""
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    """The mean's. Workers that ask at once disturb each other, so the executions of one worker are
    one sample; with a single worker, each execution is."""
    p95: float
    rows: int
    cold: float | None = None
    """Mean of the first executions, one of each worker; None if none was answered, or in a result of
    an older version."""


class Baseline(Bounded, BaseModel):
    """The same runs as those of a `mixed` command, with one group at a time."""

    runs: list[InsertRun] = []
    """Writers alone."""
    reads: list[ReadRun] = []
    """Readers alone."""


_KINDS = {
    "query": "queries", "mixed": "mixed runs", "capacity": "capacities", "tune": "tunings",
    "clients": "clients",
}  # fmt: skip


class ClientTurn(Bounded, BaseModel):
    """A run, and what it inserted by."""

    client: str
    run: int
    """Its number."""


class ClientComparison(Bounded, BaseModel):
    """What official clients cost beside the lean path."""

    ways: dict[str, str]
    """Value of the option `client` -> how it inserts, in words; the lean path first."""
    turns: list[ClientTurn] = []
    """In the order in which they were made."""

    def find_client(self, run: int) -> str | None:
        """What a run inserted by."""
        return next((turn.client for turn in self.turns if turn.run == run), None)


class Result(Bounded, BaseModel):
    """One command's result, as in result.json."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = FORMAT
    command: Literal["insert", "query", "mixed", "capacity", "tune", "clients"]
    target: str
    module: str
    executor: str
    started_at: str
    label: str | None = None
    """What the user calls it."""
    tags: dict[str, str] = {}
    """What the user has noted with it."""
    source: str | None = None
    """Where the figures come from, if this tool didn't measure them."""
    complete: bool = True
    """False if the command ended before all its runs were done."""
    ended_by: str | None = None
    """What ended it then; None if it couldn't say: it was killed or is still at work, or the result is
    older than this field."""
    cost_per_hour: float | None = Field(None, gt=0)
    """What the target's database costs, in a currency of the user's choice."""
    options: dict[str, Any]
    environment: dict[str, Any]
    fill_level: int | None = None
    """A query command's: events in the database, if they could be counted. An insert's runs have
    their own."""
    invalid_reasons: list[str] = []
    """A query command's; an insert's runs have their own."""
    phases_s: dict[str, float] = {}
    """A query command's; an insert's runs have their own."""
    overlap: float | None = None
    """Of a query command: share of the time in which all workers asked, if that can be said."""
    began_at: str | None = None
    ended_at: str | None = None
    machines: list[Machine] = []
    resources: Resources | None = None
    """A query command's; an insert's runs have their own."""
    queries_per_s: float | None = None
    """Of a query command that counts executions: answered ÷ the time from the first worker's start to the
    last one's end."""
    answers: Answers | None = None
    """A query command's that counts executions; None if they weren't to be checked. Runs of readers that
    are ended by the clock have their own."""
    long_windows: LongWindows | None = None
    """As `answers`."""
    index_build_s: float | None = None
    """A query command's: how long it took to build, before the queries, the indexes that the tables had not.
    Inserts' runs have their own."""
    runs: list[InsertRun] | list[QueryRun]
    """Of `mixed`: those of the writers. Of `capacity`: one for each step."""
    reads: list[ReadRun] = []
    """Of readers whose run was ended by the clock: one of `query`, those beside the writers of `mixed`."""
    baseline: Baseline | None = None
    summary: list[InsertSummary] | list[QuerySummary] = []
    capacity: Capacity | None = None
    """Of a capacity command: the answer, and the verdict on each run."""
    tuning: Tuning | None = None
    """Of a tune command: what was varied, and what each combination gave."""
    clients: ClientComparison | None = None
    """Of a clients command: what each run inserted by."""
    query_summary_beside: list[QuerySummary] = []
    """Of `mixed`: the queries, over all its runs."""

    @model_validator(mode="after")
    def _of_one_command(self) -> Result:
        other = InsertRun if self.command == "query" else QueryRun
        other_summary = InsertSummary if self.command == "query" else QuerySummary
        if any(isinstance(entry, other | other_summary) for entry in (*self.runs, *self.summary)):
            raise ValueError(f"runs or summary are not those of a command {self.command!r}")
        return self

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, Any]) -> dict[str, Any]:
        settings = Settings.model_validate(options)
        _ = settings.load, settings.data
        return options

    @property
    def settings(self) -> Settings:
        """The command's options, typed."""
        return Settings.model_validate(self.options)

    @property
    def by_fill_level(self) -> bool:
        """Whether the runs are steps on growing data."""
        return bool(self.settings.steps)

    @property
    def kind(self) -> str:
        """What can be compared with its like: `inserts`, `fill levels`, `queries`, `mixed runs`,
        `capacities`, `tunings` or `clients`."""
        if self.command != "insert":
            return _KINDS[self.command]
        return "fill levels" if self.by_fill_level else "inserts"

    @property
    def insert_runs(self) -> list[InsertRun]:
        """The runs of writers; none of a query command."""
        return [run for run in self.runs if isinstance(run, InsertRun)]

    @property
    def query_runs(self) -> list[QueryRun]:
        """The executions of a query command that counts them; none of any other."""
        return [run for run in self.runs if isinstance(run, QueryRun)]

    @property
    def insert_summary(self) -> list[InsertSummary]:
        """The summary of the writers; none of a query command."""
        return [entry for entry in self.summary if isinstance(entry, InsertSummary)]

    @property
    def query_summary(self) -> list[QuerySummary]:
        """The summary of the queries; none of an insert command."""
        own = [entry for entry in self.summary if isinstance(entry, QuerySummary)]
        return own or self.query_summary_beside

    @property
    def all_answers(self) -> list[Answers]:
        """Those of all runs with readers that had theirs checked."""
        reads = [*self.reads, *(self.baseline.reads if self.baseline else ())]
        found = [self.answers, *(read.answers for read in reads)]
        return [one for one in found if one is not None]

    @property
    def best(self) -> InsertSummary | None:
        """The worker count (or fill level) with the highest median of the inserts per second."""
        return max(self.insert_summary, key=lambda entry: entry.median, default=None)

    @property
    def valid(self) -> bool:
        """Whether every run of it counts. A search tries rates that can't be held: it counts if one of
        them did, or failed by being too slow."""
        if self.command == "capacity":
            offered = [run for run in self.insert_runs if run.offered is not None]
            return any(run.valid for run in offered)
        if self.command == "tune":
            return self.tuning is not None and bool(self.tuning.rank_finalists())
        baseline = self.baseline or Baseline()
        inserts = all(run.valid for run in (*self.insert_runs, *baseline.runs))
        return (
            not self.invalid_reasons
            and inserts
            and all(read.valid for read in (*self.reads, *baseline.reads))
        )
