"""Results on disk: writing and reading a command's folder, and finding the results a user names."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from simulator.documents import MOST_BYTES_JSON, DocumentError, parse_json, read_file, read_json
from simulator.errors import make_printable

from ..plan.request import JobId
from ..plan.values import LATEST
from ..system.errors import ConfigError, RunFailed
from ..system.installation import program
from ..system.output import explain, note, write_whole
from . import index
from .address import Address, explain_named, is_address
from .decision import VerdictMatrix
from .index import ResultLine, list_entries, list_lines
from .kept import find_results, is_kept
from .model import FORMAT, Result, as_mapping

FILE_NAME = index.FILE_NAME
LOCAL = Path("results")
"""Where results bound for an address are first written."""
_UNSAFE = re.compile(r"[^\w.+=@-]+")
"""Characters of a target's name that a folder name can't have."""
MOST_OF_TARGET = 60
"""Characters; a file name may have 255 bytes."""
_UNUSUAL = re.compile(rb"\\[^\"/\\]|[\x7f-\xff]")
"""What a JSON text must contain if one of its strings isn't a printable line."""


def now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


class ResultFolder:
    """`results/<UTC time>-<command>-<target>/`: result.json and logs/. Created when a command begins, so that
    an unwritable folder is found before the runs. For an address, it is created in `results` and copied at
    the end."""

    def __init__(
        self, output: Path | Address, started: datetime, command: str, target: str
    ) -> None:
        plain = _UNSAFE.sub("-", target)[:MOST_OF_TARGET]
        name = f"{started:%Y%m%dT%H%M%SZ}-{command}-{plain}"
        self._kept = False
        self._address = output if isinstance(output, Address) else None
        if isinstance(output, Address):
            output.check_writable()
            output = LOCAL
        try:
            output.mkdir(parents=True, exist_ok=True)
            self.path = _make_folder(output, name)
            (self.path / "logs").mkdir()
        except (OSError, UnicodeEncodeError) as error:
            raise ConfigError(
                f"can't write results to {output} (--output): {explain(error)}"
            ) from error

    def logs(self, run: str) -> Path:
        """A new folder for one run's logs."""
        folder = self.path / "logs" / run
        try:
            folder.mkdir()
        except OSError as error:
            raise RunFailed(f"can't write {folder}: {explain(error)}") from error
        return folder

    def write(self, result: Result, copy: Path | None) -> Path:
        """Write result.json atomically, and the copy independently of it. RunFailed, naming what was written,
        if one of them fails."""
        self._kept = True
        text = result.model_dump_json(indent=1)
        file = self.path / FILE_NAME
        written: list[str] = []
        problems: list[RunFailed] = []
        for path in filter(None, (file, copy)):
            try:
                write_whole(path, text)
                written.append(f"\nThe result is in {path}")
            except RunFailed as error:
                problems.append(error)
        if problems:
            text = "; ".join(problem.message for problem in problems)
            raise RunFailed(text + "".join(written)) from problems[0]
        return file

    def keep_logs(self) -> None:
        """Keep the folder without a result, for the logs of a failure."""
        self._kept = True

    def send(self) -> str | None:
        """Copy the folder to its address, if it has one and there is something worth keeping; return the new
        address. RunFailed if that fails: nothing is lost."""
        return self._address.send(self.path) if self._address and self._kept else None

    def close(self) -> None:
        """Remove the folder unless it holds something worth keeping."""
        if not self._kept:
            shutil.rmtree(self.path, ignore_errors=True)


def _make_folder(parent: Path, name: str) -> Path:
    """A new folder: a second command in the same second gets the suffix -2."""
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


# --- reading --------------------------------------------------------------------------------------


class UnreadableResult(ConfigError):
    """A file that isn't a result, or that this version can't read; the text says why."""


@dataclass(frozen=True)
class StoredResult:
    """A result and where it is kept."""

    id: str
    """The name of its folder, or of its file if that isn't result.json."""
    file: Path
    result: Result


