"""Definition -> the jobs of a campaign, in order. Pure: no I/O."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any

import click
from pydantic import BaseModel

from simulator.conditions import Condition, find_conditions
from simulator.contract import Role
from simulator.errors import did_you_mean
from simulator.units import format_count

from ..errors import ConfigError
from ..experiments.experiment import AnyExperiment
from .definition import TARGET, Definition, Installation, Order, Step

OWN = {
    TARGET: f"name the target below `targets`, with a label and `{TARGET}:`",
    "config": "give --config to the campaign",
    "output": "give --output to the campaign, whose folder has all results",
    "label": "the campaign labels its results: use labels of targets, variants and steps",
    "json": "the campaign's folder has all results",
    **dict.fromkeys(
        ("live", "open", "prometheus"), "give it to the campaign, whose page shows all jobs"
    ),
    "debug": "give --debug to the campaign",
    "help": "it is no option of a job",
}
"""Options that the campaign sets itself, and what to do instead."""


@dataclass(frozen=True)
class Candidate:
    """Who is compared: a target with a number of nodes and a variant, by their labels."""

    target: str
    variant: str | None = None
    nodes: int | None = None

    @property
    def series(self) -> str:
        """What it is called whatever its number of nodes."""
        return " ".join(filter(None, [self.target, self.variant]))

    def __str__(self) -> str:
        nodes = None if self.nodes is None else format_count(self.nodes, "node")
        return " ".join(filter(None, [self.target, nodes, self.variant]))


@dataclass(frozen=True)
class Job:
    """One command of a campaign."""

    name: str
    """Distinct within the campaign: the label of its result."""
    candidate: Candidate
    step: str
    command: str
    repeat: int
    arguments: tuple[str, ...]
    """Of the command, without what the campaign sets: config file, folder, label."""
    install: Installation | None = None
    """What is done before, unless it is there from the job before."""

    @property
    def adds(self) -> bool:
        """Whether it goes on with the events that others have left."""
        return "--no-clean" in self.arguments


Turn = Sequence[Job]
"""The steps of one candidate, one after the other, since each meets the data that the one before left."""


def plan_turns(definition: Definition) -> list[Turn]:
    """All jobs, in order; ConfigError if an option is none."""
    candidates = [
        Candidate(target, variant, nodes)
        for target in definition.targets
        for nodes, variant in product(definition.list_nodes(target), definition.variants or [None])
    ]
    _check_shared(definition)
    arguments = {
        (candidate, step.name): _write_arguments(definition, candidate, step)
        for candidate in candidates
        for step in definition.steps
    }
    return [
        [
            Job(
                _name_job(candidate, step, repeat, definition.repeats),
                candidate,
                step.name,
                step.command,
                repeat,
                arguments[candidate, step.name],
                definition.find_installation(candidate.target),
            )
            for step in definition.steps
        ]
        for candidate, repeat in order_turns(
            candidates,
            definition.repeats,
            definition.find_order(),
            definition.seed,
            together=[name for name in definition.targets if definition.find_installation(name)],
        )
    ]


def order_turns(
    candidates: Sequence[Candidate],
    repeats: int,
    order: Order,
    seed: int,
    together: Collection[str] = (),
) -> list[tuple[Candidate, int]]:
    """Who has a turn when, by chance that follows from the seed. Interleaved: all have one in each
    repetition, in an order of its own (a randomized complete block design). In blocks each has all its
    turns at once; the variants of the targets `together` have theirs interleaved, while the database
    with so many nodes is there."""
    chance = random.Random(seed)
    groups: dict[object, list[Candidate]] = {}
    for one in candidates:
        key = (one.target, one.nodes) if one.target in together else one
        groups.setdefault(key if order is Order.BLOCKS else None, []).append(one)
    ordered = list(groups.values())
    if len(ordered) > 1:
        ordered = chance.sample(ordered, len(ordered))
    return [
        (one, repeat)
        for group in ordered
        for repeat in range(1, repeats + 1)
        for one in chance.sample(group, len(group))
    ]


def find_command(name: str) -> click.Command:
    """The command that a step runs."""
    command = getattr(import_module(f"cli.commands.{name}"), name)
    assert isinstance(command, click.Command)
    return command


def list_options(command: click.Command) -> dict[str, click.Option]:
    """Long name without dashes -> option."""
    return {
        word.removeprefix("--"): option
        for option in command.params
        if isinstance(option, click.Option)
        for word in option.opts
        if word.startswith("--")
    }


def write_arguments(
    options: Mapping[str, Any], known: Mapping[str, click.Option]
) -> tuple[str, ...]:
    """The options as they would stand on a command line. Texts and numbers as they are; lists with commas,
    or each on its own where an option may be repeated."""
    found: list[str] = []
    for name, value in options.items():
        option = known[name]
        if option.is_flag:
            if not isinstance(value, bool):
                raise ConfigError(f"{name}: write true or false, not {value!r}")
            found += [f"--{name}"] if value else option.secondary_opts
            continue
        found += [f"--{name}={text}" for text in _write_value(name, value, option)]
    return tuple(found)


def _write_value(name: str, value: Any, option: click.Option) -> list[str]:
    parts = [value]
    if isinstance(value, Mapping):
        parts = [f"{key}={_write_scalar(name, each)}" for key, each in value.items()]
    elif isinstance(value, list):
        parts = value
    texts = [_write_scalar(name, part) for part in parts]
    return texts if option.multiple else [",".join(texts)]


def _write_scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{name}: {value!r} is no value of an option: write a text or a number")


def _write_arguments(definition: Definition, candidate: Candidate, step: Step) -> tuple[str, ...]:
    """The particular over the general: those for all, the step's, the target's, the variant's."""
    known = list_options(find_command(step.command))
    own = definition.targets[candidate.target]
    variant = definition.variants[candidate.variant] if candidate.variant else {}
    merged: dict[str, Any] = {}
    for options in (definition.options, step.options, own.options, variant):
        for key, value in _normalize(options).items():
            if key not in known:
                continue  # of another step: `_check_shared` has seen to that
            before = merged.get(key)
            if isinstance(before, Mapping) and isinstance(value, Mapping):
                merged[key] = {**before, **value}
            else:
                merged[key] = value
    name = name_target(definition, candidate)
    return (f"--target={name}", *write_arguments(merged, known))


