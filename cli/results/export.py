"""All runs of stored results as one table, for CSV and Parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel

from simulator.contract import DataSet, Load, Role, fields_of
from simulator.documents import printable_line

from ..system.errors import ConfigError
from .figures import ASKED, MEASURED, PAID, STAGED
from .model import Result
from .observations import observe
from .store import StoredResult

_TYPES: dict[Any, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}


def _list_option_columns() -> dict[str, str]:
    """Columns of what was asked for: the options that `Load` and `DataSet` declare, by their names there."""
    columns = {}
    models: tuple[tuple[type[BaseModel], Role | None], ...] = ((Load, Role.WRITE), (DataSet, None))
    for model, role in models:
        names = fields_of(model, role)
        for name, field in model.model_fields.items():
            if name in names:
                kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
                kind = kinds[0] if len(kinds) == 1 else field.annotation
                columns[field.alias or name] = _TYPES.get(kind, "VARCHAR")
    return columns


OPTION_COLUMNS = _list_option_columns()

_RESULT = (
    "result_id", "started_at", "command", "target", "module", "executor", "label", "tags", "source",
    "tool_version", "tool_commit", "database_version", "cpu_model",
)  # fmt: skip
"""Columns that are the same in all rows of a result."""

COLUMNS: dict[str, str] = {
    **dict.fromkeys(_RESULT, "VARCHAR"),
    **{figure.key: figure.form.sql for figure in MEASURED},
    "insert_mode": "VARCHAR", **OPTION_COLUMNS, "cost_per_hour": "DOUBLE",
    PAID.key: PAID.form.sql,
    **{figure.key: figure.form.sql for figure in ASKED},
    **{figure.key: figure.form.sql for figure in STAGED},
    # For a mixed command.
    "group": "VARCHAR",
    "options": "VARCHAR",
}  # fmt: skip
"""Column -> SQL type. `tags`, `errors` and `options` are JSON; what a command does not have is null. In
an open loop (one with `rate_per_s`) `latency_*` are response times."""

FORMATS = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet"}


def list_rows(stored: StoredResult) -> list[dict[str, Any]]:
    """A row for each run of the result, with all columns, and behind it one for each of its stages."""
    result, options = stored.result, stored.result.options
    shared = dict.fromkeys(COLUMNS) | {
        "result_id": printable_line(stored.id),
        **{name: getattr(result, name) for name in ("started_at", "command", "target", "module",
                                                    "executor", "label", "source", "cost_per_hour")},
        "tags": json.dumps(result.tags, sort_keys=True) if result.tags else None,
        "tool_version": result.describe("tool").get("version"),
        "tool_commit": result.describe("tool").get("commit"),
        "database_version": result.describe("database").get("version"),
        "cpu_model": result.describe("client").get("cpu_model"),
        **{name: options.get(name) for name in ("insert_mode", *OPTION_COLUMNS)},
        "options": json.dumps(options, sort_keys=True),
    }  # fmt: skip
    mixed = result.command == "mixed" or (result.command == "capacity" and bool(result.readers))
    rates = {step.run: step.rate_per_s for step in result.capacity.steps} if result.capacity else {}
    rows = []
    for observation in observe(result):
        whole = not (observation.query or observation.part)
        if observation.run is None or (whole and observation.group.startswith("readers")):
            continue  # Queries have the figures of the whole run, too.
        row = shared | {"group": observation.group if mixed else None}
        row |= _list_tuned_cells(result, observation.run)
        if observation.run in rates:
            row["rate_per_s"] = rates[observation.run]
        rows.append({**row, **observation.figures})
    return rows


def _list_tuned_cells(result: Result, run: int) -> dict[str, Any]:
    """Cells for what a run of a tuning, or of a comparison of clients, was made with, where it isn't what
    the command was given."""
    settings = result.tuning.find_settings(run) if result.tuning else {}
    if result.clients and (client := result.clients.find_client(run)):
        settings = {"client": client}
    if not settings:
        return {}
    tuned = json.dumps({**result.options, "tuned": settings}, sort_keys=True)
    return {
        "options": tuned,
        **{name: value for name, value in settings.items() if name in COLUMNS},
    }


def choose_format(file: Path) -> str:
    """How a file of this name is written; ConfigError if its ending says nothing."""
    try:
        return FORMATS[file.suffix.lower()]
    except KeyError:
        endings = " or ".join(FORMATS)
        raise ConfigError(f"--output {file}: name a file that ends in {endings}") from None


def export_runs(stored: Sequence[StoredResult], form: str) -> bytes:
    """The contents of the file, one row for each run.

    By DuckDB, which writes both formats and needs nothing else: half of pyarrow's size.
    """
    import duckdb

    lines = [
        json.dumps({name: _fit(row.get(name), kind, form) for name, kind in COLUMNS.items()})
        for result in stored
        for row in list_rows(result)
    ]
    columns = json.dumps(COLUMNS)
    with TemporaryDirectory() as folder, duckdb.connect() as connection:
        source, target = Path(folder) / "runs.json", Path(folder) / "runs"
        source.write_text("\n".join(lines), encoding="utf-8")
        connection.execute(
            f"COPY (SELECT * FROM read_json({_quote(source)}, format = 'newline_delimited',"
            f" columns = {columns})) TO {_quote(target)} ({form})"
        )
        return target.read_bytes()


def _fit(value: Any, kind: str, form: str) -> Any:
    """A cell as its column takes it: a count beyond 64 bits is null. In CSV a text that a spreadsheet would
    take for a formula is quoted as spreadsheets do it; negative numbers are in columns of numbers.

    https://owasp.org/www-community/attacks/CSV_Injection
    """
    if kind == "BIGINT" and isinstance(value, int | float) and abs(value) >= 2**63:
        return None
    if kind == "VARCHAR" and form == FORMATS[".csv"] and str(value).startswith(_FORMULA):
        return f"'{value}"
    return value


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _quote(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
