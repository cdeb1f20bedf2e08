"""The result model (format 1), written to and read from results/."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from simulator.contract import InsertRun, QueryRun

from .errors import ConfigError, RunFailed
from .output import say
from .stats import percentile, summarize

FORMAT: Literal[1] = 1
FILE_NAME = "result.json"


class InsertSummary(BaseModel):
    """The valid runs of one worker count (with `--steps`: of one fill level), in events per second."""

    workers: int
    fill_level: int | None = None
    """With `--steps` only."""
    runs: int
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    cv: float | None
    stable: bool | None


class QuerySummary(BaseModel):
    """All executions of one query that succeeded, in seconds."""

    query: str
    runs: int
    min: float
    max: float
    avg: float
    median: float
    ci95: tuple[float, float] | None
    p95: float
    rows: int


class Result(BaseModel):
    """One command's result, as in result.json."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1] = FORMAT
    command: Literal["insert", "query"]
    target: str
    module: str
    executor: str
    started_at: str
    complete: bool = True
    """False if the command ended before all its runs were done."""
    options: dict[str, Any]
    environment: dict[str, Any]
    invalid_reasons: list[str] = []
    """Of a query command; an insert's runs have their own."""
    phases_s: dict[str, float] = {}
    """Of a query command; an insert's runs have their own."""
    runs: list[InsertRun] | list[QueryRun]
    summary: list[InsertSummary] | list[QuerySummary] = []


def summarize_inserts(runs: Sequence[InsertRun], by_fill_level: bool) -> list[InsertSummary]:
    """One entry per worker count or fill level that has valid runs, in order of appearance."""
    groups: dict[tuple[int, int | None], list[float]] = {}
    for run in runs:
        if run.valid and run.inserts_per_s is not None:
            key = (run.workers, run.fill_level if by_fill_level else None)
            groups.setdefault(key, []).append(run.inserts_per_s)
    return [
        InsertSummary(workers=workers, fill_level=level, **vars(summarize(values)))
        for (workers, level), values in groups.items()
    ]


def summarize_queries(runs: Sequence[QueryRun]) -> list[QuerySummary]:
    """One entry per query that was answered."""
    summaries = []
    for name in dict.fromkeys(run.query for run in runs):
        answered = [run for run in runs if run.query == name and run.duration_s is not None]
        durations = [run.duration_s for run in answered if run.duration_s is not None]
        if durations:
            figures = vars(summarize(durations))
            del figures["cv"], figures["stable"]
            summaries.append(
                QuerySummary(
                    query=name,
                    p95=percentile(durations, 95),
                    rows=answered[0].rows or 0,
                    **figures,
                )
            )
    return summaries


def now() -> datetime:
    """The time in UTC."""
    return datetime.now(UTC)


class ResultFolder:
    """`results/<UTC time>-<command>-<target>/`: result.json and logs/. Made when a command begins,
    so that a folder that can't be written is found before the runs and not after."""

    def __init__(self, output: Path, started: datetime, command: str, target: str) -> None:
        name = f"{started:%Y%m%dT%H%M%SZ}-{command}-{target}"
        self._kept = False
        try:
            output.mkdir(parents=True, exist_ok=True)
            self.path = _new_folder(output, name)
            (self.path / "logs").mkdir()
        except OSError as error:
            raise ConfigError(
                f"can't write results to {output}: {error.strerror};"
                " make it writable, or name another folder with --output"
            ) from error

    def logs(self, run: str) -> Path:
        """A new folder for one run's logs."""
        folder = self.path / "logs" / run
        try:
            folder.mkdir()
        except OSError as error:
            raise RunFailed(f"can't write {folder}: {error.strerror}") from error
        return folder

    def write(self, result: Result, copy: Path | None) -> Path:
        """Write result.json, as a whole or not at all; the copy likewise. RunFailed if it can't be."""
        self._kept = True
        text = result.model_dump_json(indent=1)
        file = self.path / FILE_NAME
        for path in filter(None, (file, copy)):
            _write_whole(path, text)
        return file

    def keep_logs(self) -> None:
        """Keep the folder without a result, for the logs of what failed."""
        self._kept = True

    def close(self) -> None:
        """Remove the folder if nothing worth keeping came about."""
        if not self._kept:
            shutil.rmtree(self.path, ignore_errors=True)


def _new_folder(parent: Path, name: str) -> Path:
    """A folder that nobody else uses: a second command in the same second gets -2."""
    number = 1
    while True:
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def _write_whole(path: Path, text: str) -> None:
    try:
        if path.exists() and os.path.samestat(path.stat(), os.fstat(1)):
            say(text)  # /dev/stdout, whatever that is connected to
            return
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a pipe or device: nothing to replace
            return
        path = path.resolve()  # a symbolic link stays one
    except OSError as error:
        raise RunFailed(f"can't write {path}: {error.strerror}") from error
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise RunFailed(f"can't write {path}: {error.strerror}") from error


def read_result(path: Path) -> Result:
    """A stored result; `path` is its folder or its file."""
    file = path / FILE_NAME if path.is_dir() else path
    return Result.model_validate_json(file.read_bytes())
