"""What `insert_limit` measures: for each system its cases, where it is, and its thinnest client.

A further case is a line of `SYSTEMS`; a further system is an entry there and a function that hands the
requests of its writer to a client of `thinnest`.
"""

from __future__ import annotations

import http
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

from simulator.contract import Load, PrimaryKey
from simulator.encoding.columns import quote_name
from simulator.modules.clickhouse.server import Connection as ClickhouseConnection
from simulator.modules.influxdb.server import Connection as InfluxConnection
from simulator.modules.iotdb.schema import Model
from simulator.modules.postgres.encoding import CopyFormat, PostgresEncoder
from simulator.modules.questdb.server import WRITE_TARGET
from simulator.modules.sending import Encoder
from simulator.worker.feed import Feed
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu

from . import thinnest
from .support import Cost, start_embedded_server, temperature
from .thinnest import Post, TimedTurn

GOAL, QUICK_GOAL = 0.9, 0.75
"""Least share of the thinnest client's rate; the second is for any machine, with --quick."""
US, CPU_US = 0.8, 1.2
"""Goals of CPU per event of `temperature` and `cpu`."""
RETRIES = 20
"""A server on a busy machine, or with a small heap, may refuse some requests or answer late."""

Thin = AbstractContextManager[TimedTurn]
"""The thinnest client, connected."""


@dataclass(frozen=True)
class Case:
    """A line of the table: what is sent, and how."""

    batch: int
    """0: single events."""
    requests: int
    """Requests in a turn."""
    how: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    workload: Callable[[], Workload] = temperature
    in_flight: int = 1
    key: PrimaryKey = PrimaryKey.DB
    goal_us: float | None = None
    """The most CPU per event."""
    judged: bool = True
    """Whether its ratio has a goal."""
    quick: bool = True
    """Whether it's measured with --quick, too."""
    longer: int = 1
    """Factor for the requests without --quick: in turns of some milliseconds a worker is measured with
    nothing of its own in the caches."""
    turns: int = 6
    """Turns of each way in a round."""
    beside: str = ""
    """Which thinnest client, where a system has several."""
    commit: str = ""
    """PostgreSQL's synchronous_commit."""


def _lists() -> dict[str, list[float]]:
    return defaultdict(list)


@dataclass
class Line:
    """A case, and what each way took for it."""

    case: Case
    requests: int
    """Requests in a turn."""
    turn_s: dict[str, list[float]] = field(default_factory=_lists)
    """Seconds of each way's turns."""
    costs: list[Cost] = field(default_factory=list)
    """What a worker's path cost by itself, in each round."""

    def __post_init__(self) -> None:
        self.workload = self.case.workload()

    @property
    def events(self) -> int:
        """Events in a turn."""
        return (self.case.batch or 1) * self.requests

    @property
    def round_events(self) -> int:
        """Events that each way sends in a round."""
        return self.case.turns * self.events

    def rate(self, way: str) -> float:
        """Events per second."""
        return self.events / median(self.turn_s[way])

    @property
    def ratio(self) -> float:
        """Our rate ÷ the thinnest client's."""
        pairs = zip(self.turn_s["ours"], self.turn_s["thinnest"], strict=True)
        return median(other / ours for ours, other in pairs)

    @property
    def cost(self) -> Cost:
        """The cost of the cheapest round."""
        return min(self.costs, key=lambda cost: cost.us)


