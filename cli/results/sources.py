"""The results of a site, found below folders, each with its candidate, test and command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from simulator.conditions import Condition

from ..plan.request import JobId
from ..system.errors import ConfigError
from ..system.output import note
from .conditions import Origin, find_declared, list_settings
from .decision import VerdictMatrix
from .kept import unpack
from .manifest import redact_result, redact_text
from .model import Result, as_mapping
from .naming import find_changed_options, format_options
from .publication import read_notes
from .store import (
    CAMPAIGN,
    FAILED,
    FILE_NAME,
    NOTES,
    PLAN,
    SET_ASIDE,
    WORKLOAD,
    PlannedJob,
    StoredResult,
    UnreadableResult,
    open_verdict,
    read_document,
    read_jobs,
    read_result,
)

MANIFEST = "site-files.json"
"""The manifest in a site's folder. Folders that have one aren't searched for results."""
_NO_RESULTS = frozenset({"logs", SET_ASIDE})
MOST_DEPTH = 6
"""How many levels of subfolders are searched."""


@dataclass(frozen=True)
class Source:
    """A result, or the failure of a job that has none."""

    name: str
    """The name of its file in the site, without extension."""
    stored: StoredResult | None
    candidate: str
    """The candidate in its campaign; without a campaign, its target."""
    test: str
    """What was done, in a few words; equal for all sources whose figures can be compared."""
    test_key: str
    """Identifies the test."""
    identity: str
    """Distinguishes candidates of the same name, together with `own`."""
    own: Mapping[str, Any]
    """The module's options, if it belongs to no campaign."""
    command: str = ""
    """The command line that repeats it, if it belongs to a campaign."""
    failure: str = ""
    campaign: str = ""
    """The title of its campaign, or the name of the campaign's folder; empty without a campaign."""
    note: str = ""
    """Why its candidate's figures are surprising."""

    @property
    def result(self) -> Result:
        """The stored result; a failed job has none."""
        assert self.stored is not None
        return self.stored.result


@dataclass(frozen=True)
class Sources:
    """The whole input of a site."""

    done: Sequence[Source]
    failed: Sequence[Source]
    campaigns: Mapping[str, str]
    """Campaign -> the text of its file."""
    verdicts: Mapping[str, VerdictMatrix]
    """Campaign -> which candidates meet its requirements, if it has any."""
    findings: Mapping[str, str]
    """What was written that the campaigns show -> the figures that show it."""


def find_sources(folders: Sequence[Path]) -> Sources:
    """The results below these folders, without what must not be published. ConfigError, with a remedy, if
    there are none or one can't be read."""
    sources: dict[Path, Source] = {}
    failed: list[Source] = []
    campaigns: dict[str, str] = {}
    verdicts: dict[str, VerdictMatrix] = {}
    findings: dict[str, str] = {}
    seen: set[Path] = set()
    for named in folders:
        folder = unpack(named)
        if not folder.is_dir():
            problem = "a file: name the folder that it is in" if folder.exists() else "missing"
            raise ConfigError(
                f"{folder} is {problem}; publish takes campaigns' folders, and folders with results"
            )
        for path in _walk(folder):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            if (path / PLAN).is_file():
                findings |= _take_campaign(path, sources, failed)
                # Named after its folder, which is unique.
                name = re.sub(r"[^\w.-]+", "-", path.resolve().name)
                while name in campaigns:
                    name += "-"
                if (path / CAMPAIGN).is_file():
                    text = (path / CAMPAIGN).read_text(encoding="utf-8", errors="replace")
                    campaigns[name] = redact_text(text)
                verdict = open_verdict(path)
                if verdict is not None:
                    document = redact_result(verdict.model_dump(mode="json"))
                    verdicts[name] = VerdictMatrix.model_validate(document)
            else:
                for file in _list_files(path):
                    if file.resolve() not in sources:
                        _take_alone(file, sources)
    if not sources:
        where = ", ".join(map(str, folders))
        raise ConfigError(
            f"there is no complete result in {where}: name a folder with a {FILE_NAME} somewhere below it,"
            " or with results under other names (.json)"
        )
    done = sorted(
        sources.values(), key=lambda source: (source.result.started_at, source.name, source.test)
    )
    return Sources(_name_apart(done), failed, campaigns, verdicts, findings)


def _name_apart(sources: Sequence[Source]) -> list[Source]:
    """The sources with distinct names: results of several folders may share one."""
    used: dict[str, int] = {}
    apart = []
    for source in sources:
        used[source.name] = number = used.get(source.name, 0) + 1
        apart.append(source if number == 1 else replace(source, name=f"{source.name}-{number}"))
    return apart


def _walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    """The folder and its subfolders, down to campaigns, without sites, logs and hidden folders."""
    if (folder / MANIFEST).exists():
        return
    yield folder
    if depth == MOST_DEPTH or (folder / PLAN).is_file():
        return
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError as error:
        raise ConfigError(f"can't read {folder}: {error.strerror}; make it readable") from error
    for path in inner:
        if path.name not in _NO_RESULTS and not path.name.startswith("."):
            yield from _walk(path, depth + 1)


