"""All runs of stored results as one table, for CSV and Parquet."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, get_args

from pydantic import BaseModel

from simulator.contract import (
    DataSet,
    LatencyMs,
    Load,
    Machine,
    QueryResult,
    Role,
    fields_of,
)

from ..errors import ConfigError
from .growth import EventSize, list_event_sizes
from .model import GroupRun, Result
from .statistics import count_events_per_cost
from .store import StoredResult

_TYPES: dict[Any, str] = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE"}


def _list_option_columns() -> dict[str, str]:
    """What was asked for: the options that `Load` and `DataSet` declare, by their names there."""
    found = {}
    models: tuple[tuple[type[BaseModel], Role | None], ...] = ((Load, Role.WRITE), (DataSet, None))
    for model, role in models:
        own = fields_of(model, role)
        for name, field in model.model_fields.items():
            if name in own:
                kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
                kind = kinds[0] if len(kinds) == 1 else field.annotation
                found[field.alias or name] = _TYPES.get(kind, "VARCHAR")
    return found


OPTION_COLUMNS = _list_option_columns()

COLUMNS: dict[str, str] = {
    "result_id": "VARCHAR", "started_at": "VARCHAR", "command": "VARCHAR", "target": "VARCHAR",
    "module": "VARCHAR", "executor": "VARCHAR", "label": "VARCHAR", "tags": "VARCHAR",
    "source": "VARCHAR", "tool_version": "VARCHAR",
    "tool_commit": "VARCHAR", "database_version": "VARCHAR", "cpu_model": "VARCHAR",
    "workers": "BIGINT", "run": "BIGINT", "valid": "BOOLEAN", "invalid_reasons": "VARCHAR",
    # Of inserts.
    "fill_level": "BIGINT", "events": "BIGINT", "window_s": "DOUBLE", "inserts_per_s": "DOUBLE",
    "inserts_per_s_mean_duration": "DOUBLE", "metrics_per_s": "DOUBLE", "overlap": "DOUBLE",
    "latency_p50_ms": "DOUBLE",
    "latency_p90_ms": "DOUBLE", "latency_p99_ms": "DOUBLE", "latency_p99_9_ms": "DOUBLE",
    "latency_max_ms": "DOUBLE",
    "service_p50_ms": "DOUBLE", "service_p90_ms": "DOUBLE", "service_p99_ms": "DOUBLE",
    "service_p99_9_ms": "DOUBLE", "service_max_ms": "DOUBLE",
    "due": "BIGINT", "achieved": "BIGINT", "unsent": "BIGINT", "backlog_max": "BIGINT",
    "backlog_growth": "BIGINT", "saturated": "BOOLEAN", "own_delay_p99_ms": "DOUBLE",
    "client_cpu_s": "DOUBLE", "client_cpu_share": "DOUBLE",
    "client_bound": "BOOLEAN", "holds": "BOOLEAN", "began_at": "VARCHAR", "ended_at": "VARCHAR",
    "busy_share": "DOUBLE", "steal_share": "DOUBLE", "others_share": "DOUBLE",
    "retries": "BIGINT", "errors": "VARCHAR", "stored": "BIGINT",
    "queryable_lag_s": "DOUBLE", "queryable_events_per_s": "DOUBLE",
    "index_build_s": "DOUBLE",
    "storage_bytes": "BIGINT", "storage_index_bytes": "BIGINT", "storage_copies": "BIGINT",
    "storage_compacted_bytes": "BIGINT", "bytes_per_event": "DOUBLE",
    "insert_mode": "VARCHAR", **OPTION_COLUMNS, "cost_per_hour": "DOUBLE",
    "events_per_cost": "DOUBLE",
    # Of queries.
    "query": "VARCHAR", "worker": "BIGINT", "duration_s": "DOUBLE", "rows": "BIGINT",
    "error": "VARCHAR",
    # Of readers whose run was ended by the clock: a row for each of their queries.
    "queries_per_s": "DOUBLE", "executions": "BIGINT", "failed": "BIGINT", "cold_s": "DOUBLE",
    # Of a mixed command.
    "group": "VARCHAR",
    "options": "VARCHAR",
}  # fmt: skip
"""Column -> SQL type. `tags`, `errors` and `options` are JSON; what a command does not have is null. Of
an open loop (one with `rate_per_s`) `latency_*` are response times."""

_OFFERED = (
    "due", "achieved", "unsent", "backlog_max", "backlog_growth", "saturated", "own_delay_p99_ms",
)  # fmt: skip

FORMATS = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet"}


def list_rows(stored: StoredResult) -> list[dict[str, Any]]:
    """A row for each run of the result."""
    result, options = stored.result, stored.result.options
    environment = result.environment
    shared = {
        "result_id": stored.id,
        **{name: getattr(result, name) for name in ("started_at", "command", "target", "module",
                                                    "executor", "label", "source", "cost_per_hour")},
        "tags": json.dumps(result.tags, sort_keys=True) if result.tags else None,
        "tool_version": _look_up(environment, "tool", "version"),
        "tool_commit": _look_up(environment, "tool", "commit"),
        "database_version": _look_up(environment, "database", "version"),
        "cpu_model": _look_up(environment, "client", "cpu_model"),
        **{name: options.get(name) for name in ("insert_mode", *OPTION_COLUMNS)},
        "options": json.dumps(options, sort_keys=True),
    }  # fmt: skip
    mixed = result.command == "mixed" or (result.command == "capacity" and bool(result.readers))
    steps = _list_step_cells(result)
    alone = {role: [one for one in result.alone if one.group.role is role] for role in Role}
    rows = []
    for runs in (result.writers, alone[Role.WRITE], result.readers, alone[Role.READ]):
        for one, weight in zip(runs, list_event_sizes(runs), strict=True):
            own = shared | _list_run_cells(one) | {"group": _name_group(one) if mixed else None}
            if one.group.role is Role.WRITE:
                own |= _list_writer_cells(one, weight, result.cost_per_hour)
                own |= _list_tuned_cells(result, one.run.run)
            elif result.command == "query":
                own["index_build_s"] = one.run.index_build_s
            own |= steps.get(one.run.run, {})
            queries = one.group.queries if one.group.role is Role.READ else []
            rows += [own | cells for query in queries for cells in _list_query_cells(one, query)]
            rows += [own] if one.group.role is Role.WRITE else []
    return rows


def _name_group(one: GroupRun) -> str:
    name = "writers" if one.group.role is Role.WRITE else "readers"
    return f"{name} alone" if one.alone else name


def _list_tuned_cells(result: Result, run: int) -> dict[str, Any]:
    """What a run of a tuning, or of a comparison of clients, was made with, where it isn't what the command
    was given."""
    settings = result.tuning.find_settings(run) if result.tuning else {}
    if result.clients:
        settings = {"client": result.clients.find_client(run)}
    if not settings:
        return {}
    tuned = json.dumps({**result.options, "tuned": settings}, sort_keys=True)
    return {
        "options": tuned,
        **{name: value for name, value in settings.items() if name in COLUMNS},
    }


def _list_run_cells(one: GroupRun) -> dict[str, Any]:
    """What writers and readers have alike."""
    run, group, client = one.run, one.group, one.group.client
    return {
        **{name: getattr(run, name) for name in ("run", "fill_level", "began_at", "ended_at")},
        **{name: getattr(group, name) for name in ("workers", "valid", "window_s", "overlap")},
        **_list_machine_cells(run.machines),
        "invalid_reasons": "; ".join(group.invalid_reasons),
        **{name: getattr(group.offered, name) for name in _OFFERED if group.offered},
        "client_cpu_s": client and client.cpu_s,
        "client_cpu_share": client and client.cpu_share,
        "client_bound": client and client.bound,
    }


def _list_writer_cells(
    one: GroupRun, weight: EventSize, cost_per_hour: float | None
) -> dict[str, Any]:
    group, rate = one.group, one.group.rate_per_s
    return {
        "events": group.count,
        "inserts_per_s": rate,
        "inserts_per_s_mean_duration": group.rate_per_s_mean_duration,
        "metrics_per_s": group.metrics_per_s,
        "retries": group.retries,
        "index_build_s": one.run.index_build_s,
        **_list_percentiles("latency", group.latency_ms),
        **_list_percentiles("service", group.service_ms),
        "errors": json.dumps(group.errors, sort_keys=True),
        "stored": group.verification and group.verification.stored,
        "queryable_lag_s": group.queryable and group.queryable.lag_s,
        "queryable_events_per_s": group.queryable and group.queryable.events_per_s,
        "storage_bytes": group.storage and group.storage.total_bytes,
        "storage_index_bytes": group.storage and group.storage.index_bytes,
        "storage_copies": group.storage and group.storage.copies,
        "storage_compacted_bytes": group.storage_compacted and group.storage_compacted.total_bytes,
        "bytes_per_event": weight.bytes_per_event,
        "events_per_cost": count_events_per_cost(rate, cost_per_hour) if rate and cost_per_hour else None,
    }  # fmt: skip


def _list_step_cells(result: Result) -> dict[int, dict[str, Any]]:
    """Number of a run of a capacity command -> what is known of it as a step."""
    steps = result.capacity.steps if result.capacity else []
    return {step.run: {"rate_per_s": step.rate_per_s, "holds": step.holds} for step in steps}


def _list_percentiles(what: str, found: LatencyMs | None) -> dict[str, Any]:
    percentiles = found.model_dump() if found else {}
    return {f"{what}_{name}_ms": value for name, value in percentiles.items()}


def _list_machine_cells(machines: Sequence[Machine]) -> dict[str, Any]:
    """Each share of the machine that had most of it."""
    names = ("busy_share", "steal_share", "others_share")
    known = {
        name: [s for one in machines if (s := getattr(one, name)) is not None] for name in names
    }
    return {name: max(shares, default=None) for name, shares in known.items()}


def _list_query_cells(one: GroupRun, query: QueryResult) -> list[dict[str, Any]]:
    """A row for each execution where they were kept; else one, in which rate and offer are those of all
    the group's queries."""
    if query.each:
        return [{"query": query.query} | each.model_dump() for each in query.each]
    return [
        {
            **{name: getattr(query, name) for name in ("query", "executions", "cold_s", "error")},
            "queries_per_s": one.group.rate_per_s,
            "rows": query.rows_max,
            "failed": query.errors,
            **_list_percentiles("latency", query.latency_ms),
            **_list_percentiles("service", query.service_ms),
        }
    ]


def _look_up(environment: dict[str, Any], part: str, name: str) -> Any:
    found = environment.get(part)
    return found.get(name) if isinstance(found, dict) else None


def choose_format(file: Path) -> str:
    """How a file of this name is written; ConfigError if its ending says nothing."""
    try:
        return FORMATS[file.suffix.lower()]
    except KeyError:
        known = " or ".join(FORMATS)
        raise ConfigError(f"--output {file}: name a file that ends in {known}") from None


def export_runs(stored: Sequence[StoredResult], form: str) -> bytes:
    """The contents of the file, one row for each run.

    By DuckDB, which writes both formats and needs nothing else: half of pyarrow's size.
    """
    import duckdb

    lines = [
        json.dumps({name: _fit(row.get(name), kind, form) for name, kind in COLUMNS.items()})
        for one in stored
        for row in list_rows(one)
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
    """A cell that its column takes: a count beyond 64 bits is none. In CSV a text that a spreadsheet would
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