def name_target(definition: Definition, candidate: Candidate) -> str:
    """The target of the config file."""
    own = definition.targets[candidate.target]
    if isinstance(own.nodes, dict) and candidate.nodes is not None:
        return own.nodes[candidate.nodes]
    return own.target or candidate.target


def _normalize(options: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "-"): value for key, value in options.items()}


def _check_shared(definition: Definition) -> None:
    """ConfigError for an option that no step has, or that is the campaign's own; a step's must be its own."""
    by_step = {
        step.name: set(list_options(find_command(step.command))) for step in definition.steps
    }
    for step in definition.steps:
        place = f"step {step.name}"
        _check_options(place, step.options, by_step[step.name], f"option of {step.command}")
    of_any = set().union(*by_step.values())
    _check_options("options", definition.options, of_any, "option of these steps")
    for label, target in definition.targets.items():
        _check_options(f"target {label}", target.options, of_any, "option of these steps")
    for label, options in definition.variants.items():
        _check_options(f"variant {label}", options, of_any, "option of these steps")


def _check_options(place: str, options: Mapping[str, Any], known: set[str], what: str) -> None:
    for key in _normalize(options):
        if key in OWN:
            raise ConfigError(f"{place}: {key} can't be given here: {OWN[key]}")
        if key not in known:
            names = sorted(known - set(OWN))
            raise ConfigError(
                f"{place}: {key} is no {what}{did_you_mean(key, names)} (known: {', '.join(names)})"
            )


