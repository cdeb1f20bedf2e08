"""Options + target -> the list of runs. Pure: no I/O."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from pydantic_core import to_json

from simulator.contract import (
    DataSet,
    Load,
    PrimaryKey,
    Role,
    RunLimit,
    Tables,
    Timestamps,
    split_list,
)
from simulator.errors import OptionError
from simulator.modules.base import AnyModule, Job, Support, require
from simulator.modules.options import Options
from simulator.units import format_count, format_span
from simulator.workloads import load_options_model, load_workload, workload_names
from simulator.workloads.base import CLOCK_FACTOR, MAX_CLOCK_FACTOR, SHARING_WORKERS, Workload
from simulator.workloads.numbering import (
    MOST_PASSES,
    count_own,
    find_clock_factor,
    find_span_ms,
    make_retention,
)

from ..system.errors import ConfigError
from ..system.installation import load_each
from ..system.output import warn_once
from .replaying import end_with_recording
from .request import Request
from .requests import InsertRequest, MixedRequest, QueryRequest
from .target import Target
from .workloads import count_history, make_workload_of, parse_pairs


@dataclass(frozen=True)
class PlannedRun:
    """One run to make."""

    label: str
    """Its name in the progress display, as in `4 workers, run 2 of 3`."""
    run: int
    """Its number in the result: for insert among the runs of its worker count; with `steps`, the step's."""
    data: DataSet
    loads: tuple[Load, ...]
    """The load of each group of workers; the first decides how long the run lasts. A group that is idle in a
    baseline run is still present, so that all runs have the same number of workers and connections, and the
    same initial data."""
    options: Mapping[str, Any] | None = None
    """The module's options, if they differ from the target's."""
    loads_by_prefill: bool = False
    is_level: bool = False
    """See `RunSettings`."""
    abort_limits: Sequence[RunLimit] = ()
    chance: int | None = None
    """See `RunSettings`."""

    @property
    def load(self) -> Load:
        """The load that decides how long the run lasts."""
        return self.loads[0]

    @property
    def prefill(self) -> int:
        """Events inserted before it, unless an existing history is kept."""
        if not self.data.has_history or (not self.data.clean and self.load.role is not Role.READ):
            return self.data.prefill
        if self.load.role is Role.READ:
            return 0
        return count_history(self.data, self.load.workers) + self.data.prefill

    @property
    def at_work(self) -> list[Load]:
        """The loads of the measured groups."""
        return [load for load in self.loads if load.role in (Role.WRITE, Role.READ)]

    @property
    def workers(self) -> int:
        """The number of workers."""
        return sum(load.workers for load in self.loads)


@dataclass(frozen=True)
class PlannedSeries:
    """Runs made by one collector, one after the other; they differ only in what is stored before them."""

    name: str
    """The name of their log folder."""
    runs: Sequence[PlannedRun]
    left: Sequence[Load] | None = None
    """The loads that decide how long the remaining runs (including these) last, if different from what was
    expected."""


def derive_seed(*names: object) -> int:
    """A seed derived from these, so that each step of a search, run of a command, or repetition of a campaign
    has other random due times. Below 2^48, so that every JSON reader keeps it exact."""
    text = json.dumps([str(name) for name in names])
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest())


def add_chance(planned: PlannedRun, label: str | None) -> PlannedRun:
    """The run with its own due times. By chance, far fewer requests than planned may be due; several runs,
    and several repetitions of a campaign (whose jobs have labels), even that out. The first run of a command
    without a label has the due times of the data's seed."""
    offered = any(load.rate_per_s for load in planned.loads)
    if not offered or (label is None and planned.run == 1):
        return planned
    return replace(planned, chance=derive_seed(planned.data.seed, label, planned.run))


LONGEST_SERIES = 200
"""The most runs: all their settings go into one Kubernetes Secret, which holds 1 MiB
(https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size)."""
_SERIES_BYTES, _RUN_BYTES = 700_000, 2_500
"""The most bytes for all settings, and for a run's without the workload's definition."""


def merge_options(target: Target, extra_options: Sequence[str]) -> dict[str, Any]:
    """The target's options with `--extra-option key=value` on top."""
    return {**target.options, **parse_pairs("--extra-option", extra_options)}


@dataclass(frozen=True)
class SplitOptions:
    """A target's options, by what they concern."""

    module: dict[str, Any]
    workload: dict[str, Any]
    queries: list[str] | None
    others: Sequence[str]
    """Option names that a target may have besides the module's."""


def option_names(module: type[AnyModule], values: Mapping[str, Any]) -> list[str]:
    """All options that a target with these values may have; the values may be wrong."""
    return [
        *module.options_model.option_names(values),
        *_find_workloads_of_options(),
        QUERIES,
    ]


def _find_workloads_of_options() -> dict[str, str]:
    """Option -> a workload that has it."""
    return {
        option: name
        for name, model in load_each(workload_names(), load_options_model).items()
        for option in model.model_fields
    }


QUERIES = "queries"
"""The target's key for the readers' queries."""


