"""What `plans` measures: in which ways events are stored, and the forms in which a query can be asked besides
the one that the module compiles."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from psycopg.conninfo import make_conninfo

from simulator.contract import Load, PrimaryKey, Role
from simulator.modules import load_module
from simulator.modules.base import AnyModule, Job, await_count
from simulator.modules.kit.module import IndexedModule
from simulator.modules.kit.series import name_device
from simulator.modules.kit.sql_queries import (
    Newest,
    SqlDialect,
    compile_query,
)
from simulator.modules.options import parse_options
from simulator.modules.postgres.dialects import PostgresSql
from simulator.modules.victoriametrics.forms import quote_text
from simulator.workloads.base import Workload
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Function, Query
from simulator.workloads.schema import Tags

from .insert_cases import RETRIES, System
from .insert_cases import SYSTEMS as SERVERS
from .plan_forms import FIELDS, Form, rewrite
from .plan_searches import list_searches
from .plan_series import list_cassandra, list_influxdb, list_iotdb
from .support import worker_path

_BATCH = 1_000
_INDEXED = {"create_indices": "before"}
_PLAIN: Mapping[str, Any] = {}
_PGWIRE = {"connection_string": os.environ.get("QUESTDB_DSN", "")}


def _drop(module: Any) -> None:
    for table in module.tables:
        module.drop(table)


SYSTEMS: Mapping[str, System] = {
    **SERVERS,
    "cratedb": replace(
        SERVERS["questdb"], module="cratedb", variables={"endpoint": "CRATEDB_URL"},
        named="default_schema", drop=_drop,
    ),
    "timescaledb": replace(
        SERVERS["postgresql-copy"], module="timescaledb", server=lambda: nullcontext(""),
        variables={"connection_string": "TIMESCALEDB_DSN"},
    ),
    "cassandra": replace(
        SERVERS["cassandra"],
        drop=lambda module: module.session.ask(f"DROP KEYSPACE {module.options.keyspace}"),
    ),
    "iotdb": replace(SERVERS["iotdb"], drop=lambda module: module.prepare()),
}  # fmt: skip
"""Where servers are."""

_ROWS = {
    "machines": ("machines", "", _PLAIN),
    "temperature": ("temperature", "", _PLAIN),
}
_ROWS_AND_TABLES = {
    "row": ("machines", "row", _PLAIN),
    "table": ("machines", "table", _PLAIN),
    "temperature": ("temperature", "", _PLAIN),
}
SETUPS: Mapping[str, Mapping[str, tuple[str, str, Mapping[str, Any]]]] = {
    "postgresql-copy": {
        "row": ("machines", "row", _PLAIN),
        "row, indexes": ("machines", "row", _INDEXED),
        "table": ("machines", "table", _PLAIN),
        "table, indexes": ("machines", "table", _INDEXED),
        "temperature": ("temperature", "", _PLAIN),
        "temperature, indexes": ("temperature", "", _INDEXED),
    },
    "questdb": {
        "row": ("machines", "row", _PLAIN),
        "row, PGWire, index": ("machines", "row", {"index_devices": "true", **_PGWIRE}),
        "table, PGWire": ("machines", "table", _PGWIRE),
        "temperature": ("temperature", "", _PLAIN),
    },
    "cratedb": _ROWS_AND_TABLES,
    "victoriametrics": _ROWS,
    "clickhouse": _ROWS_AND_TABLES,
    "timescaledb": {
        "row": ("machines", "row", _PLAIN),
        "row, indexes": ("machines", "row", _INDEXED),
        "row, columnstore": ("machines", "row", {"columnstore": "true"}),
        "table, indexes": ("machines", "table", _INDEXED),
        "temperature": ("temperature", "", _PLAIN),
        "temperature, indexes": ("temperature", "", _INDEXED),
    },
    "elasticsearch": _ROWS,
    "opensearch": _ROWS,
    "cassandra": _ROWS,
    "influxdb": _ROWS,
    "iotdb": {
        "tree": ("machines", "", {"model": "tree"}),
        "table": ("machines", "row", {"model": "table"}),
        "table, temperature": ("temperature", "", {"model": "table"}),
    },
}
"""System -> name of a way to store -> workload, where tags are, options."""

SIZES = {"elasticsearch": (250_000, 250), "opensearch": (250_000, 250), "influxdb": (250_000, 250)}
"""Events and devices where storing `SIZE` would take minutes; they span as long a time."""
SIZE = (500_000, 500)


def build(name: str, dsn: str, workload: Workload, values: Mapping[str, Any]) -> AnyModule:
    """The module of a system."""
    system = SYSTEMS[name]
    kind = load_module(system.module)
    defaults: dict[str, Any] = {"connection_string": dsn} if dsn else dict(system.addresses)
    defaults |= system.options
    if system.named:
        defaults[system.named] = "bench_plans_"
    options = parse_options(
        kind.options_model, defaults | dict(values), lambda key: f"option {key}"
    )
    load = Load(role=Role.FILL, batch=_BATCH, primary_key=PrimaryKey.NONE)
    return kind(options, Job(workload.schema, load))


@contextmanager
def stored(
    name: str, dsn: str, workload: Workload, events: int, values: Mapping[str, Any]
) -> Iterator[AnyModule]:
    """The module, connected, with so many events stored, which are deleted in the end."""
    module = build(name, dsn, workload, values)
    module.open()
    try:
        module.prepare()
        if workload.schema.tags == "table":
            module.store_devices(workload.device_rows(0))
        worker_path(module.for_prefill().writer(), workload, events, _BATCH, RETRIES)
        count = await_count(module.count, events, module.settle_s)
        if count != events:
            raise AssertionError(f"{count} of {events} events are stored")
        if isinstance(module, IndexedModule) and module.options.is_indexed:
            module.create_indexes(module.index_names)
        module.compact()
        module.prepare_queries()
        yield module
    finally:
        SYSTEMS[name].drop(module)
        module.close()


def _by(dialect: SqlDialect, newest: Newest, module: AnyModule) -> Form:
    return Form(lambda bound: compile_query(bound, module.job.schema, dialect, newest))


def _plan(module: AnyModule, mode: str) -> Form:
    def change(options: Any) -> Mapping[str, Any]:
        dsn = make_conninfo(options.connection_string, options=f"-c plan_cache_mode={mode}")
        return {"connection_string": dsn}

    return Form(module.compile, change)


_AMONG_TAGS = (
    r'FROM ("\w+") WHERE "\w+"."tags_id" (?:=|IN|= ANY) '
    r'\((?:ARRAY\()?SELECT "tags_id" FROM ("\w+") WHERE ((?:[^()]|\([^()]*\))+)\)\)?'
)
_JOINED = r'FROM \1 JOIN \2 ON \1."tags_id" = \2."tags_id" WHERE \3'
_NEWEST = r'ORDER BY "measured_at" DESC LIMIT 1'


def _list_postgres(
    module: AnyModule, query: Query, devices: Sequence[str]
) -> Iterator[tuple[str, Form]]:
    if query.is_drawn:
        yield "generic plan", _plan(module, "force_generic_plan")
        yield "plan of its own", _plan(module, "force_custom_plan")
    if query.newest and query.devices == "all":
        yield "DISTINCT ON", _by(PostgresSql(), Newest.DIALECT, module)
        yield "window", _by(PostgresSql(), Newest.WINDOW, module)
        yield "max and join", _by(PostgresSql(), Newest.JOIN, module)


def _list_timescaledb(
    module: AnyModule, query: Query, devices: Sequence[str]
) -> Iterator[tuple[str, Form]]:
    yield from _list_postgres(module, query, devices)
    schema = module.job.schema
    if query.newest and query.devices == "all":
        if module.options.is_indexed:
            yield "seek", _by(PostgresSql(), Newest.SEEK, module)
        if not schema.is_apart(schema.device):
            names = [f'"{name}"' for name in query.events]
            time, device = f'"{schema.time}"', f'"{schema.device}"'
            values = ", ".join(
                f"max({time})" if name == time else f"last({name}, {time})" for name in names
            )
            text = f'SELECT {device}, {values} FROM "{schema.table}" GROUP BY 1'
            yield "last()", Form(lambda bound: text)
    if query.name.endswith("downsample"):
        yield "time_bucket", rewrite(module, r'("\w+") - \1 % (\d+)', r"time_bucket(\2, \1)")


def _list_questdb(module: AnyModule, query: Query) -> Iterator[tuple[str, Form]]:
    key = "tags_id" if module.job.schema.is_apart("machine") else "machine"
    if query.name == "last-value":
        latest = f'LATEST ON "measured_at" PARTITION BY "{key}"'
        yield "LATEST ON", rewrite(module, _NEWEST, latest)
    if query.name == "last-values":
        values = ", ".join(f'last("{name}")' for name in ("measured_at", *FIELDS))
        if key == "machine":
            yield "last()", rewrite(module, r"^.*$", f'SELECT "machine", {values} FROM "TABLE"')
    if query.name == "top-devices":
        yield "plain order", rewrite(module, r'"_v1" IS NULL, ', "")


def _list_clickhouse(module: AnyModule, query: Query) -> Iterator[tuple[str, Form]]:
    if query.name.endswith("downsample"):
        bucket = r"intDiv\(.*?\* 3600000"
        hour = 'toUnixTimestamp(toStartOfHour("measured_at")) * 1000'
        yield "toStartOfHour", rewrite(module, bucket, hour)
    if query.name == "last-values":
        values = ", ".join(f'argMax(tuple("{name}"), "measured_at").1' for name in FIELDS)
        time = 'toUnixTimestamp64Milli(max("measured_at"))'
        text = f'SELECT "machine", {time}, {values} FROM "TABLE" GROUP BY "machine"'
        if not module.job.schema.is_apart("machine"):
            yield "argMax", rewrite(module, r"^.*$", text)
            together = ", ".join(f'"{name}"' for name in ("measured_at", *FIELDS))
            newest = f'argMax(tuple({together}), "measured_at")'
            parts = ", ".join(f"t.{number}" for number in range(2, 2 + len(FIELDS)))
            text = (
                f'SELECT "machine", toUnixTimestamp64Milli(t.1), {parts} FROM'
                f' (SELECT "machine", {newest} AS t FROM "TABLE" GROUP BY "machine")'
            )
            yield "argMax of all", rewrite(module, r"^.*$", text)


def _list_cratedb(module: AnyModule, query: Query) -> Iterator[tuple[str, Form]]:
    if query.name.endswith("downsample"):
        bucket = r"date_bin\('1 hours'::INTERVAL, \"measured_at\", 0\)"
        yield "date_trunc", rewrite(module, bucket, "date_trunc('hour', \"measured_at\")")
    if query.name == "last-values" and not module.job.schema.is_apart("machine"):
        names = ", ".join(f'"{name}"' for name in ("machine", "measured_at", *FIELDS))
        text = (
            f'SELECT {names} FROM (SELECT {names}, row_number() OVER (PARTITION BY "machine" ORDER BY'
            ' "measured_at" DESC) AS n FROM "TABLE") AS e WHERE n = 1'
        )
        yield "row_number", rewrite(module, r"^.*$", text)


_AVERAGED = re.compile(r"avg\(avg_over_time\((\{[^}]*\}\[\d+ms\])\)\)( by \([^)]*\))?")
_SUMMED = r"sum(sum_over_time(\1))\2 / sum(count_over_time(\1))\2"


def _list_victoriametrics(
    module: AnyModule, query: Query, devices: Sequence[str]
) -> Iterator[tuple[str, Form]]:
    def rewrite(question: Any, by: Callable[[str], str]) -> Any:
        question.forms = [
            form._replace(fields={**form.fields, "query": by(form.fields["query"])})
            for form in question.forms
        ]
        return question

    def sum_up(bound: BoundQuery) -> Any:
        return rewrite(module.compile(bound), lambda text: _AVERAGED.sub(_SUMMED, text))

    def ask_apart(bound: BoundQuery) -> Any:
        # As for all devices, but for these alone.
        [name] = bound.devices or ()
        own = f'",{name_device(module.job.schema)}={quote_text(name)}}}'
        question = module.compile(replace(bound, devices=None))
        return rewrite(question, lambda text: text.replace('"}', own))

    if any(computation.function is Function.AVG for computation in query.compute):
        yield "sums and counts", Form(sum_up)
    if query.name == "last-value":
        yield "each value apart", Form(ask_apart)


_Lister = Callable[[AnyModule, Query, Sequence[str]], Iterator[tuple[str, Form]]]


def _of_machines(
    list_forms_of: Callable[[AnyModule, Query], Iterator[tuple[str, Form]]],
) -> _Lister:
    """Forms that are written for the workload `machines`: there are none of another's queries."""

    def list_if_machines(
        module: AnyModule, query: Query, devices: Sequence[str]
    ) -> Iterator[tuple[str, Form]]:
        is_machines = module.job.schema.device == "machine"
        return list_forms_of(module, query) if is_machines else iter(())

    return list_if_machines


_LISTS: Mapping[str, _Lister] = {
    "elasticsearch": list_searches,
    "opensearch": list_searches,
    "cassandra": list_cassandra,
    "influxdb": list_influxdb,
    "iotdb": list_iotdb,
    "timescaledb": _list_timescaledb,
    "victoriametrics": _list_victoriametrics,
    "postgresql-copy": _list_postgres,
    "questdb": _of_machines(_list_questdb),
    "clickhouse": _of_machines(_list_clickhouse),
    "cratedb": _of_machines(_list_cratedb),
}


def list_forms(
    system: str, module: AnyModule, query: Query, devices: Sequence[str]
) -> dict[str, Form]:
    """Name -> another form of a query. `devices`: all that have events."""
    forms = dict(_LISTS[system](module, query, devices))
    of_one = isinstance(query.devices, int) and not query.newest and not query.per
    if of_one and module.job.schema.tags is Tags.TABLE:
        forms["join"] = rewrite(module, _AMONG_TAGS, _JOINED)
    return forms
