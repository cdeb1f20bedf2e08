"""A pool of connections to a cluster: each request goes to a node that has its partition."""

from __future__ import annotations

import itertools
import logging
import math
import select
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from cassandra import InvalidRequest, OperationTimedOut
from cassandra.protocol import BatchMessage, ExecuteMessage, PreparedQueryNotFound

from ...errors import one_line
from ..kit.multiplexer import Multiplexer
from ..sending import Channel, Completion, Request, Writer
from ..waiting import limit_wait
from .encoding import CassandraEncoder, Insert, Prepared
from .server import ERRORS, RECONNECT_INTERVAL_S, RECONNECT_S, ClusterSession
from .wire import Connection, Node, Pending, Reply

if TYPE_CHECKING:
    from . import Cassandra

_log = logging.getLogger(__name__)


class Topology(Protocol):
    """What is known about a cluster at the moment."""

    def nodes(self) -> Sequence[Node]:
        """The nodes to connect to."""

    def replicas(self, partition: bytes) -> Sequence[Node]:
        """The nodes that have a partition, the one to try first at the front; may name others, too."""

    @property
    def version(self) -> int:
        """A number that changes whenever nodes come or go."""


End = Callable[[Any, Reply | Exception, float], bool]
"""Takes the answer to a request and its time of arrival; returns whether its connection is no longer
usable."""


