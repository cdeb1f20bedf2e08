"""What all measuring commands share: target, place and output; and how a request's fields become a load and a
data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from simulator.contract import (
    DataSet,
    Load,
    PrimaryKey,
    RateStage,
    Role,
    RunLimit,
    Tables,
    Timestamps,
    fields_of,
    find_mean_rate,
    sum_durations_s,
)

from ..system.installation import CONFIG_FILE
from ..system.processes import END_PATIENCE_S
from .fields import Group, Option, of, option
from .values import (
    Choice,
    Duration,
    File,
    Flag,
    Folder,
    Kind,
    Label,
    Pair,
    WeightedQueries,
)

_Model = TypeVar("_Model", bound=BaseModel)


# --- options as stored in results ------------------------------------------------------------


def public_fields(model: Load | DataSet, role: Role | None = None) -> dict[str, Any]:
    """The fields that are command-line options, by option name."""
    names = fields_of(type(model), role)
    return model.model_dump(mode="json", by_alias=True, include=names)


def public_data(data: DataSet) -> dict[str, Any]:
    """The data set as stored in the result. The workload's options are among the module's."""
    own = {} if data.definition is None else {"definition": data.definition}
    shown = public_fields(data)
    if not data.has_history:
        del shown["prefill_span_s"], shown["prefill_every_s"]
    return shown | own


def public_load(load: Load) -> dict[str, Any]:
    """The load's options as stored in the result. Of those that can end a run, only the one that applied."""
    shown = public_fields(load, load.role)
    if load.rate_per_s is None:
        shown.pop("arrivals")
    if not load.stages:
        shown.pop("stages")
    if load.speed is None:
        shown.pop("speed", None)
    if load.duration_s is not None:
        for name in ("num_inserts", "runs"):
            shown.pop(name, None)
    return shown


# --- requests ---------------------------------------------------------------------------------


class JobId(NamedTuple):
    """A campaign job, independent of its name."""

    candidate: str
    step: str
    repetition: int


