"""Options + target -> the list of runs to do. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import groupby
from typing import Any

from pydantic_core import to_json

from simulator.contract import (
    DataSet,
    Load,
    Role,
    Tables,
    Timestamps,
    fields_of,
    split_list,
)
from simulator.errors import OptionError
from simulator.modules.base import AnyModule, Job, Support, require
from simulator.modules.options import Options, parse_options
from simulator.workloads import load_workload, workload_names
from simulator.workloads.base import SHARING_WORKERS, Workload
from simulator.workloads.schema import Schema

from .config import Target
from .errors import ConfigError
from .workloads import parse_pairs


@dataclass(frozen=True)
class Sweep:
    """What `insert` is asked for: a load, on a data set, by several worker counts several times."""

    load: Load
    data: DataSet
    workers: Sequence[int]
    runs: int = 3
    steps: int = 0
    given: frozenset[str] = field(default_factory=frozenset)
    """Names of the options that stood on the command line."""

    def public(self) -> dict[str, Any]:
        """The options as they are kept in the result."""
        return {
            "workers": list(self.workers),
            "runs": self.runs,
            "steps": self.steps,
            **public_load(self.load),
            **public_data(self.data),
        }


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan."""

    load: Load
    data: DataSet
    run: int
    """Its number among those of its worker count; with `steps`, that of the step."""

    @property
    def workers(self) -> int:
        """How many take part."""
        return self.load.workers


class Arm(StrEnum):
    """Which groups of a mixed command are at work in a run."""

    MIXED = "mixed"
    WRITERS = "writers alone"
    READERS = "readers alone"


@dataclass(frozen=True)
class Mix:
    """What `mixed` is asked for: writers and readers on one data set, several times."""

    writers: Load
    readers: Load
    data: DataSet
    runs: int = 3
    baseline: bool = False
    """Make each run with one group at a time, too."""
    given: frozenset[str] = field(default_factory=frozenset)
    """Names of the options that stood on the command line."""

    @property
    def workers(self) -> int:
        """Of both groups."""
        return self.writers.workers + self.readers.workers

    def public(self) -> dict[str, Any]:
        """The options as they are kept in the result."""
        return {
            "workers": [self.writers.workers],
            "readers": self.readers.workers,
            "runs": self.runs,
            "query_rate_per_s": self.readers.rate_per_s,
            "queries": self.readers.weights or self.readers.queries,
            "redraw": self.readers.redraw,
            "check": self.readers.check,
            "baseline": self.baseline,
            **public_load(self.writers),
            **({"arrivals": str(self.readers.arrivals)} if self.readers.rate_per_s else {}),
            **public_data(self.data),
        }


@dataclass(frozen=True)
class PlannedMix:
    """One run of a mixed command."""

    arm: Arm
    run: int
    loads: tuple[Load, Load]
    """Of the writers and of the readers. A group that isn't at work is there all the same, so that all
    runs have as many workers and connections, and the same data to begin with."""


LONGEST_SERIES = 200
"""Runs: all their settings go into one Kubernetes Secret, which holds 1 MiB
(https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size)."""
_SERIES_BYTES, _RUN_BYTES = 700_000, 2_500
"""The most of all their settings, and the most of a run's without the workload's definition."""


def public_fields(model: Load | DataSet, role: Role | None = None) -> dict[str, Any]:
    """The fields that are options of the command line, by their names there."""
    names = fields_of(type(model), role)
    return model.model_dump(mode="json", by_alias=True, include=names)


def public_data(data: DataSet) -> dict[str, Any]:
    """The data set as it is kept in the result. The workload's options are among the module's."""
    own = {} if data.definition is None else {"definition": data.definition}
    return public_fields(data) | own


def public_load(load: Load) -> dict[str, Any]:
    """The load's options as they are kept in the result. Of what ends a run, only what did."""
    shown = public_fields(load, load.role)
    if load.rate_per_s is None:
        shown.pop("arrivals")
    if load.duration_s is not None:
        for name in ("num_inserts", "runs"):
            shown.pop(name, None)
    return shown


