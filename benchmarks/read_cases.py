"""What `read_limit` measures: what is stored, the cases, and for each system where it is and which other
clients ask it.

A further case is a line of `CASES`; a further system is an entry of `SYSTEMS`: where it is stands in
`insert_cases`, and its thinnest client is a function of `readers`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

from simulator.contract import Load, Role
from simulator.encoding.columns import quote_name
from simulator.modules import load_module
from simulator.modules.base import AnyModule, Job, await_count
from simulator.modules.kit.module import IndexedModule
from simulator.modules.options import parse_options
from simulator.workloads import load_workload
from simulator.workloads.base import Workload

from . import readers, thin_readers
from .insert_cases import RETRIES
from .insert_cases import SYSTEMS as SERVERS
from .insert_cases import System as Server
from .readers import Reader, Way
from .support import read_machines, worker_path

EVENTS = 150_000
"""Stored: 30 of each of the 5,000 devices."""
EVERYTHING = "everything"
"""All of them in one answer."""
_BATCH = 1_000
_COLUMNS = ("measured_at", "machine", "temperature", "pressure", "vibration", "power", "pieces")


@cache
def make_workload(module: str) -> Workload:
    """`machines` as a module stores it, with a query that asks for all events."""
    everything = {"name": EVERYTHING, "about": "all events", "events": list(_COLUMNS)}
    return load_workload("machines", {**read_machines(module), "queries": [everything]})(0)


@dataclass(frozen=True)
class Case:
    """What is asked, and how."""

    query: str
    in_flight: int = 1
    readers: int = 1

    @property
    def is_long(self) -> bool:
        """Whether an answer has so many rows that they are what it costs."""
        return self.query == EVERYTHING


CASES = (
    *(
        Case(query, in_flight, readers)
        for query in ("point", "last-value", "range")
        for in_flight, readers in ((1, 1), (8, 1), (1, 4))
    ),
    Case(EVERYTHING),
)


@dataclass(frozen=True)
class System:
    """A database, and the clients that ask it besides us."""

    server: Server
    thinnest: Mapping[str, Way]
    """Name -> a thinnest client. The first has the goal."""
    goal: float = 0.9
    """The least share of its rate, for `point` and what is asked of everything."""
    goal_us: float | None = 100
    """The most CPU per question of `point`, with one in flight and one reader; None: a share of the thinnest
    client's."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Option -> the variable that holds it, besides those of `server`."""

    @property
    def missing(self) -> list[str]:
        """Its variables that aren't set."""
        more = [name for name in self.variables.values() if not os.environ.get(name)]
        return self.server.missing + more

    @property
    def workload(self) -> Workload:
        """What is stored."""
        return make_workload(self.server.module)

    def build(self, dsn: str, load: Load) -> AnyModule:
        """The module; `dsn`: how to connect, if variables don't say so."""
        kind, server = load_module(self.server.module), self.server
        values: dict[str, Any] = {"connection_string": dsn} if dsn else dict(server.addresses)
        values |= {option: os.environ[name] for option, name in self.variables.items()}
        values |= server.options
        if server.named:
            values[server.named] = "bench_read_"
        if issubclass(kind, IndexedModule):
            values["create_indices"] = "before"
        options = parse_options(kind.options_model, values, lambda key: f"option {key}")
        return kind(options, Job(self.workload.schema, load))

    def by(self, way: str) -> Way:
        """The way to ask that has this name."""
        return self.thinnest.get(way, readers.ours)

    def reader(self, dsn: str, case: Case, number: int) -> Reader:
        """One of a case's readers."""
        load = Load(role=Role.READ, in_flight=case.in_flight, queries=[case.query])
        arguments = case.query, case.in_flight, case.readers
        return Reader(self.build(dsn, load), self.workload, EVENTS, *arguments, number)

    @contextmanager
    def stored(self, dsn: str) -> Iterator[None]:
        """Store all events, and delete them in the end."""
        module = self.build(dsn, Load(batch=_BATCH))
        module.open()
        try:
            module.prepare()
            if isinstance(module, IndexedModule):
                module.create_indexes(module.index_names)
            writer = module.for_prefill().writer()
            worker_path(writer, self.workload, EVENTS, _BATCH, RETRIES)
            count = await_count(module.count, EVENTS, module.settle_s)
            if count != EVENTS:
                raise AssertionError(f"{count} of {EVENTS} events are stored")
            module.prepare_queries()
            yield
        finally:
            self.server.drop(module)
            module.close()


BLOCKING = ("libpq", "http.client")
"""The thinnest clients that have one question in flight."""
_OVER_HTTP = {"http.client": thin_readers.http_client, "raw socket": thin_readers.http_socket}
_BY_HTTP = ("influxdb", "victoriametrics", "clickhouse", "elasticsearch", "opensearch")


def _drop_tables(module: Any) -> None:
    for table in module.tables:
        module.execute(f"DROP TABLE {quote_name(table)}")


def _insert_nothing(*_: object) -> NoReturn:
    raise AssertionError("no case of inserts")


_CRATEDB = Server(
    "cratedb",
    (),
    _insert_nothing,
    {"endpoint": "CRATEDB_URL"},
    "default_schema",
    {"shards": 1, "replicas": "0"},
    _drop_tables,
)

SYSTEMS = {
    "postgresql": System(
        SERVERS["postgresql-copy"],
        {"pgbench": thin_readers.pgbench, "libpq": thin_readers.libpq},
        goal=0.8,
        goal_us=60,
    ),
    **{name: System(SERVERS[name], _OVER_HTTP, goal_us=None) for name in _BY_HTTP},
    "cratedb": System(_CRATEDB, _OVER_HTTP, goal_us=None),
    # By PGWire, where it is at hand.
    "questdb": System(
        SERVERS["questdb"],
        {"libpq": thin_readers.libpq},
        goal_us=60,
        variables={"connection_string": "QUESTDB_DSN"},
    ),
    "cassandra": System(SERVERS["cassandra"], {"raw socket": thin_readers.cassandra_socket}),
    "iotdb": System(SERVERS["iotdb"], {"raw socket": thin_readers.iotdb_socket}),
}
