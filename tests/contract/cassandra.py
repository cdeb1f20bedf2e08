"""How to look into Cassandra, and how to make it fail: by cutting sockets, or by a proxy."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import psutil
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import tuple_factory

from simulator.contract import PrimaryKey
from simulator.modules.base import Job
from simulator.testing.events import Losses
from simulator.testing.server import Fault, FaultHandle, Refusal, ServerUnderTest
from simulator.workloads.schema import ColumnType, EventBlock, Schema

from ..helpers import eventually
from .cassandra_proxy import Fate, Proxy
from .lost import ANSWER_LOST, REQUEST_LOST


def quoted(name: str) -> str:
    """A CQL identifier. Not by the function of the code under test, which may be wrong."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def session_with(host: str, port: int, **options: Any) -> Iterator[Session]:
    """A session with one node, which has none of the module's settings."""
    profile = ExecutionProfile(
        WhiteListRoundRobinPolicy([host]),
        row_factory=tuple_factory,
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        request_timeout=60,
    )
    profiles = {EXEC_PROFILE_DEFAULT: profile}
    cluster = Cluster(
        [host], port, execution_profiles=profiles, protocol_version=5, connect_timeout=20,
        control_connection_timeout=20, **options,
    )  # fmt: skip
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


class CassandraUnderTest(ServerUnderTest):
    """A keyspace of its own on one node, or on several with a copy on each."""

    # It reports sizes in whole MiB.
    events_for_size: ClassVar[int] = 60_000

    column_types: ClassVar = {
        ColumnType.TIMESTAMP_MS: "timestamp",
        ColumnType.INT64: "bigint",
        ColumnType.INT32: "int",
        ColumnType.FLOAT32: "float",
        ColumnType.FLOAT64: "double",
        ColumnType.BOOL: "boolean",
        ColumnType.TEXT: "text",
        ColumnType.JSON: "text",
    }
    locks: ClassVar = False
    keyless: ClassVar = frozenset({PrimaryKey.DB, PrimaryKey.NONE})

    def __init__(self, hosts: Sequence[str], port: int, sessions: Sequence[Session]) -> None:
        self.hosts, self.port = list(hosts), port
        self.keyspace = f"iot_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        options = {
            "contact_points": ",".join(hosts),
            "port": port,
            "keyspace": self.keyspace,
            "replication_factor": len(hosts),
            "connect_timeout": 3,
            "scan_ranges": 4,
        }
        super().__init__("cassandra", options)
        # The driver's control connection, and one to each node.
        self._connections_each = 1 + len(hosts)
        self._sessions = sessions
        self._silent = socket.create_server(("127.0.0.1", 0))
        """Takes connections and never answers."""
        self._closed = socket.socket()
        """Bound, so that its port stays free, but not listening."""
        self._closed.bind(("127.0.0.1", 0))

    @classmethod
    @contextmanager
    def started(cls, hosts: str, port: str) -> Iterator[CassandraUnderTest]:
        """A keyspace of its own on the server, dropped at the end: others may be using the rest."""
        names = hosts.split(",")
        with _sessions(names, int(port)) as sessions:
            adapter = cls(names, int(port), sessions)
            adapter.ask(
                f"CREATE KEYSPACE {adapter.keyspace} WITH replication ="
                f" {{'class': 'NetworkTopologyStrategy', 'datacenter1': {len(names)}}}"
            )
            try:
                yield adapter
            finally:
                adapter.ask(f"DROP KEYSPACE {adapter.keyspace}")
                adapter._silent.close()
                adapter._closed.close()

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self._sessions[0].execute(statement, values or None))

    def _named(self, table: str) -> str:
        return f"{self.keyspace}.{quoted(table)}"

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        selected = [
            f"tounixtimestamp({quoted(c.name)})"
            if c.type is ColumnType.TIMESTAMP_MS
            else quoted(c.name)
            for c in schema.columns
        ]
        documents = [c.type is ColumnType.JSON for c in schema.columns]
        return [
            [
                json.loads(v) if parse and v is not None else v
                for v, parse in zip(row, documents, strict=True)
            ]
            for row in self.ask(f"SELECT {', '.join(selected)} FROM {self._named(table)}")
        ]

    def keys(self, table: str) -> list[str]:
        if "id" not in self.columns(table):
            return []
        return [str(row[0]) for row in self.ask(f"SELECT id FROM {self._named(table)}")]

    def tables(self) -> set[str]:
        statement = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
        return {row[0] for row in self.ask(statement, self.keyspace)}

    def columns(self, table: str) -> dict[str, str]:
        rows = self.ask(
            "SELECT column_name, type FROM system_schema.columns"
            " WHERE keyspace_name = %s AND table_name = %s",
            self.keyspace,
            table,
        )
        return dict(rows)

    def indices(self, table: str) -> set[str]:
        rows = self.ask(
            "SELECT index_name FROM system_schema.indexes"
            " WHERE keyspace_name = %s AND table_name = %s",
            self.keyspace,
            table,
        )
        return {row[0] for row in rows}

    def make_neighbour(self, name: str) -> object:
        self.ask(f"CREATE TABLE {self._named(name)} (serial_number int PRIMARY KEY, note text)")
        self.ask(
            f"INSERT INTO {self._named(name)} (serial_number, note) VALUES (%s, %s)", 7, "keep me"
        )
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.ask(f"SELECT serial_number, note FROM {self._named(name)}")

    def clear(self) -> None:
        for table in self.tables():
            self.ask(f"DROP TABLE {self._named(table)}")

    def lose_values(self, job: Job, block: EventBlock, losses: Losses) -> None:
        for row, device in enumerate(block.devices.tolist()):
            key = block.key_of(row)
            columns = ", ".join(map(quoted, losses.get(device.decode(), ())))
            where = " AND ".join(f"{quoted(name)} = %s" for name in key)
            for table in job.table_names if columns else ():
                delete = f"DELETE {columns} FROM {self._named(table)} WHERE {where}"
                self.ask(delete, *key.values())

    def _ports(self, run_id: str) -> set[int]:
        """The local ports of that run's connections."""
        return {
            port
            for session in self._sessions
            for port, options in session.execute(
                "SELECT port, client_options FROM system_views.clients"
            )
            if options.get("APPLICATION_NAME") == f"iot-benchmark {run_id}"
        }

    def _live_ports(self, run_id: str) -> set[int]:
        """Those that this side has open, too: a node lists a closed one for a while."""
        mine = {
            connection.laddr.port
            for connection in _connections()
            if connection.status == "ESTABLISHED"
        }
        return self._ports(run_id) & mine

    def connections(self, run_id: str) -> set[str]:
        # The driver reconnects in its own time.
        ports: set[int] = eventually(lambda: self._live_ports(run_id), "connections")
        return set(map(str, ports))

    def kill_connections(self, run_id: str) -> int:
        """Cut them on this side: Cassandra has no command for it."""
        ports = self._ports(run_id)
        return sum(
            _cut(connection.fd) for connection in _connections() if connection.laddr.port in ports
        )

    def refusals(self) -> Sequence[Refusal]:
        secret = "the-wrong-passw0rd"
        return [
            Refusal(
                {
                    "contact_points": "127.0.0.1", "port": port,
                    "username": "somebody", "password": secret, "connect_timeout": 2,
                },
                f"127.0.0.1:{port}",
                "check that the server runs",
                secret,
            )
            for port in (endpoint.getsockname()[1] for endpoint in (self._closed, self._silent))
        ]  # fmt: skip

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def killed(self, job: Job) -> Iterator[FaultHandle]:
        """The writer's connections are cut before the request is sent."""

        def trigger() -> None:
            # A busy server lists a new connection a moment later; the driver still closes some of its own,
            # also between this count and the cut, which is of all that are there.
            each = self._connections_each
            eventually(lambda: len(self._live_ports(job.run_id)) == each, f"{each} connections")
            assert self.kill_connections(job.run_id)

        yield FaultHandle(trigger)

    @contextmanager
    def fated(self, fate: Fate) -> Iterator[FaultHandle]:
        """The proxy does something to the next request that writes."""
        with Proxy(self.hosts[0], self.port) as proxy:

            def trigger() -> None:
                proxy.fate = fate

            yield FaultHandle(trigger, {"contact_points": "127.0.0.1", "port": proxy.port})
            assert proxy.fate is None, "no request met its fate"

    FAULTS: ClassVar[Sequence[Fault]] = (
        Fault("killed", {"connection_lost": 1}, killed, thorough=True),
        ANSWER_LOST,
        REQUEST_LOST,
        Fault(
            "no answer", {"client_timeout": 1},
            lambda server, job: server.unanswered(), reconnects=True,
        ),
        Fault(
            "timed out but written", {"write_timeout": 1},
            lambda server, job: server.fated("write timeout"),
        ),
        Fault(
            "overloaded", {"overloaded": 1},
            lambda server, job: server.fated("overloaded"),
        ),
    )  # fmt: skip

    @contextmanager
    def unanswered(self) -> Iterator[FaultHandle]:
        """The server stores the events, its answer never arrives, the connection stays."""
        with self.fated("swallow answer") as strike:
            options = {**strike.options, "request_timeout": 0.5}
            yield FaultHandle(strike.trigger, options)


class CassandraClusterUnderTest(CassandraUnderTest):
    """Three nodes. The driver talks to all of them, so a proxy before one proves nothing."""

    FAULTS: ClassVar[Sequence[Fault]] = CassandraUnderTest.FAULTS[:1]

    def first_replica(self, device: str) -> str:
        """The node that a client asks first for a device. Tokens are random, so a node may be it for few."""
        metadata = self._sessions[0].cluster.metadata
        address: str = metadata.get_replicas(self.keyspace, device.encode())[0].address
        return address


@contextmanager
def _sessions(hosts: Sequence[str], port: int) -> Iterator[list[Session]]:
    if not hosts:
        yield []
        return
    with session_with(hosts[0], port) as first, _sessions(hosts[1:], port) as others:
        yield [first, *others]


def _connections() -> list[Any]:
    return psutil.Process().net_connections("tcp")


def _cut(descriptor: int) -> int:
    """Shut a socket of this process down as if the other side had; 1, or 0 if it is gone already."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)
        return 1
    return 0