def split_options(
    values: Mapping[str, Any], workload: type[Workload], insisted: Collection[str]
) -> SplitOptions:
    """Sort a target's options into the module's, the workload's and the readers'. An option of another

    workload is ignored, since a target serves them all; OptionError if it is among the `insisted` ones (from

    the command line).
    """
    own = workload.options_model.model_fields
    owners = _find_workloads_of_options()
    foreign = set(owners) - set(own)
    for name in foreign & set(insisted):
        raise OptionError(f"{name} is an option of workload {owners[name]}, not of {workload.name}")
    module = {
        name: value
        for name, value in values.items()
        if name not in own and name != QUERIES and name not in foreign
    }
    queries = values.get(QUERIES)
    return SplitOptions(
        module,
        {name: value for name, value in values.items() if name in own},
        None if queries is None else split_list(queries),
        [*own, QUERIES],
    )


def plan_inserts(sweep: InsertRequest) -> list[PlannedSeries]:
    """The runs of an insert command, in series of one worker count each, in order. A sweep makes `runs` runs

    per worker count; `steps` makes that many runs, each on the data of the previous ones. ConfigError if the

    retention is impossible.
    """
    series = []
    for workers in sweep.workers:
        runs = [_plan_run(sweep, workers, run) for run in range(1, (sweep.steps or sweep.runs) + 1)]
        each = _RUN_BYTES + len(to_json(sweep.data.definition))
        most = min(LONGEST_SERIES, _SERIES_BYTES // each)
        for part, start in enumerate(range(0, len(runs), most), 1):
            name = f"workers-{workers:02d}" + (f"-part-{part}" if part > 1 else "")
            series.append(PlannedSeries(name, runs[start : start + most]))
    return series


def plan_queries(request: QueryRequest) -> PlannedSeries:
    """The run of a query command."""
    load = request.load
    length = format_count(load.runs, "run") if load.duration_s is None else f"{load.duration_s:g} s"
    label = f"{format_count(load.workers, 'worker')}, {length}"
    return PlannedSeries("queries", [PlannedRun(label, 1, request.data, (load,))])


def plan_mix(mix: MixedRequest) -> PlannedSeries:
    """The runs of a mixed command, in order; with a baseline, the groups take turns to begin, so that drift
    affects all equally. ConfigError if the retention is impossible."""
    assert mix.readers is not None
    writers = format_count(mix.load.workers, "writer")
    readers = format_count(mix.readers.workers, "reader")
    idle = mix.readers.model_copy(update={"role": Role.CHECK})
    filling = mix.load.model_copy(update={"role": Role.FILL})
    data = share_devices(mix.data, mix.load.workers)
    end_with_recording(mix.load, data, mix.given)
    if data.retention_s is not None:
        data = compress_clock(data, mix.load)
        check_prefill(data, mix.load)
    turns = [(f"{writers} and {readers}", (mix.load, mix.readers))]
    if mix.baseline:
        turns.append((f"{writers} alone", (mix.load, idle)))
        turns.append((f"{readers} alone", (filling, mix.readers)))
    return PlannedSeries(
        "mixed",
        [
            PlannedRun(f"{title}, run {run} of {mix.runs}", run, data, loads, loads_by_prefill=True)
            for run in range(1, mix.runs + 1)
            for title, loads in turns[(run - 1) % len(turns) :] + turns[: (run - 1) % len(turns)]
        ],
    )


def _plan_run(sweep: InsertRequest, workers: int, run: int) -> PlannedRun:
    """A run with this many workers; a step always continues with the data of the previous one."""
    load = sweep.load.model_copy(update={"workers": workers})
    clean = sweep.data.clean and not (sweep.steps and run > 1)
    # A run that continues others' events must distribute the devices as they did.
    data = share_devices(sweep.data, workers if clean else max(sweep.workers))
    data = data.model_copy(update={"clean": clean})
    before = (run - 1) * (count_own(load) or 0) if sweep.steps else 0
    load = end_with_recording(load, data, sweep.given, before)
    if data.retention_s is not None:
        data = compress_clock(data, load)
    which = f"step {run} of {sweep.steps}" if sweep.steps else f"run {run} of {sweep.runs}"
    label = f"{format_count(workers, 'worker')}, {which}"
    return PlannedRun(label, run, data, (load,), is_level=bool(sweep.steps))


def share_devices(data: DataSet, workers: int) -> DataSet:
    """The data set with the workload's devices distributed over this many workers, unless the user sets the
    number."""
    fields = load_workload(data.workload, data.definition).options_model.model_fields
    options = data.workload_options
    if SHARING_WORKERS not in fields or options.get(SHARING_WORKERS, 1) != 1:
        return data
    return data.model_copy(update={"workload_options": options | {SHARING_WORKERS: workers}})


def check_workload(load: Load, data: DataSet, module: type[AnyModule]) -> Job:
    """The job of a run with this load, as far as known before the run; OptionError with the reason if the
    module can't store the workload."""
    workload = make_workload_of(data)
    retention = None if data.retention_s is None else make_retention(workload, data, load)
    job = Job(workload.schema, load, retention=retention)
    module.CAPABILITIES.require_workload(job.schema, data.workload, module.name)
    return job


def check_capabilities(
    request: Request, module: type[AnyModule], settings: Options | None, load: Load | None = None
) -> None:
    """ConfigError if the module can't do what is requested; `settings`: None if not all are known here;
    `load`: if it isn't the request's.

    Unsupported defaults are ignored; only explicit options are checked.
    """
    can, load = module.CAPABILITIES, load or request.load
    data = share_devices(request.data, load.workers)
    try:
        job = check_workload(load, data, module)
        if "primary_key" in request.given:
            key = load.primary_key
            require(can.primary_keys.get(key), f"--primary-key {key}", module.name)
        if load.tables is Tables.MULTIPLE:
            require(can.multiple_tables, "--tables multiple", module.name)
        own = settings is not None and module(settings, job).own_tables
        if own and "primary_key" in request.given and load.primary_key is not PrimaryKey.NONE:
            raise OptionError(
                f"--primary-key {load.primary_key}: the workload's own schema for module {module.name}"
                " defines the keys: leave the option out"
            )
    except OptionError as error:
        raise ConfigError(*error.problems) from error
    if data.timestamps is Timestamps.RESTART:
        if module.CAPABILITIES.repeated_timestamps is not Support.FULL:
            raise ConfigError(
                "--timestamps restart would overwrite events:"
                f" module {module.name} stores one per device and time"
            )
        if not job.schema.sequence:
            raise ConfigError(
                f"--timestamps restart would repeat events of workload {data.workload},"
                " which have no sequence number"
            )


def check_query(
    load: Load,
    data: DataSet,
    module: type[AnyModule],
    settings: Options | None,
    loading: str | None = None,
) -> None:
    """ConfigError if the module can't query the workload. `loading`: the option that stores events before the
    queries, if the run itself must do so."""
    try:
        if not module.CAPABILITIES.queries:
            raise OptionError(f"module {module.name} stores nothing to query")
        job = check_workload(load, data, module)
        if settings is None:
            return
        asked = module(settings, job)
        chosen = asked.choose_queries()
    except OptionError as error:
        raise ConfigError(*error.problems) from error
    # Queries named explicitly are refused.
    expected = job.schema.queries if load.queries is None else ()
    for own in job.schema.descriptions:
        if own.name in expected and own.name not in chosen:
            warn_once(asked.refuse_query(own))
    if loading is None or not data.clean or data.prefill or data.has_history:
        return
    for name in chosen:
        query = asked.describe_query(name)
        if query is not None and query.is_drawn:
            raise ConfigError(
                f"query {name} draws devices or times of stored events, and none are stored before: add"
                f" {loading}, as in {loading} 1M"
            )


# --- the interval between events of a run with a retention ---------------------------------

ASKED = 2
"""The prefill must have this many times the events inserted while queries run, so that part of it remains to
query."""


def compress_clock(data: DataSet, load: Load) -> DataSet:
    """The data set with a clock at which its retention passes within a run of this load, unless the user sets
    it. ConfigError if that can't be computed."""
    assert data.retention_s is not None
    if not data.clean:
        raise ConfigError(
            "--retention deletes from its own tables: leave --no-clean and --steps out"
        )
    if data.has_history:
        raise ConfigError(
            "--retention fills its tables itself, with a compressed clock: leave --prefill-span out, or"
            " give a number of events with --prefill"
        )
    own, is_given = count_own(load), data.workload_options.get(CLOCK_FACTOR, 1) != 1
    if own is None and is_given:
        return data
    if own is None:
        raise ConfigError(
            "the time that passes at full speed is unknown before the run: with --retention give --rate, or"
            f" --num-inserts instead of --duration, or --workload-option {CLOCK_FACTOR}=NUMBER"
        )
    workload = make_workload_of(data)
    passes = find_span_ms(workload, data, load, own) / (1000 * data.retention_s)
    if passes > MOST_PASSES:
        raise ConfigError(
            f"the events would pass --retention {format_span(data.retention_s)} {passes:,.0f} times, and"
            f" {MOST_PASSES} is the most: keep them for longer, or give more devices"
        )
    if is_given:
        return data
    factor = find_clock_factor(workload, data, load, own)
    if factor > MAX_CLOCK_FACTOR:
        raise ConfigError(
            f"--retention {format_span(data.retention_s)} is too long for {own:,} events: give a shorter"
            " one, or insert more"
        )
    return data.model_copy(
        update={"workload_options": data.workload_options | {CLOCK_FACTOR: factor}}
    )


def check_prefill(data: DataSet, load: Load) -> None:
    """ConfigError if no event that exists when readers begin stays until the end of the run."""
    own = count_own(load)
    if own is None:
        raise ConfigError(
            "--retention needs a --rate here: without it, the events that stay for queries are unknown"
        )
    if data.prefill < ASKED * own:
        raise ConfigError(
            f"with --retention, queries need prefilled events that stay until the end: give --prefill"
            f" {ASKED * own} or more"
        )
