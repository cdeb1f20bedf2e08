"""A pool of connections to a cluster: each request goes to a node that has its partition."""

from __future__ import annotations

import itertools
import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from cassandra import InvalidRequest, OperationTimedOut
from cassandra.protocol import BatchMessage, ExecuteMessage, PreparedQueryNotFound

from ...errors import one_line
from ..kit.exactly_once import ConnectedWriter
from ..sending import LAST_ANSWERS_S, Outcome, Payload
from ..waiting import Poll, limit_wait
from .encoding import CassandraEncoder, Prepared, Request
from .server import ERRORS, RECONNECT_INTERVAL_S, RECONNECT_S, ClusterSession
from .wire import Connection, Node, Pending

if TYPE_CHECKING:
    from . import Cassandra

_log = logging.getLogger(__name__)


class Topology(Protocol):
    """What is known of a cluster at the moment."""

    def nodes(self) -> Sequence[Node]:
        """The nodes to connect to."""

    def replicas(self, partition: bytes) -> Sequence[Node]:
        """The nodes that have a partition, beginning with the one to ask first; may name others, too."""

    @property
    def version(self) -> int:
        """Another number whenever nodes came or went."""


class ConnectionPool:
    """Connections to the nodes of a cluster, one to each. A request goes to a node that has its partition, if
    one is connected, otherwise to any. A lost connection is made again, in the background. For one thread;
    only connecting is done by others."""

    def __init__(
        self,
        topology: Topology,
        connect: Callable[[Node], Connection],
        timeout_s: float,
        meaning: Callable[[Exception], Exception],
    ) -> None:
        """`connect`: raises what the driver does; `timeout_s`: for an answer; `meaning`: of an error
        for whoever sent the request."""
        self._topology = topology
        self._connect = connect
        self._timeout_s = timeout_s
        self._meaning = meaning
        self._version = topology.version
        self._wanted: frozenset[Node] = frozenset()
        self._connections: dict[int, Connection] = {}
        """Connections by the descriptors that poll has; one to a node at most."""
        self._by_partition: dict[bytes | None, Connection] = {}
        """What `_choose` found, until a connection comes or goes."""
        self._turn = itertools.count()
        self._poll = Poll()
        self._ended: list[Outcome[Any]] = []
        self._late_at_s = 0.0
        self._lock = threading.Lock()
        self._joining: deque[Connection] = deque()
        """Connections that were made in the background."""
        self._joined = threading.Event()
        self._failure: Exception = ConnectionResetError("no node is known")
        self._closed = threading.Event()

    def open(self) -> None:
        """Connect to all nodes. Raises the last one's error if none could be connected to."""
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
        with self._lock:
            self._closed.set()
        self._take_joining()
        for connection in self._connections.values():
            connection.close()

    # --- requests

    def submit(
        self,
        partition: bytes | None,
        operation: int,
        body: bytes,
        request: object,
        events: int | None,
    ) -> None:
        """Send a request; `outcomes` tells how it ended, and sends what its node doesn't take at once:
        requests to other nodes must not wait for that. `partition`: None: of no certain one; `events`: as
        `Pending` has it."""
        if self._joining or self._topology.version != self._version:
            self._refresh()
        connection = self._by_partition.get(partition) or self._choose(partition)
        if connection is None:
            self._end(request, self._failure)
            return
        try:
            sent_s = time.perf_counter()
            pending = Pending(request, events, sent_s, sent_s + limit_wait(self._timeout_s))
            connection.send(operation, body, pending)
        except OSError as error:
            self._lose(connection, error)
            return
        if connection.full:
            self._poll.register(connection.fileno(), select.POLLIN | select.POLLOUT)

    def outcomes(self, timeout_s: float | None) -> list[Outcome[Any]]:
        """As `Requester.outcomes`; the result of a request is its events, or a `Reply` if it has none."""
        until_s = None if timeout_s is None else time.perf_counter() + timeout_s
        while not self._ended:
            left_s = None if until_s is None else until_s - time.perf_counter()
            if left_s is not None and left_s <= 0:
                break
            self._serve(left_s)
        outcomes, self._ended = self._ended, []
        return outcomes

    def finish(self) -> None:
        """Wait for all answers, `LAST_ANSWERS_S` at most."""
        until_s = time.perf_counter() + min(LAST_ANSWERS_S, self._timeout_s)
        while any(connection.pending for connection in self._connections.values()):
            left_s = until_s - time.perf_counter()
            if left_s <= 0:
                break
            self._serve(left_s)

    def await_connection(self, timeout_s: float) -> None:
        """Wait until a node is connected. Raises what `meaning` says if none is in time, or if one
        refuses what is to be sent."""
        until_s = time.perf_counter() + timeout_s
        while True:
            self._joined.clear()
            self._refresh()
            if self._connections:
                return
            left_s = until_s - time.perf_counter()
            if left_s <= 0 or isinstance(self._failure, InvalidRequest):
                raise self._meaning(self._failure)
            self._joined.wait(min(left_s, RECONNECT_INTERVAL_S))

    def _choose(self, partition: bytes | None) -> Connection | None:
        connections = list(self._connections.values())
        if not connections:
            return None
        if partition is None:
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

    def _serve(self, timeout_s: float | None) -> None:
        """Send and receive what can be, and give up what is late; wait until something can be, `timeout_s` at
        most."""
        wait_s = self._late_at_s - time.perf_counter()
        if timeout_s is not None:
            wait_s = min(wait_s, timeout_s)
        for descriptor, event in self._poll.wait(wait_s):
            connection = self._connections[descriptor]
            try:
                if event & select.POLLOUT:
                    connection.flush()
                    if not connection.full:
                        self._poll.register(descriptor, select.POLLIN)
                if event & ~select.POLLOUT:
                    self._take(connection)
            except OSError as error:
                self._lose(connection, error)
        now_s = time.perf_counter()
        if now_s < self._late_at_s:
            return
        self._late_at_s = now_s + min(1.0, self._timeout_s / 4)
        for connection in list(self._connections.values()):
            sent_s = 0.0
            for pending in connection.give_up(now_s):
                sent_s = max(sent_s, pending.sent_s)
                reason = f"no answer within {pending.late_s - pending.sent_s:.3g} s"
                late = OperationTimedOut({str(connection.node): reason}, connection.node)
                self._end(pending.request, late)
            if sent_s > connection.heard_s:
                self._lose(connection, ConnectionResetError("the node has stopped answering"))

    def _take(self, connection: Connection) -> None:
        fatal: Exception | None = None
        answers = connection.receive()
        answered_s = connection.heard_s
        for pending, answer in answers:
            if not isinstance(answer, Exception):
                result = answer if pending.events is None else pending.events
                self._ended.append(Outcome(pending.request, answered_s, result))
            else:
                self._end(pending.request, answer)
                # An INSERT is prepared when a connection is made; whoever asks does it again itself.
                is_forgotten = isinstance(answer, PreparedQueryNotFound)
                if isinstance(answer, OSError) or (is_forgotten and pending.events is not None):
                    fatal = answer
        if fatal is not None:
            self._lose(connection, fatal)

    def _end(self, request: object, error: Exception) -> None:
        self._ended.append(Outcome(request, time.perf_counter(), self._meaning(error)))

    # --- connections

    def _refresh(self) -> None:
        """Take over what the background has made, and what is new of the cluster."""
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
            self._connections[connection.fileno()] = connection
            self._poll.register(connection.fileno(), select.POLLIN)
            self._by_partition.clear()

    def _lose(self, connection: Connection, error: Exception) -> None:
        node = connection.node
        del self._connections[connection.fileno()]
        self._by_partition.clear()
        self._poll.unregister(connection.fileno())
        connection.close()
        error = self._failure = _name_node(node, error)
        for pending in connection.pending.values():
            self._end(pending.request, error)
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
    """The error, with the node's name; the driver's have it already."""
    if isinstance(error, OSError):
        return ConnectionError(f"{node}: {one_line(error)}")
    return error


