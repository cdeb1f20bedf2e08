"""The requests of the measuring commands: one model each, filled from command-line options or from the keys
of a campaign's step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from simulator.contract import (
    MAX_WORKERS,
    Arrivals,
    DataSet,
    Load,
    RateStage,
    Role,
    RunLimit,
    format_stages,
)

from .fields import Group, of, option
from .request import (
    Asking,
    Request,
    Storing,
    Writing,
    public_data,
    public_load,
    queries_option,
    reader_in_flight_option,
    take_queries,
)
from .values import (
    Flag,
    Kind,
    Limit,
    Number,
    Share,
    Speed,
    StagedRate,
    Whole,
    WorkerCounts,
)

_STATUS_3 = "If it is missed or can't be decided, the exit status is 3."
_STAGES = "A rate may change in stages, whose times add up to the run's: 2m:1000,10m:5000."
_RATE = f"{Load.model_fields['rate_per_s'].description} {_STAGES}"
WARM_UP_SHARE = 6
"""By default, the first sixth of each run of a search is warm-up."""


def _workers(about: str) -> Any:
    return option(Group.LOAD, Whole(1, MAX_WORKERS), 1, about, "-w", "--workers", shown=True)


def _readers(least: int) -> Any:
    about = "Workers that query at the same time."
    return option(Group.QUERIES, Whole(least, MAX_WORKERS), least, about, "--readers", shown=True)


def _times(about: str) -> Any:
    return option(Group.LOAD, Whole(1), 3, about, "-r", "--runs", shown=True)


def _limits(whose: str, more: str) -> Any:
    """`whose`: what they limit; `more`: further help."""
    return option(
        Group.LIMITS, Limit(), (),
        f"Limit for {whose}: p50, p90, p99, p99_9 (response times) or service_p99, as in p99=100ms;"
        f" error_share=0.1%. May be repeated. {more}", "--limit", multiple=True,
    )  # fmt: skip


def _query_rate(kind: Kind, more: str = "") -> Any:
    about = f"Queries per second of all readers together; default: as fast as possible. {more}"
    return option(Group.QUERIES, kind, None, about.rstrip(), "--query-rate")


def _abort() -> Any:
    about = "End a run as soon as it can no longer keep a limit."
    return option(Group.LIMITS, Flag(), False, about, "--abort-on-limit")


class InsertRequest(Storing):
    """Inserts with several worker counts, or on growing data."""

    command: ClassVar = "insert"

    workers: tuple[int, ...] = option(
        Group.LOAD, WorkerCounts(MAX_WORKERS), (1, 4, 8, 12, 16),
        "Worker counts to try, separated by commas.", "-w", "--workers", shown=True, written="1,4,8,12,16",
    )  # fmt: skip
    runs: int = _times("Runs per worker count.")
    events: int = of(Load, "events")
    rate_per_s: float | list[RateStage] | None = of(
        Load, "rate_per_s", kind=StagedRate(), about=_RATE
    )
    speed: float | None = of(Load, "speed", kind=Speed())
    arrivals: Arrivals = of(Load, "arrivals")
    duration_s: float | None = of(Load, "duration_s")
    warm_up_s: float = of(Load, "warm_up_s")
    steps: int = option(
        Group.LOAD, Whole(0), 0,
        "Make this many runs on growing data; needs one worker count, --runs 1 and no --prefill.",
        "--steps", shown=True,
    )  # fmt: skip
    limits: tuple[RunLimit, ...] = _limits("each run", _STATUS_3)
    abort_on_limit: bool = _abort()
    columns: str | None = option(
        Group.RESULT, Kind(), None,
        "Columns of the insert table; default: all, or on a terminal those that fit.",
        "--columns", metavar="all|NAME,...",
    )  # fmt: skip

    def _check(self) -> None:
        super()._check()
        if self.steps and len(self.workers) > 1:
            raise ValueError("--steps needs one worker count: give a single number to --workers")
        if self.steps and self.runs > 1:
            raise ValueError("--steps makes one run per step: give --runs 1")
        if self.steps and (self.prefill or self.data.has_history):
            raise ValueError("--steps and --prefill can't be used together")

    def _make_load(self) -> Load:
        return self._fill(Load, workers=1, **self._take_rate("rate_per_s"))

    def list_options(self) -> dict[str, Any]:
        return super().list_options() | {"workers": list(self.workers), "steps": self.steps}


class QueryRequest(Request):
    """Queries on events that are already stored."""

    command: ClassVar = "query"
    role: ClassVar = Role.READ

    workers: int = _workers("Workers that query at the same time.")
    runs: int = _times("How many times each worker runs each query.")
    queries: dict[str, float] | None = queries_option()
    reader_in_flight: int = reader_in_flight_option()
    duration_s: float | None = of(Load, "duration_s")
    warm_up_s: float = of(Load, "warm_up_s")
    rate_per_s: float | list[RateStage] | None = of(
        Load, "rate_per_s", kind=StagedRate(), about=_RATE
    )
    arrivals: Arrivals = of(Load, "arrivals")
    prefill_span_s: float | None = of(
        DataSet, "prefill_span_s", about="Length of the history stored by the insert."
    )
    prefill_every_s: float | None = of(DataSet, "prefill_every_s")
    redraw: bool = of(Load, "redraw")
    check: bool = of(Load, "check")
    limits: tuple[RunLimit, ...] = _limits(
        "each query",
        f"query:NAME:p99=2s applies to that query, instead of the limit for all. {_STATUS_3}",
    )
    abort_on_limit: bool = _abort()

    def _check(self) -> None:
        super()._check()
        if self.load.duration_s is None and (self.load.rate_per_s or self.load.warm_up_s):
            raise ValueError("--rate and --warm-up need a --duration")

    def _make_load(self) -> Load:
        own = {"runs": self.runs, "in_flight": self.reader_in_flight, **take_queries(self.queries)}
        return self._fill(Load, role=Role.READ, **own, **self._take_rate("rate_per_s"))

    def list_options(self) -> dict[str, Any]:
        # Of the data set, only which events it has.
        data = public_data(self.data)
        names = ("workload", "seed", "definition", "prefill_span_s", "prefill_every_s")
        own = {"workers": self.load.workers, "reader_in_flight": self.load.in_flight}
        events = {name: data[name] for name in names if name in data}
        return {**own, **public_load(self.load), **events, **self.list_limits()}


class MixedRequest(Storing, Asking):
    """Inserts and queries on one data set, in several runs."""

    command: ClassVar = "mixed"

    workers: int = _workers("Workers that insert.")
    reader_count: int = _readers(1)
    runs: int = _times("Number of runs.")
    duration_s: float | None = of(Load, "duration_s", default=60.0, shown="60s")
    warm_up_s: float = of(Load, "warm_up_s")
    rate_per_s: float | list[RateStage] | None = of(
        Load,
        "rate_per_s",
        kind=StagedRate(),
        about=f"Events per second of all writers together; default: as fast as possible. {_STAGES}",
    )
    speed: float | None = of(Load, "speed", kind=Speed())
    query_rate: float | list[RateStage] | None = _query_rate(StagedRate(), "In stages, too.")
    arrivals: Arrivals = of(Load, "arrivals")
    baseline: bool = option(
        Group.COMPARISON, Flag(), False,
        "Also run writers alone and readers alone, and show what each costs the other.", "--baseline",
    )  # fmt: skip
    limits: tuple[RunLimit, ...] = _limits(
        "each run",
        f"These apply to writers; limits for readers name the query: query:NAME:p99=2s. {_STATUS_3}",
    )
    abort_on_limit: bool = _abort()

    def _check(self) -> None:
        assert self.readers is not None
        for load in (self.load, self.readers):
            self._check_load(load, "arrivals", "runs")
        if "arrivals" in self.given and not (self.load.rate_per_s or self.readers.rate_per_s):
            raise ValueError(
                "--arrivals says how the requests of --rate or --query-rate follow each other: give one"
            )

    def list_options(self) -> dict[str, Any]:
        readers = self.readers
        assert readers is not None
        more = {"arrivals": str(readers.arrivals)} if readers.rate_per_s else {}
        if readers.stages:
            more["query_stages"] = format_stages(readers.stages)
        return super().list_options() | {"baseline": self.baseline} | more


def _find_warm_up(request: CapacityRequest | TuneRequest, flag: str, noun: str) -> float:
    """The warm-up of a search's runs. ValueError if it takes their whole length. `flag`: the option for the
    length; `noun`: the name of such a run."""
    if request.warm_up_s is None:
        return round(request.duration_s / WARM_UP_SHARE, 2)
    if request.warm_up_s >= request.duration_s:
        raise ValueError(
            f"--warm-up {request.warm_up_s:g}s leaves nothing of {flag} {request.duration_s:g}s to measure:"
            f" the warm-up is a part of the {noun}"
        )
    return request.warm_up_s


class CapacityRequest(Asking, Writing):
    """Which capacity to search for. The load is the writers' in each step, except its rate, and has a
    duration; readers, if any, query in each step."""

    command: ClassVar = "capacity"

    workers: int = _workers("Workers that insert.")
    limits: tuple[RunLimit, ...] = _limits(
        "a rate",
        "With --readers also query:NAME:p99=2s. Without a limit: that the database keeps up.",
    )
    duration_s: float = of(
        Load, "duration_s", "--step-duration", default=30.0, shown="30s",
        about="How long each step takes, warm-up included.",
    )  # fmt: skip
    warm_up_s: float | None = of(
        Load,
        "warm_up_s",
        default=None,
        about="How much of the beginning of each step to exclude from all figures; default: a sixth.",
    )
    precision: float = option(
        Group.COMPARISON, Share(0.01, 1.0), 0.05,
        "How close the highest rate that holds and the lowest that fails must be.", "--precision",
        shown=True, written="5%",
    )  # fmt: skip
    max_steps: int = option(
        Group.COMPARISON, Whole(1), 24, "Maximum number of steps.", "--max-steps", shown=True
    )
    prefill: int = of(
        DataSet,
        "prefill",
        "--fill",
        about="Insert this many events before each step, in batches; all steps begin with the same number.",
    )
    prefill_span_s: float | None = of(
        DataSet,
        "prefill_span_s",
        about="Store a history of this length before the first step (30d); the other steps keep it, with what"
        " earlier steps added.",
    )
    prefill_every_s: float | None = of(DataSet, "prefill_every_s")
    clean: bool = of(
        DataSet,
        "clean",
        about="With --prefill-span: drop and recreate the tables before the first step, or keep the existing"
        " history.",
    )
    reader_count: int = _readers(0)
    query_rate: float | list[RateStage] | None = _query_rate(Number(0, above=True))
    arrivals: Arrivals = of(
        Load,
        "arrivals",
        about="How requests follow each other: at equal intervals, or independently.",
    )
    compact: bool = of(DataSet, "compact")

    def _check(self) -> None:
        self._check_load(self.load, "arrivals")

    def _make_load(self) -> Load:
        return self._fill(Load, warm_up_s=_find_warm_up(self, "--step-duration", "step"))

    def _make_readers(self) -> Load | None:
        readers = super()._make_readers()
        if readers is not None:
            return readers.model_copy(update={"warm_up_s": self._make_load().warm_up_s})
        if self.queries or self.query_rate or self.reader_in_flight > 1:
            raise ValueError(
                "--queries, --query-rate and --reader-in-flight are for readers: give --readers, too"
            )
        return None

    def list_options(self) -> dict[str, Any]:
        options = super().list_options()
        # Each step has its own rate, but all have the same arrivals.
        for name in ("runs", "rate_per_s"):
            options.pop(name, None)
        return options | {
            "arrivals": str(self.load.arrivals),
            "limits": [str(limit) for limit in self.limits],
            "precision": self.precision,
            "max_steps": self.max_steps,
        }


class TuneRequest(Writing):
    """Which settings to vary. The load is that of a run in the first stage, except for what is varied, and
    has a duration; `runs` is per finalist."""

    command: ClassVar = "tune"

    over: tuple[str, ...] = option(
        Group.COMPARISON, Kind(), (),
        "A setting and the values to try: workers, batch, in_flight, primary_key, tables, or an option"
        " of the module, as in batch=100,1000 or copy_format=text,binary; may be repeated.", "--over",
        multiple=True, metavar="SETTING=VALUE,...",
    )  # fmt: skip
    limits: tuple[RunLimit, ...] = _limits(
        "a rate", "With a limit, settings are compared by the highest rate that keeps it."
    )
    runs: int = _times("Runs of each combination compared at the end.")
    duration_s: float = of(
        Load, "duration_s", "--run-duration", default=5.0, shown="5s",
        about="How long a run of the first stage takes, warm-up included; later ones take up to eight times"
        " as long.",
    )  # fmt: skip
    warm_up_s: float | None = of(
        Load,
        "warm_up_s",
        default=None,
        about="How much of the beginning of each run to exclude from all figures; default: a sixth.",
    )
    workers: int = _workers("Workers, unless varied.")
    prefill: int = of(
        DataSet, "prefill", "--fill", about="Insert this many events before each run."
    )

    precision: float = 0.05
    max_steps: int = 16
    """These two are for a search in the last stage."""

    def _make_load(self) -> Load:
        return self._fill(Load, warm_up_s=_find_warm_up(self, "--run-duration", "run"))

    def list_options(self) -> dict[str, Any]:
        return super().list_options() | {"limits": [str(limit) for limit in self.limits]}


_ASKING_S = 10.0
"""The default duration of a run of `clients --queries`."""


class ClientsRequest(Writing):
    """Which clients to compare; `runs` is per client. With readers, these query, and the load says how their
    events are inserted."""

    command: ClassVar = "clients"

    clients: tuple[str, ...] = option(
        Group.COMPARISON, Kind(), (),
        "Client to compare with the lean path, as in official; may be repeated. Default: all clients of the"
        " module that insert with --batch and the target's insert mode, or query with --queries.",
        "--client", multiple=True,
    )  # fmt: skip
    queries: dict[str, float] | None = queries_option(
        "Run queries instead of inserting. ", alone={}
    )
    workers: int = _workers("Workers that insert, or query with --queries.")
    runs: int = _times("Runs of each client; clients take turns.")
    events: int = of(Load, "events")
    reader_in_flight: int = reader_in_flight_option()
    rate_per_s: float | None = of(Load, "rate_per_s")
    arrivals: Arrivals = of(Load, "arrivals")
    duration_s: float | None = of(Load, "duration_s")
    warm_up_s: float = of(Load, "warm_up_s")
    prefill: int = of(DataSet, "prefill")

    @property
    def asks(self) -> bool:
        """Whether clients query, instead of inserting."""
        return self.queries is not None

    def _check(self) -> None:
        if self.readers is not None:
            self._check_load(self.readers, "events", "runs")

    def _find_length(self) -> float | None:
        return _ASKING_S if self.asks and self.duration_s is None else self.duration_s

    def _make_load(self) -> Load:
        return self._fill(Load, duration_s=self._find_length())

    def _make_data(self) -> DataSet:
        filled = self.prefill or (self.events * self.workers if self.asks else 0)
        return self._fill(DataSet, prefill=filled)

    def _make_readers(self) -> Load | None:
        if self.asks:
            own = {"in_flight": self.reader_in_flight, **take_queries(self.queries)}
            return self._fill(Load, role=Role.READ, duration_s=self._find_length(), **own)
        if self.reader_in_flight > 1:
            raise ValueError("--reader-in-flight is for queries: give --queries, too")
        return None

    def list_options(self) -> dict[str, Any]:
        if self.readers is None:
            return super().list_options()
        return {
            **public_load(self.readers),
            **public_data(self.data),
            "workers": self.readers.workers,
            "runs": self.runs,
            "reader_in_flight": self.readers.in_flight,
            "queries": self.readers.weights or self.readers.queries,
        }


REQUESTS: Mapping[str, type[Request]] = {
    kind.command: kind
    for kind in (
        InsertRequest, QueryRequest, MixedRequest, CapacityRequest, TuneRequest, ClientsRequest,
    )
}  # fmt: skip
"""Command -> its request."""
