"""Whether results may be published, and what must be stated with them. Only reads files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.contract import GroupResult, Role, RunResult
from simulator.documents import DocumentError, read_yaml
from simulator.errors import OptionError, did_you_mean, list_names, one_line
from simulator.modules import load_module
from simulator.modules.options import HIDDEN
from simulator.units import format_count

from ..plan.request import JobId
from ..system.errors import ConfigError
from ..system.installation import missing_package
from .caveats import Kind
from .conditions import find_durability
from .kept import is_kept, unpack
from .manifest import compare_manifest, list_secrets
from .model import Result, as_mapping
from .rules import find_busy
from .store import (
    FAILED,
    FILE_NAME,
    NOTES,
    PLAN,
    SET_ASIDE,
    PlannedJob,
    StoredResult,
    UnreadableResult,
    read_document,
    read_jobs,
    read_result,
)
from .verdicts import find_caveats, find_skipped_faults

ENOUGH_REPETITIONS = 3
"""Fewer don't show the spread."""
FINDINGS = "findings"
"""The key for findings among a campaign's notes."""
_CLIENT = ("cpu_model", "cpus", "memory_mb", "system", "python", "packages")
"""What must be known about the machine and the software."""
_APART = (
    Kind.NOT_MEASURED, Kind.INCOMPLETE, Kind.DISTURBANCE, Kind.INVALID, Kind.BUSY, Kind.FEW_RUNS,
)  # fmt: skip
"""Caveats that prevent publishing, or have their own lines."""
_LONGEST = 160
_MOST_NAMED = 3
"""How many results or jobs are named per problem."""


@dataclass
class Publication:
    """A folder to publish."""

    results: list[StoredResult]
    problems: list[str] = field(default_factory=list)
    """Why it may not be published."""
    beside: list[str] = field(default_factory=list)
    """What must be stated with its figures."""


def check_publication(path: Path) -> Publication:
    """Judge a folder (a campaign's, one with results, or a result's) or a packed file, whose hashes must
    match. ConfigError if there is no result."""
    folder = unpack(path)
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    publication = Publication([])
    files = [
        file
        for file in sorted(folder.rglob(FILE_NAME))
        if SET_ASIDE not in file.relative_to(folder).parts
    ]
    if not files:
        raise ConfigError(
            f"{folder} has no {FILE_NAME}: name a campaign's folder, or one with results"
        )
    for file in files:
        try:
            publication.results.append(StoredResult(file.parent.name, file, read_result(file)))
        except UnreadableResult as error:
            publication.problems.append(error.message)
    problems: dict[str, dict[str, str]] = {}
    for stored in publication.results:
        for problem in dict.fromkeys(_find_problems(stored.result)):
            # Which programs were busy differs from run to run.
            key = Kind.BUSY if problem.startswith(Kind.BUSY) else problem
            problems.setdefault(key, {}).setdefault(stored.result.label or stored.id, problem)
    publication.problems += [
        f"{next(iter(labels.values()))} ({list_names(labels, _MOST_NAMED)})"
        for labels in problems.values()
    ]
    jobs = read_jobs(read_document(folder / PLAN))
    notes = read_notes(folder / NOTES, {job.candidate for job in jobs.values()})
    plan = _Jobs(jobs, read_document(folder / FAILED) if jobs else {}, notes.candidates)
    publication.problems += _find_missing(plan, publication.results)
    publication.problems += list_secrets(folder)
    if is_kept(path):
        publication.problems += compare_manifest(folder)
    publication.beside = list(_describe_context([stored.result for stored in publication.results]))
    publication.beside += plan.describe_failures(plan.explained)
    if (folder / SET_ASIDE).is_dir():
        number = len(list((folder / SET_ASIDE).glob(f"*/{FILE_NAME}")))
        publication.beside.append(f"set aside and repeated: {format_count(number, 'result')}")
    return publication


def _find_problems(result: Result) -> Iterator[str]:
    """Why one result may not be published."""
    tool, client = result.describe("tool"), result.describe("client")
    database = result.describe("database")
    commit = str(tool.get("commit") or "")
    if result.source:
        yield "not measured by this tool"
    if not result.complete:
        yield "incomplete: not all runs were made"
    if not tool.get("version"):
        yield "the version of the tool is unknown"
    if commit.endswith("-dirty"):
        yield "the tool was changed since its last commit: what it did can't be repeated"
    if not database.get("version"):
        yield "the database's version is unknown"
    if not as_mapping(database.get("settings")):
        yield "the database's settings are unknown"
    if missing := [name for name in _CLIENT if not client.get(name)]:
        yield f"unknown about the client: {', '.join(missing)}"
    for caveat in (*find_skipped_faults(result), *find_busy(result)):
        yield f"{caveat.kind}: {_shorten(caveat.text)}"
    yield from _find_unverified(result)
    yield from _find_shown_secrets(result)