def by_workers(plan: Sequence[PlannedRun]) -> Iterator[tuple[str, list[PlannedRun]]]:
    """The plan in series of one worker count each, in order, with a name for each."""
    for workers, runs in groupby(plan, key=lambda planned: planned.workers):
        series = list(runs)
        each = _RUN_BYTES + len(to_json(series[0].data.definition))
        most = min(LONGEST_SERIES, _SERIES_BYTES // each)
        for part, start in enumerate(range(0, len(series), most), 1):
            name = f"workers-{workers:02d}" + (f"-part-{part}" if part > 1 else "")
            yield name, series[start : start + most]


def merge_options(target: Target, extra_options: Sequence[str]) -> dict[str, Any]:
    """The target's options with `--extra-option key=value` on top."""
    return {**target.options, **parse_pairs("--extra-option", extra_options)}


@dataclass(frozen=True)
class SplitOptions:
    """A target's options by whom they concern."""

    module: dict[str, Any]
    workload: dict[str, Any]
    queries: list[str] | None
    known: Sequence[str]
    """Names that a target may have besides the module's own."""


def option_names(module: type[AnyModule], values: Mapping[str, Any]) -> list[str]:
    """All options that a target with these values may have, which may be wrong."""
    return [*module.options_model.option_names(values), *_find_workloads_of_options(), QUERIES]


@cache
def _find_workloads_of_options() -> dict[str, str]:
    """Option -> a workload that has it."""
    return {
        option: name
        for name in workload_names()
        for option in load_workload(name).options_model.model_fields
    }


QUERIES = "queries"
"""The target's key for what readers ask."""


def split_options(
    values: Mapping[str, Any], workload: type[Workload], insisted: Collection[str]
) -> SplitOptions:
    """Sort a target's options: the module's, the workload's, and the readers'.

    An option of another workload is left out, since a target serves them all. OptionError if it is
    among those `insisted` upon (on the command line).
    """
    own = workload.options_model.model_fields
    owners = _find_workloads_of_options()
    others = set(owners) - set(own)
    for name in others & set(insisted):
        raise OptionError(f"{name} is an option of workload {owners[name]}, not of {workload.name}")
    module = {
        name: value
        for name, value in values.items()
        if name not in own and name != QUERIES and name not in others
    }
    queries = values.get(QUERIES)
    return SplitOptions(
        module,
        {name: value for name, value in values.items() if name in own},
        None if queries is None else split_list(queries),
        [*own, QUERIES],
    )


def check_load(load: Load, given: Collection[str]) -> None:
    """ConfigError if fields of the load don't go together; `given`: those on the command line."""
    if load.duration_s is not None:
        if "events" in given:
            raise ConfigError(
                "--num-inserts and --duration both say when a run ends: give one of them"
            )
        if "runs" in given and load.role is Role.READ:
            raise ConfigError("--runs and --duration both say when a run ends: give one of them")
        if load.warm_up_s >= load.duration_s:
            raise ConfigError(
                f"--warm-up {load.warm_up_s:g}s leaves nothing of --duration {load.duration_s:g}s to"
                " measure: the warm-up is a part of the duration"
            )
    if "arrivals" in given and load.rate_per_s is None:
        raise ConfigError("--arrivals says how the requests of --rate follow each other: give both")


def plan_inserts(sweep: Sweep) -> list[PlannedRun]:
    """The runs of an insert command, in order.

    A sweep makes `runs` runs for each worker count; `steps` makes that many runs on the data of
    those before. ConfigError if what is asked for doesn't go together.
    """
    check_load(sweep.load, sweep.given)
    if sweep.steps:
        _check_steps(sweep)
        return [
            _plan_run(sweep, sweep.workers[0], step + 1, step > 0) for step in range(sweep.steps)
        ]
    return [
        _plan_run(sweep, workers, run)
        for workers in sweep.workers
        for run in range(1, sweep.runs + 1)
    ]


def plan_mix(mix: Mix) -> list[PlannedMix]:
    """The runs of a mixed command, in order: with a baseline in turns, beginning with another arm each
    time, so that drift meets all alike. ConfigError if what is asked for doesn't go together."""
    for load in (mix.writers, mix.readers):
        check_load(load, mix.given - {"arrivals"})
    if "arrivals" in mix.given and not (mix.writers.rate_per_s or mix.readers.rate_per_s):
        raise ConfigError(
            "--arrivals says how the requests of --rate or --query-rate follow each other: give one"
        )
    idle = mix.readers.model_copy(update={"role": Role.CHECK})
    filling = mix.writers.model_copy(update={"role": Role.FILL})
    arms = {
        Arm.MIXED: (mix.writers, mix.readers),
        Arm.WRITERS: (mix.writers, idle),
        Arm.READERS: (filling, mix.readers),
    }
    names = list(Arm) if mix.baseline else [Arm.MIXED]
    return [
        PlannedMix(arm, run, arms[arm])
        for run in range(1, mix.runs + 1)
        for arm in names[(run - 1) % len(names) :] + names[: (run - 1) % len(names)]
    ]


def _check_steps(sweep: Sweep) -> None:
    """ConfigError if something was asked for that steps don't go with."""
    if len(sweep.workers) > 1:
        raise ConfigError("--steps needs one worker count: give a single number to --workers")
    if sweep.runs > 1:
        raise ConfigError("--steps makes one run per step: give --runs 1")
    if sweep.data.prefill:
        raise ConfigError("--steps and --prefill can't be used together")


def _plan_run(sweep: Sweep, workers: int, run: int, goes_on: bool = False) -> PlannedRun:
    """A run with so many workers; `goes_on`: on the data of the run before it, whatever was asked."""
    load = sweep.load.model_copy(update={"workers": workers})
    clean = sweep.data.clean and not goes_on
    # Who goes on with the events of other runs must share out the devices as they did.
    data = share_devices(sweep.data, workers if clean else max(sweep.workers))
    return PlannedRun(load, data.model_copy(update={"clean": clean}), run)


def share_devices(data: DataSet, workers: int) -> DataSet:
    """The data set with the devices that a workload has in all shared out over so many workers, unless
    the user says over how many."""
    fields = load_workload(data.workload, data.definition).options_model.model_fields
    options = data.workload_options
    if SHARING_WORKERS not in fields or options.get(SHARING_WORKERS, 1) != 1:
        return data
    return data.model_copy(update={"workload_options": options | {SHARING_WORKERS: workers}})


def job_of(load: Load, data: DataSet) -> Job:
    """The job of a run with this load, as far as it is known before the run."""
    workload = load_workload(data.workload, data.definition)
    options = parse_options(workload.options_model, data.workload_options, str)
    return Job(workload(data.seed, **options.model_dump()).schema, load)


def check_workload(load: Load, data: DataSet, module: type[AnyModule]) -> Job:
    """The job of a run with this load; OptionError, which says why, if the module can't store the
    workload."""
    job = job_of(load, data)
    module.CAPABILITIES.require_workload(job.schema, data.workload, module.name)
    return job


def check_capabilities(sweep: Sweep, module: type[AnyModule], settings: Options | None) -> None:
    """ConfigError if the module can't do what is asked for; `settings` None: not all known here.

    A default that the database has no notion of is no error: only what was asked for is.
    """
    can, load = module.CAPABILITIES, sweep.load
    data = share_devices(sweep.data, max(sweep.workers))
    try:
        job = check_workload(load, data, module)
        if "primary_key" in sweep.given:
            key = load.primary_key
            require(can.primary_keys.get(key), f"--primary-key {key}", module.name)
        if load.tables is Tables.MULTIPLE:
            require(can.multiple_tables, "--tables multiple", module.name)
        if settings is not None:
            module(settings, job)
    except OptionError as error:
        raise ConfigError(str(error)) from error
    if data.timestamps is Timestamps.RESTART:
        _check_restart(data.workload, job.schema, module)


def _check_restart(workload: str, schema: Schema, module: type[AnyModule]) -> None:
    if module.CAPABILITIES.repeated_timestamps is not Support.FULL:
        raise ConfigError(
            "--timestamps restart would overwrite events:"
            f" module {module.name} stores one per device and time"
        )
    if not schema.sequence:
        raise ConfigError(
            f"--timestamps restart would repeat events of workload {workload},"
            " which have no sequence number"
        )


def check_query(
    load: Load, data: DataSet, module: type[AnyModule], settings: Options | None
) -> None:
    """ConfigError if the module can't query the workload."""
    try:
        if not module.CAPABILITIES.queries:
            raise OptionError(f"module {module.name} stores nothing that could be queried")
        job = check_workload(load, data, module)
        if settings is not None:
            module(settings, job).choose_queries()
    except OptionError as error:
        raise ConfigError(str(error)) from error