class Request(BaseModel):
    """Everything that commands share that run against a target."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, arbitrary_types_allowed=True
    )

    command: ClassVar[str] = ""
    role: ClassVar[Role] = Role.WRITE
    """The role of its load: writers, or readers if they are alone."""
    disturbed: ClassVar[bool] = False
    """Whether a target's disturbances apply to its runs: only if it measures their effect."""

    target: str = option(
        Group.TARGET, Kind(), ..., "Name of the target in the config file.", "-t", "--target"
    )
    config_file: Path = option(
        Group.TARGET, File(dir_okay=True), Path(CONFIG_FILE), "Config file with the targets.", "-c",
        "--config", shown=True,
    )  # fmt: skip
    extra_options: tuple[str, ...] = option(
        Group.TARGET, Kind(), (), "Option of the database module; overrides the target's. May be repeated.",
        "--extra-option", multiple=True, metavar="KEY=VALUE",
    )  # fmt: skip
    timeout_s: float = option(
        Group.PLACE, Duration(), 0.0, "Time limit of a run: 10m, or a number of seconds; 0: no limit.",
        "--timeout", shown=True,
    )  # fmt: skip
    workload: str = of(DataSet, "workload", group=Group.TARGET)
    workload_pairs: tuple[str, ...] = option(
        Group.TARGET, Kind(), (), "Option of the workload; overrides the target's. May be repeated.",
        "--workload-option", multiple=True, metavar="KEY=VALUE",
    )  # fmt: skip
    seed: int = of(DataSet, "seed")
    executor: str | None = option(
        Group.PLACE, Choice(["local", "kubernetes"]), None,
        "Where collector and workers run; default: the target's.", "--executor",
    )  # fmt: skip
    kubeconfig: str | None = option(
        Group.PLACE,
        Kind(),
        None,
        "Kubeconfig file; default: $KUBECONFIG, ~/.kube/config.",
        "--kubeconfig",
    )
    context: str | None = option(
        Group.PLACE,
        Kind(),
        None,
        "Context of the kubeconfig; default: its current one.",
        "--context",
    )
    namespace: str | None = option(
        Group.PLACE,
        Kind(),
        None,
        "Kubernetes namespace; default: the config file's.",
        "--namespace",
    )
    output: Any = option(
        Group.RESULT, Folder(), Path("results"),
        "Folder in which to create the result's folder; or an address such as s3://bucket/folder, to which"
        " it is copied from results/.", "--output", shown=True,
        metavar="FOLDER|URL",
    )  # fmt: skip
    label: str | None = option(
        Group.RESULT, Label(), None, "Name of the result, usable in place of its ID.", "--label"
    )
    tags: tuple[tuple[str, str], ...] = option(
        Group.RESULT, Pair(), (), "Tag to store with the result, for filtering; may be repeated.", "--tag",
        multiple=True, metavar="KEY=VALUE",
    )  # fmt: skip
    json_file: Path | None = option(
        Group.RESULT, File(), None, "Also write result.json to this file.", "--json"
    )
    verbose: bool = option(
        Group.RESULT, Flag(), False, "Print all limitations of the result, not only the most serious.", "-v",
        "--verbose",
    )  # fmt: skip
    live: bool = option(
        Group.OUTPUT,
        Flag(),
        False,
        "Serve a live page on this machine while the command runs.",
        "--live",
    )
    open_live: bool = option(
        Group.OUTPUT, Flag(), False, "Serve the live page and open it in a browser.", "--open"
    )
    prometheus_file: Path | None = option(
        Group.OUTPUT, File(), None,
        "Serve the live page, and write this file for Prometheus' file-based discovery.", "--prometheus",
    )  # fmt: skip
    quiet: bool = option(
        Group.OUTPUT,
        Flag(),
        False,
        "Print no progress: only the result, warnings and errors.",
        "--quiet",
    )
    debug: bool = option(Group.OUTPUT, Flag(), False, "Show a traceback with an error.", "--debug")

    job: JobId | None = None
    """Its job in a campaign."""
    runs: int = 3
    """How many times each run is made."""
    limits: tuple[RunLimit, ...] = ()
    """The limits of each run."""
    abort_on_limit: bool = False
    """End a run as soon as it can no longer keep one of them."""
    disturb: tuple[str, ...] = ()
    disturb_grace_s: float = END_PATIENCE_S

    _load: Load = PrivateAttr(default_factory=Load)
    _data: DataSet = PrivateAttr(default_factory=DataSet)
    _readers: Load | None = PrivateAttr(None)

    @field_validator("*", mode="before")
    @classmethod
    def _read(cls, value: Any, info: ValidationInfo) -> Any:
        own = cls.model_fields[info.field_name or ""].json_schema_extra
        return own.read(value) if isinstance(own, Option) else value

    @model_validator(mode="after")
    def _complete(self) -> Self:
        self._load, self._data, self._readers = (
            self._make_load(), self._make_data(), self._make_readers(),
        )  # fmt: skip
        self._check()
        return self

    def _check(self) -> None:
        """ValueError, with a remedy, if options conflict."""
        self._check_load(self.load)

    def _check_load(self, load: Load, *unsaid: str) -> None:
        """ValueError if a load conflicts with the options. `unsaid`: options that don't concern it."""
        given = self.given - set(unsaid)
        if load.duration_s is not None:
            if "events" in given:
                raise ValueError(
                    "--num-inserts and --duration both say when a run ends: give one of them"
                )
            if "runs" in given and load.role is Role.READ:
                raise ValueError("--runs and --duration both say when a run ends: give one of them")
            if load.warm_up_s >= load.duration_s:
                raise ValueError(
                    f"--warm-up {load.warm_up_s:g}s leaves nothing of --duration {load.duration_s:g}s to"
                    " measure: the warm-up is a part of the duration"
                )
        if "arrivals" in given and load.rate_per_s is None:
            raise ValueError(
                "--arrivals says how the requests of --rate follow each other: give both"
            )

    @property
    def load(self) -> Load:
        """The writers' load, or the readers' if they are alone."""
        return self._load

    @property
    def data(self) -> DataSet:
        """The data set."""
        return self._data

    @property
    def readers(self) -> Load | None:
        """The load of readers next to writers, if any."""
        return self._readers

    def with_work(self, load: Load, data: DataSet, readers: Load | None = None) -> Self:
        """The same request with a different load or data set than its options give."""
        changed = self.model_copy()
        changed._load, changed._data, changed._readers = load, data, readers
        return changed

    @property
    def common(self) -> Request:
        """What it has in common with all others."""
        return Request.model_construct(
            **{name: getattr(self, name) for name in Request.model_fields}
        )

    @property
    def given(self) -> frozenset[str]:
        """Names of the fields that were given, not left at their defaults."""
        return frozenset(self.model_fields_set)

    def list_options(self) -> dict[str, Any]:
        """The options as stored in the result."""
        options = {
            "workers": [self.load.workers],
            "runs": self.runs,
            **public_load(self.load),
            **public_data(self.data),
        }
        if self.readers is not None:
            options |= {
                "readers": self.readers.workers,
                "query_rate_per_s": self.readers.rate_per_s,
                "reader_in_flight": self.readers.in_flight,
                "queries": self.readers.weights or self.readers.queries,
                "redraw": self.readers.redraw,
                "check": self.readers.check,
            }
        return options | self.list_limits()

    def list_limits(self) -> dict[str, Any]:
        """The limits as stored in the result, if any."""
        if not self.limits:
            return {}
        aborts = {"abort_on_limit": True} if self.abort_on_limit else {}
        return {"limits": [str(limit) for limit in self.limits], **aborts}

    def _make_load(self) -> Load:
        return self._fill(Load, role=self.role, **self._take_rate("rate_per_s"))

    def _make_data(self) -> DataSet:
        return self._fill(DataSet)

    def _make_readers(self) -> Load | None:
        return None

    def _fill(self, model: type[_Model], **more: Any) -> _Model:
        """A message built from the fields it shares with the request."""
        # `runs` counts whole runs; only for readers alone it is also the load's.
        names = (model.model_fields.keys() & type(self).model_fields.keys()) - {"runs", "queries"}
        return model.model_validate({name: getattr(self, name) for name in names} | more)

    def _take_rate(self, name: str) -> dict[str, Any]:
        """The fields of `Load` that a rate sets: for stages, these and their mean rate; and the duration if
        any of the request's rates has stages. ValueError if another option contradicts."""
        rate = getattr(self, name, None)
        staged = {
            flag: sum_durations_s(stages)
            for field, flag in (("rate_per_s", "--rate"), ("query_rate", "--query-rate"))
            if isinstance(stages := getattr(self, field, None), list)
        }
        if not staged:
            return {"rate_per_s": rate}
        lengths = dict(staged)
        if "duration_s" in self.given:
            lengths["--duration"] = getattr(self, "duration_s", 0.0)
        if len(set(lengths.values())) > 1:
            spans = " and ".join(f"{flag} {length:g} s" for flag, length in lengths.items())
            raise ValueError(
                f"the stages of a rate set the length of a run: {spans} differ; let them add up to the same,"
                " or leave --duration out"
            )
        for field, flag in (("events", "--num-inserts"), ("runs", "--runs")):
            if field in self.given and (field == "events" or self.role is Role.READ):
                raise ValueError(
                    f"{flag} and the stages of a rate both say when a run ends: give one of them"
                )
        fields: dict[str, Any] = {"duration_s": next(iter(lengths.values())), "rate_per_s": rate}
        if isinstance(rate, list):
            fields |= {"stages": rate, "rate_per_s": find_mean_rate(rate)}
        return fields