@dataclass(frozen=True)
class System:
    """A database, where it is, and its cases."""

    module: str
    cases: Sequence[Case]
    thin: Callable[[Any, Encoder, Line], Thin]
    """The thinnest client for a module, with the requests of its encoder."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Option -> the variable that holds it."""
    named: str = ""
    """The option that names what a run makes on the server."""
    options: Mapping[str, Any] = field(default_factory=dict)
    drop: Callable[[Any], object] = lambda module: None
    """Deletes what was made."""
    shares: bool = False
    """Whether both ways write to one database."""
    retries: int = 0
    server: Callable[[], AbstractContextManager[str]] = lambda: nullcontext("")
    """Starts a server for the time of its cases; yields how to connect, or "" if `variables` say so."""
    quick_goal: float = QUICK_GOAL
    judges_cpu_quickly: bool = True

    @property
    def addresses(self) -> dict[str, str]:
        """The options that variables hold."""
        return {option: os.environ[variable] for option, variable in self.variables.items()}

    @property
    def missing(self) -> list[str]:
        """Its variables that aren't set."""
        return [name for name in self.variables.values() if not os.environ.get(name)]


def encode_all(encoder: Encoder, line: Line) -> list[Any]:
    """The data of the payloads that another worker sends in a round."""

    def generate(first: int, count: int) -> Any:
        return line.workload.block(1, first, count)

    feed = Feed(generate, encoder, 0, line.round_events)
    return [payload.data for payload in feed]


# --- the thinnest clients of systems --------------------------------------------------------------


def _post(
    module: Any, line: Line, posts: Sequence[Post], headers: Mapping[str, str],
    status: int = http.HTTPStatus.NO_CONTENT, begin: bytes = b"",
) -> Thin:  # fmt: skip
    url, in_flight = module.options.endpoint[0], line.case.in_flight
    return thinnest.http_client(url, posts, headers, status, line.requests, in_flight, begin)


def to_influxdb(module: Any, encoder: Encoder, line: Line) -> Thin:
    server = InfluxConnection(module.options, module.job)
    posts = [Post(server.write_target, body) for body in encode_all(encoder, line)]
    return _post(module, line, posts, server.headers | server.write_headers)


def to_questdb(module: Any, encoder: Encoder, line: Line) -> Thin:
    posts = [Post(WRITE_TARGET, body) for body in encode_all(encoder, line)]
    return _post(module, line, posts, {"user-agent": "thin"})


def to_victoriametrics(module: Any, encoder: Encoder, line: Line) -> Thin:
    posts = [Post(data.target, data.body) for [data] in encode_all(encoder, line)]
    return _post(module, line, posts, {})


def to_clickhouse(module: Any, encoder: Encoder, line: Line) -> Thin:
    server = ClickhouseConnection(module.options, module.job)
    requests = encode_all(encoder, line)
    posts = [Post(server.find_target(part), part.body) for parts in requests for part in parts]
    return _post(module, line, posts, server.headers | server.insert_headers, http.HTTPStatus.OK)


def to_elasticsearch(module: Any, encoder: Encoder, line: Line) -> Thin:
    posts = [Post(request.target, request.body) for [request] in encode_all(encoder, line)]
    headers = {"content-type": "application/x-ndjson"}
    return _post(module, line, posts, headers, http.HTTPStatus.OK, b'{"errors":false')


def to_cassandra(module: Any, encoder: Encoder, line: Line) -> Thin:
    address = (module.options.contact_points[0], module.options.port)
    bodies = [request.body for request in encode_all(encoder, line)]
    batched, in_flight = bool(line.case.batch), line.case.in_flight
    return thinnest.cassandra_socket(address, bodies, batched, line.requests, in_flight)


def to_iotdb(module: Any, encoder: Encoder, line: Line) -> Thin:
    requests = encode_all(encoder, line)
    bodies = [b"".join(call) for request in requests for call in request]
    return thinnest.iotdb_socket(module.options, bodies, line.requests)


def to_postgresql(module: Any, encoder: Encoder, line: Line) -> Thin:
    dsn, case = module.options.connection_string, line.case
    if case.beside == "pgbench":
        insert = "INSERT INTO {} ({}) VALUES ".format(
            quote_name(module.job.schema.table),
            ", ".join(quote_name(column.name) for column in module.job.schema.row),
        )
        clients = case.options.get("connections", case.in_flight)
        pipelined = case.in_flight // clients
        return thinnest.pgbench(dsn, insert, line.requests, clients, pipelined)
    # psql takes texts, not the values of prepared statements.
    mode = module.options.mode(Load(batch=case.batch))
    encoder = PostgresEncoder(module.job, mode, CopyFormat.BINARY, prepared=False)
    requests = encode_all(encoder, line)
    if case.beside == "psql":
        return thinnest.psql(dsn, requests, line.requests)
    return thinnest.libpq(dsn, [inserts[0] for inserts, _ in requests], line.requests)