class ConnectionPool(Multiplexer):
    """Connections to the nodes of a cluster, one to each. A request goes to a node that has its partition, if
    one is connected, otherwise to any. A lost connection is reopened in the background. For one thread;
    only connecting uses others."""

    def __init__(
        self,
        topology: Topology,
        connect: Callable[[Node], Connection],
        timeout_s: float,
        end: End,
    ) -> None:
        """`connect`: raises the driver's errors; `timeout_s`: for an answer; `end`: called when a request
        ends; it may send others, and adds to `found`."""
        super().__init__(timeout_s)
        self._topology = topology
        self._connect = connect
        self._end = end
        self._version = topology.version
        self._wanted: frozenset[Node] = frozenset()
        self._connections: dict[int, Connection] = {}
        """Connections by their descriptors in poll; one per node at most."""
        self._by_partition: dict[bytes | None, Connection] = {}
        """Results of `_choose`, until a connection opens or closes."""
        self._turn = itertools.count()
        self._lock = threading.Lock()
        self._joining: deque[Connection] = deque()
        """Connections opened in the background."""
        self._joined = threading.Event()
        self._failure: Exception = ConnectionResetError("no node is known")
        self._closed = threading.Event()

    def open(self) -> None:
        """Connect to all nodes. Raises the last one's error if all connections fail."""
        self._wanted = frozenset(self._topology.nodes())
        if self._wanted:
            with ThreadPoolExecutor(len(self._wanted), "connect") as threads:
                list(threads.map(self._attempt, self._wanted))
        self._take_joining()
        if not self._connections:
            raise self._failure
        for node in self._wanted - {connection.node for connection in self._connections.values()}:
            self._reconnect(node)

    def close(self) -> None:
        """Disconnect from all."""
        self.finish()
        with self._lock:
            self._closed.set()
        self._take_joining()
        for connection in self._connections.values():
            connection.close()

    # --- requests

    @property
    def is_busy(self) -> bool:
        return any(connection.pending for connection in self._connections.values())

    def send(
        self,
        partition: bytes | None,
        operation: int,
        body: bytes,
        request: object,
        deadline_s: float = math.inf,
    ) -> None:
        """Send a request. `poll` sends the rest of it, if the node doesn't take everything at once, since
        requests to other nodes mustn't wait for that. `partition`: None: no particular one; `deadline_s`:
        when to give up."""
        if self._joining or self._topology.version != self._version:
            self._refresh()
        connection = self._by_partition.get(partition) or self._choose(partition)
        if connection is None:
            self._fail(request, self._failure)
            return
        sent_s = time.perf_counter()
        pending = Pending(request, sent_s, sent_s + limit_wait(self._timeout_s, deadline_s))
        try:
            connection.send(operation, body, pending)
        except OSError as error:
            self._lose(connection, error)
        else:
            self.watch(connection.descriptor, connection.full)

    def serve(self, descriptor: int, events: int) -> None:
        connection = self._connections.get(descriptor)
        if connection is None:
            # Lost while another request's answer was processed.
            return
        try:
            if events & select.POLLOUT:
                connection.flush()
                self.watch(descriptor, connection.full)
            if events & ~select.POLLOUT:
                self._take(connection)
        except OSError as error:
            self._lose(connection, error)

    def end_late(self, now_s: float) -> None:
        for connection in list(self._connections.values()):
            sent_s = 0.0
            for pending in connection.give_up(now_s):
                sent_s = max(sent_s, pending.sent_s)
                reason = f"no answer within {pending.late_s - pending.sent_s:.3g} s"
                late = OperationTimedOut({str(connection.node): reason}, connection.node)
                self._fail(pending.request, late)
            if sent_s > connection.heard_s:
                self._lose(connection, ConnectionResetError("the node has stopped answering"))

    def _take(self, connection: Connection) -> None:
        fatal: Exception | None = None
        answers = connection.receive()
        answered_s = connection.heard_s
        for pending, answer in answers:
            is_over = self._end(pending.request, answer, answered_s)
            if isinstance(answer, Exception) and (is_over or isinstance(answer, OSError)):
                fatal = answer
        if fatal is not None:
            self._lose(connection, fatal)

    def _fail(self, request: object, error: Exception) -> None:
        self._end(request, error, time.perf_counter())

    def await_connection(self, timeout_s: float) -> None:
        """Wait until a node is connected. Raises the last error if none connects in time, or if one refuses
        the statements."""
        until_s = time.perf_counter() + timeout_s
        while True:
            self._joined.clear()
            self._refresh()
            if self._connections:
                return
            left_s = until_s - time.perf_counter()
            if left_s <= 0 or isinstance(self._failure, InvalidRequest):
                raise self._failure
            self._joined.wait(min(left_s, RECONNECT_INTERVAL_S))

    def _choose(self, partition: bytes | None) -> Connection | None:
        connections = list(self._connections.values())
        if not connections:
            return None
        if partition is None or len(connections) == 1:
            return connections[next(self._turn) % len(connections)]
        by_node = {connection.node: connection for connection in connections}
        for node in self._topology.replicas(partition):
            if node in by_node:
                connection = by_node[node]
                break
        else:
            connection = connections[next(self._turn) % len(connections)]
        self._by_partition[partition] = connection
        return connection

    # --- connections

    def _refresh(self) -> None:
        """Take over connections from the background, and changes of the cluster."""
        version = self._topology.version
        if version != self._version:
            self._version = version
            nodes = frozenset(self._topology.nodes())
            new, self._wanted = nodes - self._wanted, nodes
            for node in new:
                self._reconnect(node)
            self._by_partition.clear()
        self._take_joining()

    def _take_joining(self) -> None:
        while self._joining:
            connection = self._joining.popleft()
            if any(connected.node == connection.node for connected in self._connections.values()):
                connection.close()
                continue
            self._connections[connection.descriptor] = connection
            self.watch(connection.descriptor)
            self._by_partition.clear()

    def _lose(self, connection: Connection, error: Exception) -> None:
        node = connection.node
        if self._connections.pop(connection.descriptor, None) is None:
            return
        self._by_partition.clear()
        self.forget(connection.descriptor)
        connection.close()
        error = self._failure = _name_node(node, error)
        for pending in list(connection.pending.values()):
            self._fail(pending.request, error)
        if node in self._wanted:
            self._reconnect(node)

    def _reconnect(self, node: Node) -> None:
        threading.Thread(
            target=self._keep_trying, args=[node], name="reconnect", daemon=True
        ).start()

    def _keep_trying(self, node: Node) -> None:
        while node in self._wanted:
            try:
                if self._attempt(node):
                    return
            except Exception as error:  # noqa: BLE001 - it would end this thread unseen
                _log.exception("connecting to %s failed unexpectedly", node)
                self._failure = error
            if self._closed.wait(RECONNECT_INTERVAL_S):
                return

    def _attempt(self, node: Node) -> bool:
        """Connect once, in any thread."""
        try:
            connection = self._connect(node)
        except ERRORS as error:
            self._failure = _name_node(node, error)
            self._joined.set()
            return False
        with self._lock:
            if self._closed.is_set():
                connection.close()
            else:
                self._joining.append(connection)
                self._joined.set()
        return True


