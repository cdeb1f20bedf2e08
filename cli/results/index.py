"""An index of result folders: once a result has been read, what lists need is kept in the user's cache.

The cache, a JSON file that is replaced as a whole, may be missing, broken, unwritable or on a full disk, and
can be removed at any time: then results are read again. It isn't stored with the results: a stranger's cache
can't be trusted, and published results need none. Nothing here imports the result models, which would take
longer than a list.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from simulator import __version__

from ..system.errors import ConfigError
from ..system.installation import PACKAGES

FILE_NAME = "result.json"
OWN = Path("~/.cache/iot-database-benchmark/results")
FEWEST = 50
"""The fewest results worth an index: fewer are read in a moment."""
_AT_ONCE = 500
"""Lines written at a time, so that interrupting the first, slow list doesn't lose its work."""
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def list_entries(folder: Path, missing_ok: bool = False) -> dict[str, os.stat_result]:
    """ID -> stat of its result.json, in order, for folders with a result; one with only the logs of a failure
    has none. ConfigError if there is no such folder."""
    entries = {}
    try:
        for name in sorted(path.name for path in folder.iterdir()):
            try:
                # Making ten thousand paths takes longer than the rest of a list.
                entries[name] = os.stat(f"{folder}/{name}/{FILE_NAME}")  # noqa: PTH116
            except OSError as error:
                if error.errno not in _NOTHING_THERE:
                    raise
    except FileNotFoundError:
        if missing_ok:
            return {}
        raise ConfigError(
            f"there is no folder {folder}: run something first, or name another with --results"
        ) from None
    except OSError as error:
        raise ConfigError(f"can't read {folder}: {error.strerror}") from error
    return entries


@dataclass(frozen=True)
class ResultLine:
    """A result as lists show it and filters match it."""

    id: str
    started_at: str
    target: str
    label: str | None
    tags: Mapping[str, str]
    cells: Mapping[str, str] | None
    """Heading -> text; None if not yet requested."""


ReadLine = Callable[[Path, str], ResultLine | None]
"""Reads the line of an ID in a folder; None if it can't be read."""


def list_lines(folder: Path, read: ReadLine, with_cells: bool = False) -> list[ResultLine]:
    """The lines of all results in a folder, oldest first. Reads only results that the index lacks, or whose
    cells it lacks if requested. ConfigError if there is no such folder."""
    lines = []
    entries = list_entries(folder)
    with ResultIndex(folder, entries) as index:
        for id_ in entries:
            line = index.find(id_)
            if line is None or (with_cells and line.cells is None):
                line = read(folder, id_)
                if line is None:
                    continue
                index.add(line)
            lines.append(line)
    return sorted(lines, key=lambda line: (line.started_at, line.id))


class ResultIndex:
    """The lines of the results in a folder. A context manager: additions are written on exit."""

    def __init__(self, folder: Path, entries: Mapping[str, os.stat_result]) -> None:
        """`entries`: ID of each result -> stat of its file before it was read."""
        self._folder = folder
        self._stamps: dict[str, str] = {}
        self._lines: dict[str, tuple[str, dict[str, Any]]] = {}
        """ID -> its stamp, and the fields of its line."""
        self._unwritten = 0
        if len(entries) >= FEWEST:
            tool, known = _describe_tool(), self._read()
            self._stamps = {id_: _make_stamp(tool, status) for id_, status in entries.items()}
            for id_, stamp in self._stamps.items():
                with suppress(KeyError, IndexError, TypeError):  # whatever is there instead
                    if known[id_][0] == stamp:
                        self._lines[id_] = stamp, known[id_][1]
            self._unwritten = len(known) - len(self._lines)

    def __enter__(self) -> ResultIndex:
        return self

    def __exit__(self, *_: object) -> None:
        if self._unwritten:
            self._write()

    def find(self, id_: str) -> ResultLine | None:
        """The line of a result; None if unknown, or if its file has changed since."""
        with suppress(KeyError, TypeError):
            return ResultLine(id_, **self._lines[id_][1])
        return None

    def add(self, line: ResultLine) -> None:
        """Store the line of a result that was read."""
        if line.id in self._stamps:
            values = {name: value for name, value in vars(line).items() if name != "id"}
            self._lines[line.id] = self._stamps[line.id], values
            self._unwritten += 1
        if self._unwritten >= _AT_ONCE:
            self._write()

    def _read(self) -> dict[str, Any]:
        with suppress(OSError, RuntimeError, ValueError):
            document = orjson.loads(self._locate().read_bytes())
            return document if isinstance(document, dict) else {}
        return {}

    def _write(self) -> None:
        self._unwritten = 0
        with suppress(OSError, RuntimeError, TypeError):  # no home; a name that isn't UTF-8
            file = self._locate()
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(f".{os.getpid()}")
            try:
                part.write_bytes(orjson.dumps(self._lines))
                part.replace(file)
            finally:
                part.unlink(missing_ok=True)

    def _locate(self) -> Path:
        name = sha256(os.fsencode(self._folder.resolve())).hexdigest()[:16]
        return OWN.expanduser() / f"{name}.json"


def _make_stamp(tool: str, status: os.stat_result) -> str:
    """A stamp that changes as soon as the file may be another, or be shown otherwise. The time of its last
    change and its number show what was replaced within a tick of the clock, or was given an old time."""
    parts = (tool, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    return " ".join(map(str, parts))


def _describe_tool() -> str:
    """What lines depend on besides results: this tool's code and the installed packages, some of which are
    modules with their own defaults. The folders' times reveal what git replaces but not edits in place, for
    which 400 files would have to be checked."""
    folders = [Path(orjson.__file__).parents[1]]
    for name in ("cli", "simulator"):
        for folder, names, _ in os.walk(PACKAGES / name):
            names[:] = [name for name in names if name != "__pycache__"]
            folders.append(Path(folder))
    newest = max(folder.stat().st_mtime_ns for folder in folders)
    return f"{__version__} {len(folders)} {newest}"


@dataclass(frozen=True)
class Selection:
    """The criteria for choosing results."""

    targets: Collection[str] = ()
    """One of these; none: any target."""
    tags: Collection[tuple[str, str]] = field(default_factory=tuple)
    """All of these."""
    since: datetime | None = None
    last: int | None = None
    """How many of the newest to choose among those that match."""

    def choose(self, lines: Sequence[ResultLine]) -> list[ResultLine]:
        """The matching lines, oldest first as given."""
        chosen = [line for line in lines if self._fits(line)]
        return chosen if self.last is None else chosen[len(chosen) - min(self.last, len(chosen)) :]

    def _fits(self, line: ResultLine) -> bool:
        return (
            (not self.targets or line.target in self.targets)
            and all(line.tags.get(key) == value for key, value in self.tags)
            and (self.since is None or _read_start(line.started_at) >= self.since)
        )


def _read_start(text: str) -> datetime:
    started = datetime.fromisoformat(text)
    return started if started.tzinfo else started.replace(tzinfo=UTC)
