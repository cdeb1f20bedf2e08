"""The driver's session with a cluster: its statements, its view of the nodes, and the meaning of its
errors."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cassandra import (
    AuthenticationFailed,
    CoordinationFailure,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    Unauthorized,
    Unavailable,
    UnresolvableContactPoints,
    WriteTimeout,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.connection import ConnectionException, EndPoint, ProtocolVersionUnsupported
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    HostDistance,
    HostStateListener,
    LoadBalancingPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import (
    ErrorMessage,
    IsBootstrappingErrorMessage,
    OverloadedErrorMessage,
    PreparedQueryNotFound,
    ServerError,
    StartupMessage,
)
from cassandra.query import PreparedStatement, SimpleStatement, tuple_factory

from ...contract import MIB, Storage
from ...errors import Retryable, SimulatorError, one_line
from ..base import Job
from ..kit.http_connection import SOCKET_OPTIONS
from ..kit.module import CONNECTION_LOST, MARK, connection_lost, lost_table, missing_table
from ..kit.series import Row
from . import wire
from .encoding import ALLOCATION, CONSISTENCY_CODES, CassandraOptions, Flavor, Prepared

RECONNECT_S = 2.0
"""How long a retry waits for a node that answers."""
RECONNECT_INTERVAL_S = 0.2
AT_ONCE = 16
"""A query's statements in flight at the same time."""

ERRORS = (
    DriverException,
    NoHostAvailable,
    ConnectionException,
    UnresolvableContactPoints,
    ErrorMessage,
    OSError,
)
"""All errors that the driver raises for a server or a network."""
_PASSES = {
    WriteTimeout: "write_timeout",
    ReadTimeout: "read_timeout",
    OperationTimedOut: "client_timeout",
    Unavailable: "unavailable",
    OverloadedErrorMessage: "overloaded",
    PreparedQueryNotFound: "unprepared",
    CoordinationFailure: "replica_failure",
    IsBootstrappingErrorMessage: "unavailable",
    # Sent by a node that is shutting down, for one.
    ServerError: "server_error",
}
"""Error -> what it is counted as, if the same request may work a little later; the first match counts."""
_VIRTUAL_TABLES_SINCE = (4, 0)
_SIZES = "SELECT table_name, mebibytes FROM system_views.disk_usage WHERE keyspace_name = %s"
_FLUSHES = (
    "SELECT active_tasks, pending_tasks FROM system_views.thread_pools"
    " WHERE name IN ('MemtableFlushWriter', 'MemtablePostFlush')"
)
_SOURCE = (
    "system_views.disk_usage of each node, after a flush: SSTables, rounded up to whole MiB per node and"
    " table; without the commit log"
)

# Sizes are settled once they have been the same for this long while no node was flushing.
_STILL_S = 0.5
_PAUSE_S = 0.1
# If flushes take longer, the size is unknown.
_PATIENCE_S = 20.0

_PROBE = "SELECT key FROM system.local WHERE key = 'local'"