def _name_node(node: Node, error: Exception) -> Exception:
    """The error, with the node's name; the driver's errors have it already."""
    if isinstance(error, OSError):
        return ConnectionError(f"{node}: {one_line(error)}")
    return error


class PooledChannel(Channel):
    """Sends requests over a pool, whose nodes come from a session of the driver's."""

    _pool: ConnectionPool | None = None

    @property
    def pool(self) -> ConnectionPool:
        """The connections of an open channel."""
        assert self._pool is not None
        return self._pool

    @property
    @abstractmethod
    def session(self) -> ClusterSession:
        """The driver's session."""

    @abstractmethod
    def end(self, request: Any, answer: Reply | Exception, arrived_s: float) -> bool:
        """How a request to a node ended; see `End`."""

    def connect_pool(
        self, topology: Topology, connect: Callable[[Node], Connection], timeout_s: float
    ) -> None:
        """Connect to all nodes; SimulatorError with the server's name and a remedy if all connections
        fail."""
        self._pool = ConnectionPool(topology, connect, timeout_s, self.end)
        try:
            self._pool.open()
        except ERRORS as error:
            raise self.session.refuse(error) from error

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def poll(self, timeout_s: float) -> Sequence[Completion]:
        return self.pool.poll(timeout_s)

    def recover(self, request: Request) -> bool:
        try:
            self.pool.await_connection(RECONNECT_S)
        except ERRORS as error:
            raise self.session.translate(error) from error
        return False


class CassandraWriter(PooledChannel, Writer):
    """A writer with prepared INSERTs. Its session knows the cluster's nodes."""

    encoder: CassandraEncoder

    def __init__(self, module: Cassandra) -> None:
        encoder = module.encoder(module.options, module.job)
        super().__init__(encoder)
        self.max_in_flight = module.options.in_flight(module.job.load)
        self._module = module
        self._session: ClusterSession | None = None
        self._operation = (BatchMessage if encoder.batched else ExecuteMessage).opcode
        self._statements = encoder.insert_statements(module.options.name_table)

    @property
    def session(self) -> ClusterSession:
        assert self._session is not None
        return self._session

    def open(self) -> None:
        session = self._session = self._module.connect()
        names: dict[str, Prepared] = {}
        self.connect_pool(
            session.keep_topology(),
            lambda node: session.connect(node, self._statements, names),
            self._module.options.request_timeout,
        )
        session.expects_tables = True
        self.encoder.use_statements([names[text] for text in self._statements], session.version)

    def close(self) -> None:
        super().close()
        if self._session is not None:
            self._session.close()
            self._session = None

    def submit(self, request: Request) -> None:
        data: Insert = request.data
        self.pool.send(data.partition, self._operation, data.body, request, request.deadline_s)

    def end(self, request: Request, answer: Reply | Exception, arrived_s: float) -> bool:
        if not isinstance(answer, Exception):
            self.pool.found.append(Completion(request, request.events, arrived_s))
            return False
        error = self.session.translate(answer)
        self.pool.found.append(Completion(request, 0, arrived_s, error))
        # INSERTs are prepared when a connection is opened.
        return isinstance(answer, PreparedQueryNotFound)
