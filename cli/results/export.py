"""All runs of stored results as one table: a file, or a table in memory for notebooks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

import orjson
from pydantic import BaseModel
from tabulate import tabulate

from simulator.contract import DataSet, Load, Role, fields_of
from simulator.errors import printable_line

from ..system.errors import ConfigError
from .figures import ASKED, FIGURES, MEASURED, PAID, STAGED, Form
from .model import Result
from .observations import observe
from .store import StoredResult

if TYPE_CHECKING:
    import pyarrow

_TYPES: dict[Any, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}


def _list_option_columns() -> dict[str, str]:
    """Columns for the requested options: those that `Load` and `DataSet` declare, with the same names."""
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
    "candidate", "step", "repetition", "tool_version", "tool_commit", "database_version", "cpu_model",
)  # fmt: skip
"""Columns that are equal in all rows of a result."""

COLUMNS: dict[str, str] = {
    **dict.fromkeys(_RESULT, "VARCHAR"), "repetition": "BIGINT",
    **{figure.key: figure.form.sql for figure in MEASURED},
    "insert_mode": "VARCHAR", **OPTION_COLUMNS, "cost_per_hour": "DOUBLE",
    PAID.key: PAID.form.sql,
    **{figure.key: figure.form.sql for figure in ASKED},
    **{figure.key: figure.form.sql for figure in STAGED},
    # For a mixed command.
    "group": "VARCHAR",
    "options": "VARCHAR",
}  # fmt: skip
"""Column -> SQL type. `tags`, `errors` and `options` are JSON; columns that don't apply to a command are
null. In an open loop (one with `rate_per_s`) `latency_*` are response times."""


class Format(StrEnum):
    """The formats of an export."""

    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    PARQUET = "parquet"


_ENDINGS = {
    ".csv": Format.CSV,
    ".json": Format.JSON,
    ".md": Format.MARKDOWN,
    ".parquet": Format.PARQUET,
}

_IN_JSON = ("tags", "errors", "options")
"""Columns that contain JSON."""

_TO_READ = (
    "target", "command", "workers", "group", "query", "run", "stage", "valid", "duration_s", "inserts_per_s",
    "queries_per_s", "latency_p50_ms", "latency_p99_ms", "latency_max_ms", "achieved",
    "stage_rate_per_s", "stage_p99_ms", "client_cpu_share", "bytes_per_event", "bottleneck",
)  # fmt: skip
"""The columns of Markdown, which is for people; empty columns are left out."""


def list_rows(stored: StoredResult) -> list[dict[str, Any]]:
    """A row for each run of the result, with all columns, followed by one for each of its stages."""
    result, options = stored.result, stored.result.options
    shared = dict.fromkeys(COLUMNS) | {
        "result_id": printable_line(stored.id),
        **{name: getattr(result, name) for name in ("started_at", "command", "target", "module",
                                                    "executor", "label", "source", "candidate", "step",
                                                    "repetition", "cost_per_hour")},
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
            continue  # Queries also have the figures of the whole run.
        row = shared | {"group": observation.group if mixed else None}
        row |= _list_tuned_cells(result, observation.run)
        if observation.run in rates:
            row["rate_per_s"] = rates[observation.run]
        rows.append({**row, **observation.figures})
    return rows


def _list_tuned_cells(result: Result, run: int) -> dict[str, Any]:
    """Cells for the options of a run in a tuning or comparison of clients that differ from the command's."""
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


def choose_format(file: Path) -> Format:
    """The format for a file name; ConfigError if its ending is unknown."""
    try:
        return _ENDINGS[file.suffix.lower()]
    except KeyError:
        raise ConfigError(
            f"--output {file}: name a file that ends in {', '.join(_ENDINGS)}, or give --format"
        ) from None


def export_runs(stored: Sequence[StoredResult], form: Format) -> bytes:
    """The contents of the file, one row for each run. ModuleNotFoundError for Parquet without pyarrow."""
    if form is Format.PARQUET:
        from pyarrow import BufferOutputStream, parquet

        stream = BufferOutputStream()
        parquet.write_table(make_table(stored), stream)
        return bytes(stream.getvalue())
    rows = _list_all(stored)
    match form:
        case Format.JSON:
            lines = [
                orjson.dumps(row | {name: json.loads(row[name] or "null") for name in _IN_JSON})
                for row in rows
            ]
            return b"[\n" + b",\n".join(lines) + b"\n]\n"
        case Format.MARKDOWN:
            return _write_markdown(rows).encode()
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _write_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def make_table(stored: Sequence[StoredResult]) -> pyarrow.Table:
    """The same as a table in memory, with typed columns."""
    import pyarrow

    kinds = {
        "BIGINT": pyarrow.int64(), "BOOLEAN": pyarrow.bool_(),
        "DOUBLE": pyarrow.float64(), "VARCHAR": pyarrow.string(),
    }  # fmt: skip
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    return pyarrow.Table.from_pylist(_list_all(stored), schema)


def _list_all(stored: Sequence[StoredResult]) -> list[dict[str, Any]]:
    """The rows of all results, with all columns; a count that exceeds 64 bits is null."""
    return [
        {
            name: None if kind == "BIGINT" and abs(row.get(name) or 0) >= 2**63 else row.get(name)
            for name, kind in COLUMNS.items()
        }
        for result in stored
        for row in list_rows(result)
    ]


def _write_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    names = [name for name in _TO_READ if any(row[name] is not None for row in rows)]
    forms = {name: FIGURES[name].form if name in FIGURES else Form.TEXT for name in names}
    cells = [
        [form.show(row[name]).replace("|", "\\|") for name, form in forms.items()] for row in rows
    ]
    align = ["left" if form is Form.TEXT else "right" for form in forms.values()]
    table = tabulate(cells, names, tablefmt="github", colalign=align, disable_numparse=True)
    return f"{table}\n" if rows else "no runs\n"


def _write_cell(value: Any) -> Any:
    """A cell of CSV. Text that a spreadsheet would take for a formula is quoted the way spreadsheets do.

    https://owasp.org/www-community/attacks/CSV_Injection
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