def _find_unverified(result: Result) -> Iterator[str]:
    """What was not counted, checked or valid. Rates that a search tried without success aren't figures."""
    if not result.valid:
        reasons = [
            reason
            for run in result.all_runs
            for group in run.groups
            if not _is_finding(run, group)
            for reason in group.invalid_reasons
        ]
        if reasons:
            yield f"invalid: {_shorten(reasons[0])}"
    for run in result.all_runs:
        for group in run.groups:
            if not group.valid:
                continue
            if group.role is Role.WRITE and (
                group.verification is None or group.verification.stored is None
            ):
                yield "the stored events were not counted"
            if group.role is Role.READ and not (group.answers and group.answers.checked):
                yield "no answer was checked"


def _is_finding(run: RunResult, group: GroupResult) -> bool:
    """Whether a run is invalid only for what it measures: the effect of a fault."""
    return bool(run.marks) and group.role is Role.WRITE and group.lookup is not None


def _find_shown_secrets(result: Result) -> Iterator[str]:
    """A problem for each option that the module keeps secret but the result shows."""
    try:
        fields = load_module(result.module).options_model.model_fields
    except OptionError:
        return
    except ModuleNotFoundError as error:
        yield f"can't search for secrets: {missing_package(error) or error}"
        return
    options = result.settings.module
    for name, option in fields.items():
        value = options.get(name)
        # Addresses are stored without passwords.
        secret = not option.repr and re.search("password|token|secret|key", name)
        if secret and value not in (None, HIDDEN) and not str(value).startswith("${"):
            yield f"option {name} shows a secret"


@dataclass
class _Jobs:
    """What a campaign planned, and why it could not do all of it."""

    planned: Mapping[str, PlannedJob]
    """Name -> job."""
    failed: Mapping[str, object]
    """Job -> why it has no result."""
    notes: Mapping[str, str]
    """Candidate -> a note on its figures."""

    @property
    def explained(self) -> list[str]:
        """Failures that count as results: their candidates have a note."""
        planned = self.planned
        return [n for n in self.failed if n in planned and planned[n].candidate in self.notes]

    def describe_failures(self, names: Iterable[str]) -> list[str]:
        """A line for each of these failures."""
        return [f"{name} failed: {_shorten(str(self.failed[name]))}" for name in names]

    def find_absent(
        self, done: Collection[JobId | None]
    ) -> tuple[list[PlannedJob], list[PlannedJob]]:
        """The jobs without a result: those that still need an explanation, and those of turns that ended with
        an explained failure."""
        failed = [self.planned[name] for name in self.explained]
        ended = {(job.candidate, job.repetition) for job in failed}
        # Under its latest name, if it had several.
        jobs = {job.id: job for job in self.planned.values()}
        absent = [job for id_, job in jobs.items() if id_ not in done]
        excused = [job for job in absent if (job.candidate, job.repetition) in ended]
        return [job for job in absent if job not in excused], excused


def _find_missing(plan: _Jobs, results: Sequence[StoredResult]) -> Iterator[str]:
    """Jobs of a campaign without a result, failed jobs, and too few repetitions."""
    absent, excused = plan.find_absent({stored.result.job for stored in results})
    if absent:
        names = list_names([job.name for job in absent], _MOST_NAMED)
        yield f"{format_count(len(absent), 'job')} without a result: {names}"
    yield from plan.describe_failures(name for name in plan.failed if name not in plan.explained)
    counts: Counter[str] = Counter(f"{job.candidate} {job.step}" for job in excused)
    for stored in results:
        result = stored.result
        job = result.job
        label = (
            f"{job.candidate} {job.step}"
            if job
            else result.label or f"{result.target} {result.command}"
        )
        is_one = job is not None or result.command in ("capacity", "tune")
        counts[label] += 1 if is_one else result.settings.runs or 1
    few = [f"{label} ({number})" for label, number in counts.items() if number < ENOUGH_REPETITIONS]
    if few:
        yield f"fewer than {ENOUGH_REPETITIONS} repetitions: {list_names(few, _MOST_NAMED)}"


@dataclass(frozen=True)
class Notes:
    """What was written about a campaign."""

    candidates: Mapping[str, str] = field(default_factory=dict)
    """Candidate -> why its figures are surprising, or why it failed."""
    findings: Mapping[str, str] = field(default_factory=dict)
    """What the campaign shows -> the figures that show it."""