def read_result(path: Path) -> Result:
    """A stored result; `path`: its folder or file. UnreadableResult if it isn't one."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        content = read_file(file, MOST_BYTES_JSON)
        document = parse_json(content)
    except FileNotFoundError as error:
        raise UnreadableResult(f"can't read {file}: {error.strerror}") from error
    except DocumentError as error:
        raise UnreadableResult(f"{file} is damaged or not a result: it {error}") from error
    plain = content.isascii() and b"\\" not in content and b"\x7f" not in content
    if not plain and _UNUSUAL.search(content):
        document = make_printable(document)
    if not isinstance(document, dict) or "format" not in document:
        raise UnreadableResult(f"{file} isn't a result: it has no `format`")
    form = document["format"]
    if type(form) is not int or form != FORMAT:
        raise UnreadableResult(f"{file} has {_describe_other_format(document)}")
    try:
        return Result.model_validate(document)
    except ValidationError as error:
        raise UnreadableResult(f"{file} is damaged: {_describe_problem(error)}") from error


def _describe_other_format(document: dict[str, Any]) -> str:
    version = as_mapping(as_mapping(document.get("environment")).get("tool")).get("version")
    by = f" (version {version})" if version else ""
    form = document["format"]
    if isinstance(form, int) and form > FORMAT:
        return (
            f"format {form}, made by a newer version of this tool{by}, while this one reads"
            f" format {FORMAT}: update the tool"
        )
    return f"format {form!r}, which this tool doesn't read: it reads format {FORMAT}"


def _describe_problem(error: ValidationError) -> str:
    """The first problem, and where it is."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return f"{place} is not a field of format {FORMAT}"
    problem = first["msg"].removeprefix("Value error, ")
    return f"{place}: {problem[:1].lower()}{problem[1:]}" if place else problem


VERDICT = "verdict.json"
"""In a campaign's folder: the verdict on its requirements."""
PLAN, FAILED, CAMPAIGN = "plan.json", "failed.json", "campaign.yaml"
"""In a campaign's folder: its jobs, why some have no result, and a copy of its file."""
WORKLOAD = "workload "
"""The prefix of a workload's name among the targets of a plan, whose own names have no spaces."""
NOTES = "notes.yaml"
"""In a campaign's folder: what it shows, and why a candidate's figures are surprising, or why it failed."""
SET_ASIDE = "replaced"
"""In a campaign's folder: results that were replaced by new ones."""


class PlannedJob(BaseModel):
    """A job as stored in its campaign's `plan.json`."""

    name: str
    """The label of its result."""
    candidate: str
    step: str
    repetition: int
    command: str
    arguments: list[str]

    @property
    def id(self) -> JobId:
        """Its identity, independent of its name."""
        return JobId(self.candidate, self.step, self.repetition)


def read_document(
    file: Path, remedy: str = "remove the campaign, or run it again"
) -> dict[str, Any]:
    """What a JSON file of a campaign's folder says; empty if there is no such file. ConfigError, with the
    remedy, if it is damaged."""
    try:
        document = read_json(file)
    except FileNotFoundError:
        return {}
    except DocumentError as error:
        raise ConfigError(f"{file} is damaged: it {error}; {remedy}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{file} is damaged: it has no keys; {remedy}")
    return document


def read_jobs(plan: Mapping[str, Any]) -> dict[str, PlannedJob]:
    """Name -> job, for the well-formed jobs in a `plan.json`. The job of a single repetition gets a new name
    once there are several; both names remain."""
    jobs = {}
    for document in plan.get("jobs") or []:
        with suppress(ValidationError):
            job = PlannedJob.model_validate(document)
            jobs[job.name] = job
    return jobs


def open_verdict(path: Path) -> VerdictMatrix | None:
    """The verdict of a campaign; `path`: its folder or the file. None if there is none, UnreadableResult if
    it is damaged."""
    file = path / VERDICT if path.is_dir() else path
    if file.name != VERDICT or not file.is_file():
        return None
    try:
        document = parse_json(read_file(file, MOST_BYTES_JSON))
        return VerdictMatrix.model_validate(make_printable(document))
    except DocumentError as error:
        raise UnreadableResult(f"{file} is damaged or not a verdict: it {error}") from error
    except ValidationError as error:
        raise UnreadableResult(f"{file} is damaged: {_describe_problem(error)}") from error


def list_results(folder: Path) -> list[StoredResult]:
    """All results in a folder, oldest first. Unreadable ones are named on standard error and left out.
    ConfigError if there is no such folder."""
    results = [read_or_skip(folder, id_) for id_ in list_entries(folder)]
    return sorted(filter(None, results), key=lambda stored: (stored.result.started_at, stored.id))


