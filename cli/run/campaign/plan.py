"""Definition -> the jobs of a campaign, in order. Pure: no I/O."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from typing import Any

from pydantic import BaseModel, ValidationError

from simulator.conditions import Condition, find_conditions
from simulator.contract import Role
from simulator.documents import Way
from simulator.units import format_count

from ...plan.fields import describe_problem, find_keys, write_words
from ...plan.request import JobId, Request
from ...plan.requests import REQUESTS
from ...system.errors import ConfigError, Problems
from ..experiments import AnyExperiment
from .definition import Definition, Installation, Order, Step, normalize


@dataclass(frozen=True)
class Candidate:
    """A candidate: a target with a number of nodes and a variant, by their labels."""

    target: str
    variant: str | None = None
    nodes: int | None = None

    @property
    def series(self) -> str:
        """Its name without the number of nodes."""
        return " ".join(filter(None, [self.target, self.variant]))

    def __str__(self) -> str:
        nodes = None if self.nodes is None else format_count(self.nodes, "node")
        return " ".join(filter(None, [self.target, nodes, self.variant]))


@dataclass(frozen=True)
class Job:
    """One command of a campaign."""

    name: str
    """Unique within the campaign: the label of its result."""
    candidate: Candidate
    step: str
    repeat: int
    request: Request = field(hash=False)  # it contains dictionaries, and the name is enough
    """The request, without what the campaign sets: config file, folder, label."""
    arguments: tuple[str, ...]
    """The same in command-line form."""
    install: Installation | None = None
    """The database to install before, unless it is already there."""
    has_start: bool = False
    """Whether its turn begins with starting the server, and ends with stopping it."""

    @property
    def command(self) -> str:
        """The command that it is."""
        return self.request.command

    @property
    def id(self) -> JobId:
        """Its identity, as in its result."""
        return JobId(str(self.candidate), self.step, self.repeat)

    @property
    def adds(self) -> bool:
        """Whether it continues with the events of earlier jobs."""
        return not self.request.data.clean

    @property
    def needs_whole_turn(self) -> bool:
        """Whether, after an interruption, the jobs before it must be repeated: it may already have added
        events, or its data went with the stopped server."""
        return self.adds or (self.has_start and self.command == "query")


Turn = Sequence[Job]
"""The steps of one candidate in order, since each continues with the data of the previous one."""


def plan_turns(definition: Definition) -> list[Turn]:
    """All jobs, in order; ConfigError with all problems of their options."""
    candidates = [
        Candidate(target, variant, nodes)
        for target in definition.targets
        for nodes, variant in product(
            definition.list_nodes(target), definition.list_variants(target)
        )
    ]
    if wrong := [definition.locate(way) + text for way, text in definition.find_option_problems()]:
        raise ConfigError(*wrong)
    problems = Problems()
    turns: list[Turn] = [
        [
            job
            for step in definition.steps
            if candidate.target not in step.without
            and (job := problems.collect(_read_job, definition, candidate, step, repeat))
        ]
        for candidate, repeat in order_turns(
            candidates,
            definition.repeats,
            definition.find_order(),
            definition.seed,
            together=[name for name in definition.targets if definition.find_installation(name)],
        )
    ]
    problems.refuse()
    return turns


def order_turns(
    candidates: Sequence[Candidate],
    repeats: int,
    order: Order,
    seed: int,
    together: Collection[str] = (),
) -> list[tuple[Candidate, int]]:
    """The order of turns, random by the seed. Interleaved: each candidate has one turn per repetition, in a
    random order (a randomized complete block design). In blocks, each has all its turns in a row; variants of
    the targets `together` are interleaved while the database with that number of nodes exists."""
    chance = random.Random(seed)
    groups: dict[object, list[Candidate]] = {}
    for candidate in candidates:
        key = (candidate.target, candidate.nodes) if candidate.target in together else candidate
        groups.setdefault(key if order is Order.BLOCKS else None, []).append(candidate)
    ordered = list(groups.values())
    if len(ordered) > 1:
        ordered = chance.sample(ordered, len(ordered))
    return [
        (candidate, repeat)
        for group in ordered
        for repeat in range(1, repeats + 1)
        for candidate in chance.sample(group, len(group))
    ]


def _read_job(definition: Definition, candidate: Candidate, step: Step, number: int) -> Job:
    """A job of this repetition. The specific overrides the general: options of all steps, the step's, the
    target's, the variant's. A step's `null` omits an option of all steps."""
    kind = REQUESTS[step.command]
    keys = find_keys(kind)
    target = definition.targets[candidate.target]
    variant = definition.variants[candidate.variant] if candidate.variant else {}
    merged: dict[str, Any] = {}
    for options in (definition.options, step.options, target.options, variant):
        for key, value in normalize(options).items():
            if key not in keys:
                continue  # of another step
            before = merged.get(key)
            if value is None and before is not None and options is step.options:
                del merged[key]
            elif isinstance(before, Mapping) and isinstance(value, Mapping):
                merged[key] = {**before, **value}
            else:
                merged[key] = value
    words = write_words(kind, merged)
    repeats = [str(number)] if definition.repeats > 1 else []
    name = " ".join([str(candidate), step.name, *repeats])
    named = {"target": name_target(definition, candidate)}
    try:
        request = kind.model_validate({**named, **merged})
    except ValidationError as error:
        key, problem = describe_problem(error)
        # The candidate's own options may be the cause.
        who = f"{candidate}: " if target.options or variant else ""
        where = f"{definition.locate_step(step.name)}{f'{key}: ' if key else who}"
        raise ConfigError(f"{where}{problem}") from error
    return Job(
        name,
        candidate,
        step.name,
        number,
        request,
        (f"--target={request.target}", *words),
        definition.find_installation(candidate.target),
        target.start is not None,
    )