def _name_job(candidate: Candidate, step: Step, repeat: int, repeats: int) -> str:
    number = [str(repeat)] if repeats > 1 else []
    return " ".join([str(candidate), step.name, *number])


def describe_change(before: Any, now: Any, place: str = "") -> list[str]:
    """What differs between two definitions as plain values: `variants.small.batch: 100 is now 200`."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*before, *now])
        return [
            text
            for key in keys
            for text in describe_change(
                before.get(key), now.get(key), f"{place}.{key}" if place else str(key)
            )
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [
            text
            for number, (old, new) in enumerate(zip(before, now, strict=True), 1)
            for text in describe_change(old, new, f"{place}[{number}]")
        ]
    if before == now:
        return []
    if before is None or now is None:
        return [f"{place} is {'new' if before is None else 'gone'}"]
    return [f"{place}: {before} is now {now}"]


def keep_common(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two definitions as plain values without what may change under way: targets and variants that only one
    of them has, and more repetitions."""
    kept_before, kept_now = dict(before), dict(now)
    for key in ("targets", "variants"):
        old, new = before.get(key) or {}, now.get(key) or {}
        kept_before[key] = {name: one for name, one in old.items() if name in new}
        kept_now[key] = {name: one for name, one in new.items() if name in old}
    if now.get("repeats", 1) >= before.get("repeats", 1):
        kept_before["repeats"] = kept_now["repeats"] = None
    return kept_before, kept_now


def join_definitions(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with the targets and variants of an earlier one, too, which have results."""
    joined = dict(now)
    for key in ("targets", "variants"):
        if before.get(key) or now.get(key):
            joined[key] = {**(before.get(key) or {}), **(now.get(key) or {})}
    return joined


def match_name(label: str | None, names: Collection[str]) -> str | None:
    """The job that a result belongs to: of a campaign that had one repetition at first, the first one."""
    return next((name for name in (label, f"{label} 1") if name in names), None)


def list_left(turns: Sequence[Turn], done: Collection[str], failed: Collection[str]) -> list[Turn]:
    """What is still to do, in order, by the names of the jobs that are done or have failed.

    Of the turn that was interrupted what is left, unless its next step goes on with events of which it
    may have added some: then all of it. Turns with a failure are made anew, and last: others have
    been at the data since.
    """
    left, again = [], []
    for turn in turns:
        open_jobs = [place for place, job in enumerate(turn) if job.name not in done]
        if any(job.name in failed for job in turn):
            again.append(turn)
        elif open_jobs:
            left.append(turn if turn[open_jobs[0]].adds else turn[open_jobs[0] :])
    return left + again


# The steps of a turn measure one schema: what inserts have paid for is what queries go through.


def check_schemas(turns: Sequence[Turn], prepared: Mapping[str, AnyExperiment]) -> None:
    """ConfigError, which says what to do, if steps of a turn would make or expect different tables."""
    for turn in turns:
        first_with: dict[tuple[str, str], tuple[Job, Any]] = {}
        for job in turn:
            own = prepared[job.name]
            for name, value in list_schema(own).items():
                key = own.session.request.workload, name
                other, before = first_with.setdefault(key, (job, value))
                if value != before:
                    raise ConfigError(
                        f"{job.candidate}: the steps would measure different schemas: {name} is {before} in"
                        f" {other.step} and {value} in {job.step}: give it to all steps (below `options`,"
                        " or the target's), or to compare both, make each a variant (below `variants`)"
                    )


def list_schema(prepared: AnyExperiment) -> dict[str, Any]:
    """The options of a job that its tables are made by."""
    session = prepared.session
    loads = [load for load in prepared.lengths[:1] if load.role is not Role.READ]
    models: list[BaseModel] = [session.assume_options(), session.workload_options, *loads]
    return {
        name: getattr(model, name)
        for model in models
        for name in type(model).model_fields
        if find_conditions(type(model)).get(name) is Condition.SCHEMA
    }