def read_or_skip(folder: Path, id_: str) -> StoredResult | None:
    """A result of a folder; None, with a note, if it can't be read."""
    try:
        return _read_kept(folder, id_)
    except UnreadableResult as error:
        note(f"skipped: {error.message}")
        return None


def _read_kept(folder: Path, id_: str) -> StoredResult:
    file = folder / id_ / FILE_NAME
    return StoredResult(id_, file, read_result(file))


def read_line(folder: Path, id_: str) -> ResultLine | None:
    """The line of a result, without cells; None, with a note, if it can't be read."""
    stored = read_or_skip(folder, id_)
    return None if stored is None else make_line(stored)


def make_line(stored: StoredResult, cells: Mapping[str, str] | None = None) -> ResultLine:
    """The index line of a result."""
    result = stored.result
    return ResultLine(stored.id, result.started_at, result.target, result.label, result.tags, cells)


def open_result(name: str, folder: Path) -> StoredResult:
    """The result that a user names: `latest`; an ID in `folder` or its unique beginning; a label (the newest
    result with it); or the path of a result's folder or file. ConfigError if there is none."""
    return _open(name, folder, *_list_once(folder))


def open_results(names: Iterable[str], folder: Path) -> list[StoredResult]:
    """The results that a user names, as in `open_result`, or all complete ones of a campaign; the folder is
    read once."""
    listing = _list_once(folder)
    found: list[StoredResult] = []
    for name in names:
        if is_campaign(Path(name)):
            results = list_results(find_results(Path(name)))
            found += [stored for stored in results if stored.result.complete]
        else:
            found.append(_open(name, folder, *listing))
    return found


def is_campaign(path: Path) -> bool:
    """Whether a path names a campaign's folder, or its packed file."""
    return is_kept(path) or (path / PLAN).is_file()


ListIds = Callable[[], Iterable[str]]
ListLines = Callable[[], list[ResultLine]]


def _list_once(folder: Path) -> tuple[ListIds, ListLines]:
    """What lists a folder's IDs, and its lines: each reads it when it is called first."""
    list_ids = cache(partial(list_entries, folder, missing_ok=True))
    return list_ids, cache(partial(list_lines, folder, read_line))


def _open(name: str, folder: Path, list_ids: ListIds, list_all: ListLines) -> StoredResult:
    if not name.strip():
        raise ConfigError("the name of a result is empty")
    if name == LATEST:
        lines = list_all()
        if not lines:
            raise ConfigError(f"there is no result in {folder}: run something first")
        return _read_kept(folder, lines[-1].id)
    if is_address(name):
        raise ConfigError(explain_named(name))
    path = Path(name)
    if path.is_dir() and not (path / FILE_NAME).is_file():
        # A folder of that name doesn't hide the ID of a result.
        if not (folder / name / FILE_NAME).is_file():
            raise ConfigError(f"{name} is a folder without a {FILE_NAME}")
    elif path.exists():
        file = path / FILE_NAME if path.is_dir() else path
        id_ = file.absolute().parent.name if file.name == FILE_NAME else file.stem
        return StoredResult(id_, file, read_result(file))
    ids = list(list_ids())
    matches = [name] if name in ids else [id_ for id_ in ids if id_.startswith(name)]
    if len(matches) > 1:
        some = ", ".join(matches[:3]) + (", …" if len(matches) > 3 else "")
        raise ConfigError(f"{len(matches)} results begin with {name}: {some}; give more of the ID")
    if not matches and ids and (labelled := _find_labelled(name, folder, list_all())):
        return labelled
    if not matches:
        near = difflib.get_close_matches(name, ids, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(
            f"there is no result {name!r} in {folder}, nor a folder or file of that name{hint}\n"
            f"See: {program()} results"
        )
    return _read_kept(folder, matches[0])


def _find_labelled(label: str, folder: Path, lines: Iterable[ResultLine]) -> StoredResult | None:
    """The newest result with that label; with a note if there are older ones."""
    lines = [line for line in lines if line.label == label]
    if not lines:
        return None
    newest = lines[-1]
    if len(lines) > 1:
        note(f"{len(lines)} results have the label {label}: using the newest, {newest.id}")
    return _read_kept(folder, newest.id)