class CassandraWriter(ConnectedWriter[ClusterSession]):
    """A writer with prepared INSERTs. Its session tells of the cluster's nodes."""

    encoder: CassandraEncoder
    _pool: ConnectionPool | None = None

    def __init__(self, encoder: CassandraEncoder, module: Cassandra) -> None:
        super().__init__(encoder, module)
        self._operation = (BatchMessage if encoder.batched else ExecuteMessage).opcode
        self._statements = encoder.insert_statements(module.options.name_table)
        self._timeout_s = module.options.request_timeout

    def open(self) -> None:
        super().open()
        session = self.connection
        names: dict[str, Prepared] = {}
        self._pool = ConnectionPool(
            session.keep_topology(),
            lambda node: session.connect(node, self._statements, names),
            self._timeout_s,
            session.translate,
        )
        try:
            self._pool.open()
        except ERRORS as error:
            raise session.refuse(error) from error
        session.expects_tables = True
        self.encoder.use_statements([names[text] for text in self._statements], session.version)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        super().close()

    @property
    def pool(self) -> ConnectionPool:
        """The connections of an open writer."""
        assert self._pool is not None
        return self._pool

    def send(self, payload: Payload) -> int:
        self.submit(payload, None)
        [outcome] = self.outcomes(None)
        if isinstance(outcome.result, BaseException):
            raise outcome.result
        return outcome.result

    def submit(self, payload: Payload, request: object) -> None:
        data: Request = payload.data
        self.pool.submit(data.partition, self._operation, data.body, request, payload.events)

    def outcomes(self, timeout_s: float | None) -> Sequence[Outcome[int]]:
        return self.pool.outcomes(timeout_s)

    def stop_submitting(self) -> None:
        self.pool.finish()

    def recover(self, payload: Payload) -> bool:
        self.pool.await_connection(RECONNECT_S)
        return False