def find_origin(definition: Definition, job: Job, key: str) -> Way | None:
    """The most specific place where the file sets an option of a job; None if it doesn't."""
    label, variant = job.candidate.target, job.candidate.variant
    places: list[tuple[Way, Mapping[str, Any]]] = [
        (("variants", variant or ""), definition.variants.get(variant or "", {})),
        (("targets", label), definition.targets[label].options),
    ]
    places += [
        (("steps", place, step.kind), step.options)
        for place, step in enumerate(definition.steps)
        if step.name == job.step and definition.has_steps
    ]
    for way, options in [*places, (("options",), definition.options)]:
        for written, own in zip(options, normalize(options), strict=True):
            if own == key:
                return (*way, written)
    return None


def name_target(definition: Definition, candidate: Candidate) -> str:
    """The candidate's target in the config file."""
    target = definition.targets[candidate.target]
    if isinstance(target.nodes, dict) and candidate.nodes is not None:
        return target.nodes[candidate.nodes]
    return target.target or candidate.target


def name_targets(definition: Definition, label: str) -> list[str]:
    """The targets in the config file behind a labelled one, for all numbers of nodes."""
    return [
        name_target(definition, Candidate(label, nodes=nodes))
        for nodes in definition.list_nodes(label)
    ]


def read_pairs(written: object) -> dict[str, Any]:
    """The value of an option such as `extra-option`, written as keys or as texts."""
    if isinstance(written, Mapping):
        return dict(written)
    texts = written if isinstance(written, list) else [written or ""]
    pairs = [str(text).partition("=") for text in texts]
    return {key.strip(): value for key, _, value in pairs if key.strip()}


def list_left(turns: Sequence[Turn], done: Collection[str], failed: Collection[str]) -> list[Turn]:
    """The turns left to do, in order, given the names of done and failed jobs. An interrupted turn resumes,
    or restarts if its next job needs that. Turns with a failure restart, last of all, since others have
    changed the data since."""
    left, again = [], []
    for turn in turns:
        open_jobs = [place for place, job in enumerate(turn) if job.name not in done]
        if any(job.name in failed for job in turn):
            again.append(turn)
        elif open_jobs:
            begin = 0 if turn[open_jobs[0]].needs_whole_turn else open_jobs[0]
            left.append(turn[begin:])
    return left + again


# The steps of a turn measure one schema, so that queries use the indexes that inserts paid for.


def check_schemas(turns: Sequence[Turn], prepared: Mapping[str, AnyExperiment]) -> None:
    """ConfigError, with a remedy, if steps of a turn would create or expect different tables."""
    for turn in turns:
        first_with: dict[tuple[str, str], tuple[Job, Any]] = {}
        for job in turn:
            experiment = prepared[job.name]
            for name, value in list_schema(experiment).items():
                key = experiment.session.request.workload, name
                other, before = first_with.setdefault(key, (job, value))
                if value != before:
                    raise ConfigError(
                        f"{job.candidate}: the steps would measure different schemas: {name} is {before} in"
                        f" {other.step} and {value} in {job.step}: give it to all steps (below `options`,"
                        " or the target's), or to compare both, make each a variant (below `variants`)"
                    )


def check_durability(turns: Sequence[Turn], prepared: Mapping[str, AnyExperiment]) -> None:
    """ConfigError, naming the setting, if a candidate's options acknowledge events before they are on disk.
    The server's own settings show only when connected, and in the verdict."""
    for job in chain.from_iterable(turns):
        session = prepared[job.name].session
        durability = session.module.find_durability("")
        options = session.assume_options().model_dump(mode="json")
        remedy = durability.judge(options).remedy if durability is not None else {}
        for name, value in remedy.items():
            raise ConfigError(
                f"target {job.candidate.target}: an acknowledged event isn't on disk, since {name} is"
                f" {str(options[name]).lower()}: set {name}: {value} for the target, or give its options"
                f" extra_option: {name}={value}"
            )


def list_schema(prepared: AnyExperiment) -> dict[str, Any]:
    """The options of a job that shape its tables."""
    session = prepared.session
    loads = [load for load in prepared.lengths[:1] if load.role is not Role.READ]
    models: list[BaseModel] = [session.assume_options(), session.workload_options, *loads]
    return {
        name: getattr(model, name)
        for model in models
        for name in type(model).model_fields
        if find_conditions(type(model)).get(name) is Condition.SCHEMA
    }