# --- shared by several requests ------------------------------------------------------------------


def queries_option(before: str = "", **how: Any) -> Any:
    """`before`: text before their meaning."""
    return option(
        Group.QUERIES, WeightedQueries(), None,
        f"{before}The queries to run; with --duration also their weights, as in"
        " newest-per-device=3,temperature-stats. Default: the target's, or else the workload's.",
        "--queries", **how,
    )  # fmt: skip


def reader_in_flight_option() -> Any:
    about = "Queries that each reader may have in flight."
    return of(
        Load, "in_flight", "--reader-in-flight", default=1, about=about, shown=True, group=Group.QUERIES
    )  # fmt: skip


def take_queries(weights: Mapping[str, float] | None) -> dict[str, Any]:
    """The fields of `Load` on the readers' queries."""
    return {"weights": weights, "queries": list(weights)} if weights else {}


class Writing(Request):
    """A request whose workers insert."""

    batch: int = of(Load, "batch")
    in_flight: int | None = of(Load, "in_flight")
    patience_s: float | None = of(Load, "patience_s")
    primary_key: PrimaryKey = of(Load, "primary_key")
    tables: Tables = of(Load, "tables")


class Storing(Writing):
    """A request that may continue with stored data, and whose runs may have disturbances."""

    disturbed: ClassVar = True

    prefill: int = of(DataSet, "prefill")
    prefill_span_s: float | None = of(DataSet, "prefill_span_s")
    prefill_every_s: float | None = of(DataSet, "prefill_every_s")
    clean: bool = of(DataSet, "clean")
    compact: bool = of(DataSet, "compact")
    retention_s: float | None = of(DataSet, "retention_s")
    timestamps: Timestamps = of(DataSet, "timestamps")
    disturb: tuple[str, ...] = option(
        Group.DISTURBANCES, Kind(), (),
        "Disturb the database during the run: '30s restart-server', '30s kill-server',"
        " '30s delete-pods app=db', '30s restart statefulset/db', '30s scale statefulset/db 0',"
        " '30s run COMMAND'; or cut the devices off for a while, so that they send their events afterwards:"
        " '30s pause-fleet 10s'. May be repeated. Default: the target's disturbances.",
        "--disturb", multiple=True, metavar="'WHEN ACTION ...'",
    )  # fmt: skip
    disturb_grace_s: float = option(
        Group.DISTURBANCES, Duration(), END_PATIENCE_S,
        "How long a `run COMMAND` has to undo what it did if it outlasts the run or is interrupted: it gets"
        f" SIGTERM, and after this time SIGKILL. Default: {END_PATIENCE_S:g}s.", "--disturb-grace",
    )  # fmt: skip


class Asking(Request):
    """A request that has readers next to writers."""

    reader_count: int = 0
    query_rate: float | list[RateStage] | None = None
    queries: dict[str, float] | None = queries_option()
    reader_in_flight: int = reader_in_flight_option()
    redraw: bool = of(Load, "redraw")
    check: bool = of(Load, "check")

    def _make_readers(self) -> Load | None:
        if not self.reader_count:
            return None
        names = ("duration_s", "warm_up_s", "arrivals", "redraw", "check")
        shared = {name: value for name in names if (value := getattr(self, name)) is not None}
        own = {"workers": self.reader_count, "in_flight": self.reader_in_flight}
        rate = self._take_rate("query_rate")
        return Load(role=Role.READ, **shared | own | rate | take_queries(self.queries))
