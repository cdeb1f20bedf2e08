"""The driver's session with a cluster, and what it knows of the nodes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from typing import Any

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.connection import EndPoint
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    HostDistance,
    HostStateListener,
    LoadBalancingPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import StartupMessage
from cassandra.query import PreparedStatement, SimpleStatement, tuple_factory

from ...errors import Retryable, SimulatorError
from .._base.errors import CONNECTION_LOST, connection_lost
from .._base.http import SOCKET_OPTIONS
from .._base.http_connection import make_tls_context
from ..base import Job
from . import wire
from .encoding import CONSISTENCY_CODES, Prepared
from .errors import ERRORS, explain_failure, find_cause, translate
from .options import CassandraOptions, Flavor
from .pool import RECONNECT_INTERVAL_S, Topology

# How long one retry waits for the driver to have a node to talk to again.
RECONNECT_S = 2.0
_PROBE = "SELECT key FROM system.local WHERE key = 'local'"


class ClusterSession:
    """The driver's session with a cluster. It reconnects by itself; that it has to is remembered here."""

    def __init__(self, options: CassandraOptions, job: Job) -> None:
        """Connects. Raises SimulatorError with the servers' names and a remedy if that fails."""
        self._options = options
        self._job = job
        self._lost = False
        """Whether the connection was lost since a node last answered."""
        self.expects_tables = False
        """Whether the job's tables have been made."""
        self._up = threading.Event()
        self._local = DCAwareRoundRobinPolicy(options.local_datacenter or "")
        profile = ExecutionProfile(
            TokenAwarePolicy(self._local),
            # Retrying is the loop's affair, which counts.
            retry_policy=FallthroughRetryPolicy(),
            consistency_level=CONSISTENCY_CODES[options.consistency_level],
            request_timeout=options.query_timeout,
            row_factory=tuple_factory,
        )
        auth = None
        if options.username is not None:
            auth = PlainTextAuthProvider(options.username, options.password)
        version = options.protocol_version or (4 if options.flavor is Flavor.YCQL else 5)
        self._auth = auth
        self._tls = (
            make_tls_context(options.ca_certs, options.verify_certs) if options.tls else None
        )
        self._name = f"iot-benchmark {job.run_id}"
        self._cluster = Cluster(
            options.contact_points,
            options.port,
            protocol_version=version,
            auth_provider=auth,
            ssl_context=self._tls,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=options.connect_timeout,
            control_connection_timeout=options.connect_timeout,
            reconnection_policy=ConstantReconnectionPolicy(RECONNECT_INTERVAL_S, None),
            compression=False,
            sockopts=SOCKET_OPTIONS,
        )
        self._cluster.connection_class = _assign_name(self._cluster.connection_class, self._name)
        self._cluster.register_listener(_WhenUp(self._up))
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
    def version(self) -> int:
        """Of the protocol."""
        return int(self._cluster.protocol_version)

    @property
    def release(self) -> tuple[int, int]:
        """The version of the nodes, as (5, 0): the oldest, while they are being upgraded."""
        found = [str(host.release_version) for host in self._cluster.metadata.all_hosts()]
        numbers = [re.match(r"(\d+)\.(\d+)", version) for version in found]
        return min(((int(n[1]), int(n[2])) for n in numbers if n), default=(0, 0))

    def close(self) -> None:
        self._cluster.shutdown()

    def ask(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement about keyspaces, tables or a node: such has no other copies."""
        try:
            return list(self.driver.execute(_ask_one_node(statement), values or None))
        except ERRORS as error:
            raise self.translate(error) from error

    def ask_each_node(
        self, statement: str, values: Sequence[Any] = ()
    ) -> list[list[tuple[Any, ...]]]:
        """All rows of a statement about a node, of each node that requests go to. Raises Retryable if one
        doesn't answer."""
        try:
            return [
                list(self.driver.execute(_ask_one_node(statement), values or None, host=host))
                for host in self._cluster.metadata.all_hosts()
                if self._local.distance(host) == HostDistance.LOCAL
            ]
        except ERRORS as error:
            raise self.translate(error) from error

    def prepare(self, statement: str) -> PreparedStatement:
        """A prepared statement; each is prepared once. Raises `ERRORS`."""
        if statement not in self._statements:
            self._statements[statement] = self.driver.prepare(statement)
        return self._statements[statement]

    def keep_topology(self) -> Topology:
        """End the connections for queries, keep the one that tells of the cluster's nodes."""
        self.driver.shutdown()
        return _DriverTopology(self._cluster, self._local, self._options.keyspace)

    def connect(
        self, node: wire.Node, statements: Sequence[str]
    ) -> tuple[wire.Connection, list[Prepared]]:
        """`wire.connect` to a node of this cluster. Raises `ERRORS`."""
        assert isinstance(node, EndPoint)
        return wire.connect(
            node,
            node.resolve(),
            self._tls,
            self.version,
            self._options.connect_timeout,
            self._name,
            self._auth.new_authenticator(node.address) if self._auth else None,
            statements,
        )

    def translate(self, error: Exception) -> Retryable | SimulatorError:
        """What an error means; remembers that the connection is lost."""
        meaning = translate(error, self._options, self._job, self.expects_tables)
        if isinstance(meaning, Retryable) and meaning.kind == CONNECTION_LOST:
            self._lost = True
        return meaning

    def await_node(self) -> None:
        """After a lost connection, wait until a node answers. Raises Retryable if none does."""
        if not self._lost:
            return
        deadline = time.monotonic() + RECONNECT_S
        while True:
            self._up.clear()
            try:
                self.driver.execute(_ask_one_node(_PROBE), timeout=self._options.connect_timeout)
            except ERRORS as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise connection_lost(
                        f"{self._options.servers}: {find_cause(error)}"
                    ) from error
                self._up.wait(min(left, RECONNECT_INTERVAL_S))
            else:
                self._lost = False
                return


def _ask_one_node(statement: str) -> SimpleStatement:
    """A statement that one node answers, whatever the target's consistency level."""
    return SimpleStatement(statement, consistency_level=CONSISTENCY_CODES["ONE"])


class _WhenUp(HostStateListener):  # type: ignore[misc]
    """Tells when a node can be talked to again."""

    def __init__(self, up: threading.Event) -> None:
        self._up = up

    def on_up(self, host: object) -> None:
        self._up.set()

    def on_down(self, host: object) -> None:
        """Whoever sends a request will notice."""

    def on_add(self, host: object) -> None:
        self._up.set()

    def on_remove(self, host: object) -> None:
        """As on_down."""


class _DriverTopology(HostStateListener):  # type: ignore[misc]
    """What the driver knows of a cluster's nodes: a `Topology`."""

    def __init__(self, cluster: Cluster, policy: LoadBalancingPolicy, keyspace: str) -> None:
        self._metadata = cluster.metadata
        self._policy = policy
        self._keyspace = keyspace
        self.version = 0
        cluster.register_listener(self)

    def nodes(self) -> Sequence[wire.Node]:
        hosts = self._metadata.all_hosts()
        return [h.endpoint for h in hosts if self._policy.distance(h) == HostDistance.LOCAL]

    def replicas(self, partition: bytes) -> Sequence[wire.Node]:
        return [host.endpoint for host in self._metadata.get_replicas(self._keyspace, partition)]

    def _changed(self, host: object) -> None:
        self.version += 1

    on_up = on_down = on_add = on_remove = _changed


def _assign_name(connection_class: type, name: str) -> type:
    """The connection class, under a name by which an administrator knows it (`system_views.clients`)."""

    class Named(connection_class):  # type: ignore[misc]
        def send_msg(self, msg: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(msg, StartupMessage):
                msg.options["APPLICATION_NAME"] = name
            return super().send_msg(msg, *args, **kwargs)

    return Named