def _list_files(folder: Path) -> list[Path]:
    """The folder's result.json; without one, all JSON files that state a format."""
    if (folder / FILE_NAME).is_file():
        return [folder / FILE_NAME]
    return [
        path
        for path in sorted(folder.glob("*.json"))
        if path.is_file() and b'"format"' in path.read_bytes()
    ]


def _read(file: Path) -> Result:
    """The result without what must not be published. UnreadableResult, with a remedy, if the file isn't
    one."""
    try:
        result = read_result(file)
    except UnreadableResult as error:
        raise UnreadableResult(
            f"{error.message}\nRepair it, or remove it from the folder, and publish again."
        ) from error
    return Result.model_validate(redact_result(result.model_dump(mode="json")))


def _take_alone(file: Path, sources: dict[Path, Source]) -> None:
    """Add a result that belongs to no campaign."""
    result = _read(file)
    if not result.complete:
        note(f"left out: {file} ended early; run the same command for a complete one")
        return
    name = file.parent.name if file.name == FILE_NAME else file.stem
    declared = find_declared(result)
    changed = find_changed_options(result)
    settings = {
        setting.name: stated
        for setting, stated in list_settings(result, declared).items()
        if setting.origin is Origin.COMMAND
    }
    schema = {name for name, stated in settings.items() if stated.condition is Condition.SCHEMA}
    options = schema | (set(result.settings.module) & declared.option_names)
    own = {name: value for name, value in changed.items() if name in options}
    lengths = {key: result.options.get(key) for key in ("workers", "num_inserts", "duration_s")}
    # Insert statements differ between databases.
    left_out = schema | {"insert_mode"}
    load = {
        name: str(stated.value) for name, stated in settings.items() if name not in left_out
    } | lengths
    words = {
        name: value
        for name, value in changed.items()
        if name not in own and name not in ("definition", "workload")
    }
    sources[file.resolve()] = Source(
        name,
        StoredResult(name, file, result),
        result.target,
        f"{result.command} {format_options(words)}".strip(),
        _write_key([result.command, load]),
        _write_key([result.module, result.executor, own]),
        own,
    )


def _write_key(parts: Sequence[Any]) -> str:
    return to_json(parts, fallback=str).decode()


def _take_campaign(
    folder: Path, sources: dict[Path, Source], failed: list[Source]
) -> dict[str, str]:
    """Add the complete results of a campaign's jobs, and the failed jobs. Returns its findings."""
    plan = read_document(folder / PLAN)
    planned = read_jobs(plan)
    jobs = {job.id: job for job in planned.values()}
    definition = as_mapping(plan.get("definition"))
    targets = as_mapping(plan.get("targets"))
    notes = read_notes(folder / NOTES, {job.candidate for job in jobs.values()})
    shared = [definition.get(key) for key in ("options", "requirements", "steps")]
    key = _write_key(
        [*shared, {name: target for name, target in targets.items() if name.startswith(WORKLOAD)}]
    )
    title = redact_text(str(definition.get("title") or folder.resolve().name))

    def make(name: str, job: PlannedJob) -> Source:
        words = [job.command, *job.arguments]
        line = redact_text(shlex.join(["iotbench", *words]))
        target = next((word for word in words if word.startswith("--target=")), "")
        identity = str(targets.get(target.removeprefix("--target=")))
        return Source(
            name, None, job.candidate, job.step, f"{job.step} {key}", identity, {}, line,
            campaign=title, note=redact_text(notes.candidates.get(job.candidate, "")),
        )  # fmt: skip

    done: set[JobId] = set()
    inner = folder / "results"
    for path in sorted(inner.iterdir()) if inner.is_dir() else []:
        file = path / FILE_NAME
        if not file.is_file() or file.resolve() in sources:
            continue
        result = _read(file)
        if not result.complete or result.job not in jobs:
            note(f"left out: {file} isn't a complete result of a job of its campaign")
            continue
        done.add(result.job)
        sources[file.resolve()] = replace(
            make(path.name, jobs[result.job]), stored=StoredResult(path.name, file, result)
        )
    failures = read_document(folder / FAILED)
    reasons = {planned[name].id: why for name, why in failures.items() if name in planned}
    broken: dict[tuple[str, int], str] = {}
    for id_, job in jobs.items():
        # After a failure, the rest of the turn is skipped.
        turn = job.candidate, job.repetition
        if id_ in reasons:
            broken[turn] = job.name
            failed.append(replace(make("", job), failure=redact_text(str(reasons[id_]))))
        elif turn in broken and id_ not in done:
            failed.append(replace(make("", job), failure=f"left out, since {broken[turn]} failed"))
    return {redact_text(claim): redact_text(text) for claim, text in notes.findings.items()}