# --- the table ------------------------------------------------------------------------------------


def spread_cpu(devices: int) -> Callable[[], Workload]:
    return partial(Cpu, seed=0, device_spread=devices)


_BULK_CASES = (
    Case(1_000, 24, turns=4, goal_us=US),
    Case(10_000, 3, turns=4),
    Case(1_000, 24, turns=4, key=PrimaryKey.CLIENT, quick=False),
    Case(1_000, 24, turns=4, in_flight=4, quick=False),
)


def _list_copies() -> list[Case]:
    """A turn has so many batches that it is negligible that a worker encodes ahead: it has the first batches
    of a turn ready, and spends its end on those of the next."""
    return [
        Case(
            batch, requests, "copy", key=key, turns=4, beside=beside, commit=commit,
            judged=commit == "on" and beside == "libpq",
            quick=commit == "on" and key is PrimaryKey.NONE,
        )
        for commit in ("on", "off")
        for key in (PrimaryKey.DB, PrimaryKey.NONE)
        for batch, requests in ((1_000, 64), (10_000, 10))
        for beside in ("libpq", "psql")
    ]  # fmt: skip


def _list_inserts() -> list[Case]:
    """`transaction` is prepared as it is by default, `transaction text` sends what psql does. Requests
    in flight on one connection (pipeline) are beside pgbench's pipeline, those on several beside as many
    clients of pgbench."""
    cases = []
    # A disk may take milliseconds for a commit.
    for commit, singles, batches in (("on", 160, 8), ("off", 1_600, 40)):
        case = partial(Case, commit=commit, judged=commit == "on", quick=commit == "on")
        single = partial(case, 0, singles, longer=5, beside="pgbench")
        cases.append(single("single"))
        for many in (4, 16):
            cases.append(single("single, pipeline", {"connections": 1}, in_flight=many))
            cases.append(single("single, connections", in_flight=many))
        for how, options in (
            ("values_lists", {"insert_mode": "values_lists"}),
            ("transaction", {"insert_mode": "transaction"}),
            ("transaction text", {"insert_mode": "transaction", "prepared_statements": "false"}),
        ):
            cases.append(case(1_000, batches, how, options, beside="psql"))
    return cases


def _drop_indices(module: Any) -> None:
    indices = module.options.join_indices(module.job.all_table_names)
    module.connection.ask("DELETE", f"/{indices}?ignore_unavailable=true")


def _drop_table(module: Any) -> None:
    module.connection.ask(f"DROP TABLE {quote_name(module.job.schema.table)}")


