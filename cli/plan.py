"""Options + target -> the list of runs to do. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from simulator.contract import PrimaryKey, RunSettings, Tables, Timestamps
from simulator.errors import OptionError
from simulator.modules.base import Job, Module, Options, Support, require
from simulator.workloads import WORKLOADS

from .config import Target
from .errors import ConfigError


@dataclass(frozen=True)
class InsertOptions:
    """The options of `insert`, as given."""

    workers: Sequence[int]
    runs: int = 3
    primary_key: PrimaryKey = PrimaryKey.DB
    tables: Tables = Tables.SINGLE
    num_inserts: int = 10_000
    prefill: int = 0
    batch: int = 0
    clean: bool = True
    steps: int = 0
    timestamps: Timestamps = Timestamps.CONTINUE
    workload: str = "temperature"
    seed: int = 0
    given: frozenset[str] = field(default_factory=frozenset)
    """Names of the options that stood on the command line."""


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan."""

    workers: int
    run: int
    clean: bool
    continues: bool
    """Goes on behind the run before it in the plan, whose report says where that ended."""


LONGEST_SERIES = 200
"""Runs: all their settings go into one Kubernetes Secret, which holds 1 MiB
(https://kubernetes.io/docs/concepts/configuration/secret/#restriction-data-size)."""


def by_workers(plan: Sequence[PlannedRun]) -> Iterator[tuple[str, list[PlannedRun]]]:
    """The plan in series of one worker count each, in order, with a name for each."""
    for workers, runs in groupby(plan, key=lambda planned: planned.workers):
        series = list(runs)
        for part, start in enumerate(range(0, len(series), LONGEST_SERIES), 1):
            name = f"workers-{workers:02d}" + (f"-part-{part}" if part > 1 else "")
            yield name, series[start : start + LONGEST_SERIES]


def merged_options(target: Target, extra_options: Sequence[str]) -> dict[str, Any]:
    """The target's options with `--extra-option key=value` on top."""
    values = dict(target.options)
    for option in extra_options:
        key, equals, value = option.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--extra-option {option!r}: write it as key=value")
        values[key.strip()] = value
    return values


def plan_inserts(options: InsertOptions) -> list[PlannedRun]:
    """The runs of an insert command, in order.

    A sweep makes `runs` runs for each worker count; `steps` makes that many runs on the data of
    those before.
    """
    if options.steps:
        if len(options.workers) > 1:
            raise ConfigError("--steps needs one worker count: give a single number to --workers")
        if options.runs > 1:
            raise ConfigError("--steps makes one run per step: give --runs 1")
        if options.prefill:
            raise ConfigError("--steps and --prefill can't be used together")
        return [
            PlannedRun(options.workers[0], step + 1, options.clean and not step, step > 0)
            for step in range(options.steps)
        ]
    return list(_sweep(options))


def _sweep(options: InsertOptions) -> Iterator[PlannedRun]:
    first = True
    for workers in options.workers:
        for run in range(1, options.runs + 1):
            yield PlannedRun(workers, run, options.clean, not options.clean and not first)
            first = False


def check_capabilities(
    options: InsertOptions, module: type[Module], settings: Options | None
) -> None:
    """ConfigError if the module can't do what is asked for; `settings` None: not all known here.

    A default that the database has no notion of is no error: only what was asked for is.
    """
    can = module.CAPABILITIES
    try:
        require(can.workloads.get(options.workload), f"workload {options.workload}", module.name)
        if "primary_key" in options.given:
            key = options.primary_key
            require(can.primary_keys.get(key), f"--primary-key {key}", module.name)
        if options.tables is Tables.MULTIPLE:
            require(can.multiple_tables, "--tables multiple", module.name)
        workload = WORKLOADS[options.workload]
        job = Job(
            workload.schema,
            batch=options.batch,
            primary_key=options.primary_key,
            tables=options.tables,
        )
        if settings is not None:
            module(settings, job)
    except OptionError as error:
        raise ConfigError(str(error)) from error
    if options.timestamps is not Timestamps.RESTART:
        return
    if can.repeated_timestamps is not Support.FULL:
        raise ConfigError(
            "--timestamps restart would overwrite events:"
            f" module {module.name} stores one per device and time"
        )
    if not workload.schema.sequence:
        raise ConfigError(
            f"--timestamps restart would repeat events of workload {options.workload},"
            " which have no sequence number"
        )


def check_query(workload: str, module: type[Module], settings: Options | None) -> None:
    """ConfigError if the module can't query the workload."""
    can = module.CAPABILITIES
    try:
        if not can.queries:
            raise OptionError(f"module {module.name} stores nothing that could be queried")
        require(can.workloads.get(workload), f"workload {workload}", module.name)
        if settings is not None:
            module(settings, Job(WORKLOADS[workload].schema)).queries()
    except OptionError as error:
        raise ConfigError(str(error)) from error


def insert_settings(
    planned: PlannedRun,
    options: InsertOptions,
    target: Target,
    module_options: Mapping[str, Any],
    run_id: str,
    token: str,
) -> RunSettings:
    """What collector and workers are told of one run."""
    return RunSettings(
        run_id=run_id,
        token=token,
        command="insert",
        target=target.name,
        module=target.module,
        options=dict(module_options),
        workload=options.workload,
        seed=options.seed,
        workers=planned.workers,
        primary_key=options.primary_key,
        tables=options.tables,
        num_inserts=options.num_inserts,
        batch=options.batch,
        prefill=options.prefill,
        clean=planned.clean,
        timestamps=options.timestamps,
        continues=planned.continues,
    )