class ClusterSession:
    """The driver's session with a cluster. It reconnects by itself; this class remembers that it had to."""

    def __init__(self, options: CassandraOptions, job: Job) -> None:
        """Connects. Raises SimulatorError with the servers' names and a remedy if that fails."""
        self._options = options
        self._job = job
        self._lost = False
        """Whether the connection was lost since a node last answered."""
        self.expects_tables = False
        """Whether the job's tables have been created."""
        self._local = DCAwareRoundRobinPolicy(options.local_datacenter or "")
        profile = ExecutionProfile(
            TokenAwarePolicy(self._local),
            # The loop retries, and counts it.
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=CONSISTENCY_CODES[options.consistency_level],
            request_timeout=options.query_timeout,
            row_factory=tuple_factory,
        )
        auth = None
        if options.username is not None:
            auth = PlainTextAuthProvider(options.username, options.password)
        self.version = options.protocol_version or (4 if options.flavor is Flavor.YCQL else 5)
        """The protocol version; the driver accepts only this one."""
        self._auth = auth
        self._tls = options.make_context() if options.tls else None
        self._name = f"iot-benchmark {job.run_id}"
        try:
            self._cluster = Cluster(
                options.contact_points,
                options.port,
                protocol_version=self.version,
                auth_provider=auth,
                ssl_context=self._tls,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                connect_timeout=options.connect_timeout,
                control_connection_timeout=options.connect_timeout,
                reconnection_policy=ConstantReconnectionPolicy(RECONNECT_INTERVAL_S, None),
                compression=False,
                sockopts=SOCKET_OPTIONS,
            )
        except UnresolvableContactPoints as error:
            raise SimulatorError(
                f"can't connect to Cassandra: no name in contact_points has an address here"
                f" ({', '.join(options.contact_points)}); check their spelling and the name server"
            ) from error
        self._cluster.connection_class = _assign_name(self._cluster.connection_class, self._name)
        self.topology = _DriverTopology(self._cluster, self._local, options.keyspace)
        try:
            self.driver: Session = self._cluster.connect()
        except ERRORS as error:
            datacenters = {host.datacenter for host in self._cluster.metadata.all_hosts()} - {None}
            self._cluster.shutdown()
            raise SimulatorError(explain_failure(options, error, datacenters)) from error

        self._statements: dict[str, PreparedStatement] = {}

    @property
    def datacenter(self) -> str:
        """The data center that requests go to."""
        return str(self._local.local_dc)

    @property
    def release(self) -> tuple[int, int]:
        """The nodes' version, as (5, 0): the oldest one, during an upgrade."""
        versions = [str(host.release_version) for host in self._cluster.metadata.all_hosts()]
        matches = [re.match(r"(\d+)\.(\d+)", version) for version in versions]
        return min(((int(match[1]), int(match[2])) for match in matches if match), default=(0, 0))

    def close(self) -> None:
        self._cluster.shutdown()

    def ask(self, statement: str, values: Sequence[Any] = (), host: object = None) -> list[Row]:
        """All rows of a statement about keyspaces, tables or a node: these have no other copies. `host`: the
        node to ask, if not any."""
        try:
            return list(self.driver.execute(_ask_one_node(statement), values or None, host=host))
        except ERRORS as error:
            raise self.translate(error) from error

    def repeat(self, statement: str, values: Iterable[Sequence[Any]]) -> None:
        """Execute a prepared statement without results for each of these values, concurrently. Raises
        Retryable or SimulatorError."""
        try:
            prepared = self.prepare(statement)
            execute_concurrent_with_args(self.driver, prepared, values, concurrency=AT_ONCE)
        except ERRORS as error:
            raise self.translate(error) from error

    def ask_each_node(self, statement: str, values: Sequence[Any] = ()) -> list[list[Row]]:
        """All rows of a statement about a node, from each node that requests go to. Raises Retryable if one
        doesn't answer."""
        hosts = self._cluster.metadata.all_hosts()
        near = [host for host in hosts if self._local.distance(host) == HostDistance.LOCAL]
        return [self.ask(statement, values, host) for host in near]

    def prepare(self, statement: str, again: bool = False) -> PreparedStatement:
        """A statement, prepared on all nodes: once, or `again` if a node has forgotten it. Raises
        `ERRORS`."""
        if again or statement not in self._statements:
            self._statements[statement] = self.driver.prepare(statement)
        return self._statements[statement]

    def read_storage(self, tables: Sequence[str]) -> Storage:
        """The sum over the tables and the data center's nodes, once memtables are flushed. The tables must be
        the tool's. Raises SimulatorError if the server reports no size or no SSTables, if the user may not
        read it or alter the tables, or if flushing takes too long; Retryable if a node doesn't answer.

        Only SSTables are counted, so memtables are flushed first. CQL has no statement for that, but a change
        of a table's properties flushes it, so its comment gets a new text. The flush continues after the
        answer.
        https://cassandra.apache.org/doc/latest/cassandra/managing/operating/virtualtables.html
        """
        options = self._options
        if self.release < _VIRTUAL_TABLES_SINCE:
            raise SimulatorError(
                "Cassandra reports the size on disk only since 4.0 (system_views.disk_usage)"
            )
        for table in tables:
            name = options.name_table(table)
            self.ask(f"ALTER TABLE {name} WITH comment = '{MARK}, flushed at {time.time_ns()}'")
        sizes: list[int] = []
        began = since = now = time.monotonic()
        while now - since < _STILL_S:
            if now >= began + _PATIENCE_S:
                raise SimulatorError(
                    f"Cassandra's nodes were still flushing after {_PATIENCE_S:g} s"
                )
            time.sleep(_PAUSE_S)
            busy = any(any(row) for rows in self.ask_each_node(_FLUSHES) for row in rows)
            latest = [
                sum(int(mebibytes) for table, mebibytes in rows if table in tables)
                for rows in self.ask_each_node(_SIZES, [options.keyspace])
            ]
            now = time.monotonic()
            if busy or latest != sizes:
                sizes, since = latest, now
        if not any(sizes):
            raise SimulatorError(f"Cassandra lists no SSTables of {', '.join(tables)}")
        return Storage(
            total_bytes=sum(sizes) * MIB,
            copies=min(options.replication_factor, len(sizes)),
            allocation=ALLOCATION.times(len(sizes) * len(tables)),
            source=_SOURCE,
        )

    def keep_topology(self) -> _DriverTopology:
        """Close the driver's connections except the one that reports the cluster's nodes."""
        self.driver.shutdown()
        return self.topology

    def connect(
        self, node: wire.Node, statements: Sequence[str], names: dict[str, Prepared]
    ) -> wire.Connection:
        """A connection to a node of this cluster, with the statements prepared. `names`: the nodes' ids for
        them, which must be the same everywhere, since requests contain them; completed by the first node.
        Works in any thread. Raises `ERRORS`."""
        assert isinstance(node, EndPoint)
        connection, prepared = wire.connect(
            node,
            node.resolve(),
            self._tls,
            self.version,
            self._options.connect_timeout,
            self._name,
            self._auth.new_authenticator(node.address) if self._auth else None,
            statements,
            self._job.stamps_arrivals,
        )
        for text, name in zip(statements, prepared, strict=True):
            if names.setdefault(text, name) != name:
                connection.close()
                # The ids follow from the statements' texts and the table.
                raise ConnectionException(
                    "the node names prepared statements differently from the other nodes"
                )
        return connection

    def translate(self, error: Exception) -> Retryable | SimulatorError:
        """What an error means; remembers a lost connection."""
        meaning = translate(error, self._options, self._job, self.expects_tables)
        if isinstance(meaning, Retryable) and meaning.kind == CONNECTION_LOST:
            self._lost = True
        return meaning

    def refuse(self, error: Exception) -> SimulatorError:
        """What an error means while connecting, when nothing is retried."""
        meaning = self.translate(error)
        return meaning if isinstance(meaning, SimulatorError) else SimulatorError(str(meaning))

    def await_node(self) -> None:
        """After a lost connection, wait until a node answers. Raises Retryable if none does."""
        if not self._lost:
            return
        deadline = time.monotonic() + RECONNECT_S
        while True:
            self.topology.changed.clear()
            try:
                self.driver.execute(_ask_one_node(_PROBE), timeout=self._options.connect_timeout)
            except ERRORS as error:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise connection_lost(
                        f"{self._options.servers}: {find_cause(error)}"
                    ) from error
                self.topology.changed.wait(min(left_s, RECONNECT_INTERVAL_S))
            else:
                self._lost = False
                return