SYSTEMS = {
    "postgresql-copy": System(
        "postgres", _list_copies(), to_postgresql, shares=True, server=start_embedded_server
    ),
    "postgresql-inserts": System(
        "postgres", _list_inserts(), to_postgresql, shares=True, server=start_embedded_server, quick_goal=0.7
    ),
    "influxdb": System(
        "influxdb",
        [
            Case(1_000, 40, "text", longer=4, goal_us=US),
            Case(10_000, 5, "text", longer=4, goal_us=US),
            Case(1_000, 40, "gzip", {"gzip": "true"}, longer=4, judged=False, quick=False),
            Case(10_000, 5, "gzip", {"gzip": "true"}, longer=4, judged=False, quick=False),
        ],
        to_influxdb,
        {"endpoint": "INFLUXDB_URL", "org": "INFLUXDB_ORG", "token": "INFLUXDB_TOKEN"},
        "bucket", drop=lambda module: module.drop_bucket(),
    ),
    "questdb": System(
        "questdb",
        [
            Case(batch, requests, how, options, workload, longer=4, goal_us=goal)
            for how, options in (("text", {}), ("binary", {"line_format": "binary"}))
            for batch, requests, workload, goal in (
                (1_000, 40, temperature, US), (10_000, 5, temperature, US), (1_000, 40, Cpu, CPU_US),
            )
        ],
        to_questdb, {"endpoint": "QUESTDB_URL"}, "table_prefix", drop=_drop_table,
    ),
    "victoriametrics": System(
        "victoriametrics",
        [
            Case(1_000, 40, goal_us=US),
            Case(10_000, 4, goal_us=US),
            Case(1_000, 20, workload=Cpu, goal_us=CPU_US),
            Case(10_000, 2, workload=Cpu, goal_us=CPU_US),
        ],
        to_victoriametrics, {"endpoint": "VICTORIAMETRICS_URL"}, "db",
        drop=lambda module: module.prepare(),
    ),
    "clickhouse": System(
        "clickhouse",
        [
            Case(1_000, 20, "none", goal_us=US),
            Case(10_000, 4, "none", goal_us=US),
            Case(1_000, 20, "none", workload=Cpu, goal_us=CPU_US),
            *(
                Case(1_000, 20, kind, {"compression": kind}, judged=False, quick=False)
                for kind in ("lz4", "gzip")
            ),
        ],
        to_clickhouse,
        {"endpoint": "CLICKHOUSE_URL", "user": "CLICKHOUSE_USER", "password": "CLICKHOUSE_PASSWORD"},
        "database", drop=lambda module: module.drop_database(),
    ),
    **{
        flavor: System(
            "elasticsearch", _BULK_CASES, to_elasticsearch,
            {"endpoint": f"{flavor.upper()}_URL"}, "index_prefix",
            {"flavor": flavor, "shards": 1, "replicas": 0},
            _drop_indices, shares=True, retries=RETRIES, judges_cpu_quickly=False,
        )
        for flavor in ("elasticsearch", "opensearch")
    },
    "cassandra": System(
        "cassandra",
        [
            Case(1_000, 12, turns=24, goal_us=1.0),
            Case(1_000, 64, turns=6, in_flight=16),
            Case(10_000, 3, turns=12),
            Case(10_000, 12, turns=4, in_flight=4),
            Case(0, 300, turns=8, judged=False),
            Case(0, 1_200, turns=8, in_flight=120, judged=False),
        ],
        to_cassandra,
        {"contact_points": "CASSANDRA_CONTACT_POINTS", "port": "CASSANDRA_PORT"},
        "keyspace", {"replication_factor": 1}, shares=True, retries=RETRIES,
    ),
    # In the tree model a request is a tablet for each device, so there is a line in which each row is of
    # another device, too. For most of the time it waits for the server.
    "iotdb": System(
        "iotdb",
        [
            Case(
                batch, requests, model.value, {"model": model}, workload, turns=8, longer=longer,
                goal_us=goal, judged=batch > 0,
            )
            for batch, requests, model, workload, longer, goal in (
                (1_000, 40, Model.TABLE, temperature, 8, US),
                (10_000, 5, Model.TABLE, temperature, 8, US),
                (1_000, 20, Model.TABLE, spread_cpu(10), 8, CPU_US),
                (0, 200, Model.TABLE, temperature, 8, None),
                (1_000, 40, Model.TREE, temperature, 8, US),
                (1_000, 20, Model.TREE, spread_cpu(10), 8, CPU_US),
                (1_000, 5, Model.TREE, spread_cpu(1_000), 2, CPU_US),
            )
        ],
        to_iotdb,
        {
            "host": "IOTDB_HOST", "port": "IOTDB_PORT",
            "username": "IOTDB_USER", "password": "IOTDB_PASSWORD",
        },
        "database", shares=True,
    ),
}  # fmt: skip