def read_notes(file: Path, candidates: Collection[str]) -> Notes:
    """The file's notes; empty without such a file. ConfigError if it names another candidate."""
    if not file.is_file():
        return Notes()
    try:
        _, document = read_yaml(file)
    except DocumentError as error:
        raise ConfigError(f"{file} {error}") from error
    texts = dict(document) if isinstance(document, dict) else {"": document}
    findings = texts.pop(FINDINGS, {})
    if not _has_texts(findings):
        raise ConfigError(
            f"{file}: give {FINDINGS} a text each, as in {FINDINGS}: {{What is so: its figures.}}"
        )
    if not _has_texts(texts):
        example = f", as in {min(candidates)}: Why it is so slow." if candidates else ""
        raise ConfigError(f"{file}: give each candidate a text{example}")
    for name in texts:
        if name not in candidates:
            near = did_you_mean(str(name), candidates)
            raise ConfigError(f"{file}: there is no candidate {name!r}{near}")
    return Notes(_join_lines(texts), _join_lines(findings))


def _join_lines(texts: Mapping[str, str]) -> dict[str, str]:
    return {str(name): one_line(text) for name, text in texts.items()}


def _has_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


# --- what must be said beside the figures ---------------------------------------------------------


def _describe_context(results: Sequence[Result]) -> Iterator[str]:
    """The machines, the databases, date and version of the measurement; durability; limitations."""
    yield from _describe_machines(results)
    yield from _describe_databases(results)
    days = sorted({result.started_at[:10] for result in results})
    span = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "never"
    tools = {_describe_tool(result) for result in results}
    yield f"measured {span} by version {', '.join(sorted(tools))} of this tool"
    yield from _describe_losses(results)
    unchecked: dict[str, int] = {}
    for result in results:
        for answers in result.answers:
            for reason in answers.reasons:
                unchecked[reason] = unchecked.get(reason, 0) + 1
    for reason, number in unchecked.items():
        yield f"answers not checked in {format_count(number, 'run')}: {_shorten(reason)}"
    yield from _sum_up_caveats(results)


def _describe_machines(results: Sequence[Result]) -> Iterator[str]:
    machines: dict[str, None] = {}
    for result in results:
        client = result.describe("client")
        memory_mb = client.get("memory_mb")
        memory = f"{memory_mb / 1024:.0f} GB" if isinstance(memory_mb, int | float) else "? GB"
        where = "client and database together" if result.executor == "local" else "workers in pods"
        cpus = client.get("cpus_usable") or client.get("cpus")
        machines[f"{client.get('cpu_model')}, {cpus} CPUs, {memory}, {where}"] = None
    yield from (f"on {text}" for text in machines)


def _describe_tool(result: Result) -> str:
    tool = result.describe("tool")
    commit = str(tool.get("commit") or "")[:10]
    return f"{tool.get('version')} ({commit})" if commit else str(tool.get("version"))


def _describe_databases(results: Sequence[Result]) -> Iterator[str]:
    """Each version of each database, and when acknowledged events are on disk."""
    databases: dict[str, None] = {}
    for result in results:
        durable = find_durability(result)
        durability = ", ".join(f"{name} {value}" for name, value in durable.items())
        version = one_line(str(result.describe("database").get("version")), 60)
        databases[f"{result.target} {version}" + (f": {durability}" if durability else "")] = None
    yield from sorted(databases)


def _describe_losses(results: Iterable[Result]) -> Iterator[str]:
    for result in results:
        for run in result.all_runs:
            for group in run.groups:
                if group.invalid_reasons and _is_finding(run, group):
                    reasons = _shorten("; ".join(group.invalid_reasons))
                    yield f"after {run.marks[0].action}: {result.label or result.target}: {reasons}"


def _sum_up_caveats(results: Iterable[Result]) -> Iterator[str]:
    """One line per kind of caveat, with the number of results that have it and an example."""
    by_kind: dict[Kind, dict[str, str]] = {}
    for result in results:
        for caveat in find_caveats(result):
            if caveat.kind not in _APART:
                text = " ".join(filter(None, [str(caveat.where or ""), caveat.text]))
                label = result.label or f"{result.target} {result.command}"
                by_kind.setdefault(caveat.kind, {}).setdefault(label, text)
    for kind, texts in by_kind.items():
        label, text = next(iter(texts.items()))
        yield f"{kind} ({format_count(len(texts), 'result')}), as in {label}: {_shorten(text)}"


def _shorten(text: str) -> str:
    return one_line(text, _LONGEST)