def _ask_one_node(statement: str) -> SimpleStatement:
    """A statement for a single node, at any consistency level of the target."""
    return SimpleStatement(statement, consistency_level=CONSISTENCY_CODES["ONE"])


class _DriverTopology(HostStateListener):  # type: ignore[misc]
    """The driver's view of a cluster's nodes: the `Topology` of the connection pool."""

    def __init__(self, cluster: Cluster, policy: LoadBalancingPolicy, keyspace: str) -> None:
        self._metadata = cluster.metadata
        self._policy = policy
        self._keyspace = keyspace
        self.version = 0
        self.changed = threading.Event()
        """Set when a node comes or goes."""
        cluster.register_listener(self)

    def nodes(self) -> Sequence[wire.Node]:
        hosts = self._metadata.all_hosts()
        return [
            host.endpoint for host in hosts if self._policy.distance(host) == HostDistance.LOCAL
        ]

    def replicas(self, partition: bytes) -> Sequence[wire.Node]:
        return [host.endpoint for host in self._metadata.get_replicas(self._keyspace, partition)]

    def _changed(self, host: object) -> None:
        self.version += 1
        self.changed.set()

    on_up = on_down = on_add = on_remove = _changed


def _assign_name(connection_class: type, name: str) -> type:
    """The connection class, with a name by which administrators recognise it (`system_views.clients`)."""

    class Named(connection_class):  # type: ignore[misc]
        def send_msg(self, msg: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(msg, StartupMessage):
                msg.options["APPLICATION_NAME"] = name
            return super().send_msg(msg, *args, **kwargs)

    return Named


def is_late(error: Exception) -> bool:
    """Whether a read timed out on the servers: a replica reports this as a failure without a reason, the
    coordinator as a timeout."""
    return isinstance(error, (ReadTimeout, ReadFailure))


def explain_failure(
    options: CassandraOptions, error: Exception, datacenters: Collection[str | None]
) -> str:
    """One line for a failed connection, with a remedy."""
    causes = list(_find_causes(error))
    reason = find_cause(error)
    if any(isinstance(cause, (AuthenticationFailed, Unauthorized)) for cause in causes):
        remedy = "check username and password"
    # The driver turns an SSLError into another OSError.
    elif "ssl" in reason.lower() or "certificate" in reason:
        remedy = "check tls, ca_certs, and that the certificate is for the names in contact_points"
    elif any(isinstance(cause, ProtocolVersionUnsupported) for cause in causes):
        remedy = "set protocol_version to one that the server supports"
    elif options.local_datacenter and datacenters and options.local_datacenter not in datacenters:
        names = ", ".join(sorted(map(str, datacenters)))
        remedy = f"set local_datacenter to an existing one: {names}"
    else:
        remedy = "check that the server runs and that contact_points, port and tls are right"
    return f"can't connect to Cassandra at {options.servers}: {reason}; {remedy}"


def _find_causes(error: Exception) -> Iterable[Exception]:
    """The error and its parts: NoHostAvailable has one for each node."""
    yield error
    parts = getattr(error, "errors", None)
    for part in parts.values() if isinstance(parts, dict) else ():
        if isinstance(part, Exception):
            yield from _find_causes(part)


def find_cause(error: Exception) -> str:
    """What went wrong, in one line: on one of the nodes, if on several."""
    return one_line(list(_find_causes(error))[-1])


def translate(
    error: Exception, options: CassandraOptions, job: Job, expects_tables: bool = False
) -> Retryable | SimulatorError:
    """What an error means: worth another attempt, or the end of the run. `expects_tables`: the run has
    created its tables, so a node that doesn't know them hasn't caught up."""
    text = find_cause(error)
    for kind, name in _PASSES.items():
        if any(isinstance(cause, kind) for cause in _find_causes(error)):
            return Retryable(name, text)
    if isinstance(error, (AuthenticationFailed, Unauthorized)):
        return SimulatorError(f"Cassandra refused {options.servers}: {text}; check username")
    if isinstance(error, (NoHostAvailable, ConnectionException, OSError)):
        return connection_lost(text)
    if isinstance(error, InvalidRequest) and ("does not exist" in text or "unconfigured" in text):
        return lost_table(text) if expects_tables else missing_table(text, job)
    if isinstance(error, InvalidRequest) and "too large" in text:
        return SimulatorError(f"{text}; use a smaller --batch")
    return SimulatorError(f"Cassandra refused a request: {text}")
