"""Sessions with the data nodes: statements, the meaning of errors, and the size on disk."""

from __future__ import annotations

import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ...contract import Allocation, Storage
from ...errors import Retryable, SimulatorError, one_line
from ..base import Job
from ..kit.http import CONNECT_TIMEOUT_S
from ..kit.http_answer import NoAnswer
from ..kit.http_connection import HandshakeCut, TlsRefused
from ..kit.module import CONNECTION_LOST, connection_lost, missing_table
from ..kit.options import TRUST_REMEDY
from ..kit.series import Row
from ..waiting import TIMEOUTS
from .connection import Connection, Question, ServerError, Steps
from .schema import Model
from .thrift import Piece, ThriftError

if TYPE_CHECKING:
    from . import IotdbOptions

T = TypeVar("T")

ERRORS = (OSError, NoAnswer, ThriftError, ServerError)
"""All errors that a connection raises."""

# Names of https://iotdb.apache.org/UserGuide/latest/Reference/DataNode-Config-Manual.html
_SETTINGS = (
    "wal_mode", "wal_async_mode_fsync_delay_in_ms", "wal_sync_mode_fsync_delay_in_ms",
    "wal_buffer_size_in_byte", "wal_file_size_threshold_in_byte", "enable_wal_compression",
    "wal_throttle_threshold_in_byte", "data_region_consensus_protocol_class",
    "data_replication_factor", "schema_replication_factor", "time_partition_interval",
    "series_slot_num", "data_region_per_data_node", "default_data_region_group_num_per_database",
    "data_region_group_extension_policy", "timestamp_precision", "read_consistency_level",
    "enable_mem_control", "memtable_size_threshold", "max_number_of_points_in_page",
    "target_chunk_size_in_byte", "enable_seq_memtable_timed_flush",
    "enable_unseq_memtable_timed_flush", "enable_separate_data", "compressor",
    "default_float_encoding", "default_double_encoding", "default_int32_encoding",
    "default_int64_encoding", "compaction_thread_count", "enable_seq_space_compaction",
    "dn_rpc_max_concurrent_client_num", "datanode_memory_proportion",
)  # fmt: skip
_OF_CLUSTER = {
    "DataReplicationFactor": "data_replication_factor",
    "SchemaReplicationFactor": "schema_replication_factor",
    "DataRegionConsensusProtocolClass": "data_region_consensus_protocol_class",
    "TimePartitionInterval": "time_partition_interval",
    "ReadConsistencyLevel": "read_consistency_level",
    "TimestampPrecision": "timestamp_precision",
}
"""Name of a setting in SHOW VARIABLES -> its name in the files; the cluster's value is the one in effect."""

_PASSES = {
    306: "dispatch",
    602: "not_ready",
    606: "write_rejected",
    709: "out_of_memory",
    712: "internal_timeout",
    713: "internal_retry",
    905: "leader_change",
    906: "no_region",
    1007: "node_away",
    1010: "node_away",
}
"""Code -> what it is counted as, if the same request may work a little later."""
_NO_REGION = "no available"
"""The text about regions, also with the general code 301, while the nodes of a database's regions don't
answer."""
_MISSING = (500, 508, 550)
_REFUSED = (801, 802, 803, 804)

_UNITS = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_SIZE = re.compile(rf"(\d+\.?\d*) ({'|'.join(_UNITS)})")
_SOURCE = (
    "SHOW DATA REGIONS of the whole database, after FLUSH: TsFiles, to about three digits;"
    " without the write-ahead log"
)
# target_chunk_size of iotdb-system.properties.
ALLOCATION = Allocation(
    unit_bytes=1_600_000, cause="IoTDB later merges chunks into chunks of 1.6 MB"
)
_APART_S = 11.0
"""Sizes are reported to the config node every ten seconds."""
_UNDER_WAY_S = 1.0
"""A report so soon after a flush may be older than the flush."""
_PAUSE_S = 0.2


class Server:
    """The data nodes, through sessions with each in turn. Threads may share it: each request has a session to
    itself, and lost sessions are replaced."""

    def __init__(self, options: IotdbOptions, job: Job) -> None:
        """Opens one session, without retries: SimulatorError says what to check."""
        self._options = options
        self._job = job
        self._tls = options.make_context() if options.tls else None
        self._reached = False
        """Whether there has been a session before."""
        self._turn = itertools.count()
        self._configuration = {
            "version": "V_1_0",
            "sql_dialect": options.model,
            # For administrators who read the traffic.
            "client": f"iot-benchmark {job.run_id}",
        }
        if options.model is Model.TABLE:
            # No such database needs to exist yet. Paths name theirs.
            self._configuration["db"] = options.database
        # Threads may take and add without a lock.
        self._idle: deque[Connection] = deque()
        self._lost: deque[None] = deque()
        """One for each session that has to be replaced."""
        try:
            self._idle.append(self.connect())
        except Retryable as error:
            raise SimulatorError(
                f"can't connect to IoTDB at {error}; check that the server runs, and host, port"
                " and tls"
            ) from error

    def fill(self, count: int) -> None:
        """Open sessions up to this number. Raises as `connect`."""
        while len(self._idle) < count:
            self._idle.append(self.connect())

    def restore(self) -> None:
        """Replace the lost sessions. Raises as `connect`."""
        while self._lost:
            self._idle.append(self.connect())
            self._lost.pop()

    def close(self) -> None:
        """Close idle sessions; no error if one was lost already."""
        while self._idle:
            self._idle.pop().close()

    def connect(self) -> Connection:
        """A session with the next node that can be reached. Raises Retryable or SimulatorError."""
        options = self._options
        return self.reach(
            lambda address: Connection(
                address,
                min(CONNECT_TIMEOUT_S, options.request_timeout_s),
                (options.username, options.password),
                self._configuration,
                self._job.stamps_arrivals,
                self._tls,
            )
        )

    def reach(self, make: Callable[[tuple[str, int]], T]) -> T:
        """The result of `make` for the address of the next node that can be reached. It raises some of
        `ERRORS`; this raises Retryable or SimulatorError."""
        hosts = self._options.host
        first = next(self._turn)
        for number in range(len(hosts)):
            address = (hosts[(first + number) % len(hosts)], self._options.port)
            try:
                made = make(address)
            except ERRORS as error:
                failure = self.interpret(error, address)
                if not isinstance(failure, Retryable) or number == len(hosts) - 1:
                    raise failure from error
            else:
                self._reached = True
                return made
        raise AssertionError

    def take(self) -> Connection:
        """A session, to be given back or given up. Raises as `connect`."""
        # No check first: another thread could take the last session in between.
        try:
            session = self._idle.pop()
        except IndexError:
            session = self.connect()
            with suppress(IndexError):
                self._lost.pop()
            return session
        if not session.is_quiet:
            self.give_up(session)
            raise connection_lost("a node hung up, or sent an answer that nobody asked for")
        return session

    def give_back(self, session: Connection, error: BaseException | None = None) -> None:
        """Keep a session for the next request, unless something may still arrive after this error, which
        would be taken for the next answer."""
        if error is None or isinstance(error, ServerError):
            self._idle.append(session)
        else:
            self.give_up(session)

    def give_up(self, session: Connection) -> None:
        """Close a session, which is to be replaced."""
        session.cut()
        self._lost.append(None)

    def use(self, begin: Callable[[Connection], Steps[T]], timeout_s: float) -> T:
        """The result of a request on a session of its own. `timeout_s`: for each answer. Raises Retryable or
        SimulatorError."""
        session = self.take()
        try:
            result = session.run(begin(session), timeout_s)
        except BaseException as error:
            self.give_back(session, error)
            if isinstance(error, ERRORS):
                raise self.interpret(error) from error
            raise
        self.give_back(session)
        return result

    def interpret(
        self, error: Exception, address: tuple[str, int] | None = None
    ) -> Retryable | SimulatorError:
        """What an error of a session means."""
        if isinstance(error, ServerError):
            kind = "no_region" if _NO_REGION in str(error) else _PASSES.get(error.code)
            if kind or error.needs_retry:
                return Retryable(kind or f"status_{error.code}", str(error))
            if error.code in _MISSING:
                return missing_table(f"IoTDB: {error}", self._job)
            if error.code in _REFUSED:
                return SimulatorError(
                    f"IoTDB refused {self._options.username} at {self._options.servers}: {error};"
                    " check username and password"
                )
            return SimulatorError(f"IoTDB refused a request: {error}")
        where = f"{address[0]}:{address[1]}" if address else self._options.servers
        # A node that was reachable and closes the connection now is shutting down.
        if isinstance(error, TlsRefused) and not (
            self._reached and isinstance(error, HandshakeCut)
        ):
            return SimulatorError(
                f"no TLS with IoTDB at {where}: {error}; check tls, and {TRUST_REMEDY}"
            )
        if isinstance(error, TIMEOUTS):
            return Retryable(
                "timeout" if address is None else CONNECTION_LOST, f"{where}: no answer"
            )
        return connection_lost(f"{where}: {one_line(error)}")

    def ask(self, statement: str) -> list[Row]:
        """All rows of a statement. Raises as `use`."""
        limit_s, question = self._options.database_timeout_s, Question(statement)
        return self.use(lambda session: session.fetch(question, limit_s), limit_s).read()

    def insert(self, requests: Sequence[Sequence[Piece]], events: int) -> None:
        """Store tablets: see `Connection.insert`. Raises as `use`."""
        limit_s = self._options.request_timeout_s
        self.use(lambda session: session.insert(requests, events), limit_s)

    def describe(self) -> dict[str, Any]:
        """Version, and the settings that affect a result."""
        [(version, *_)] = self.ask("SHOW VERSION")
        nodes = self.ask("SHOW DATANODES")
        template, own = self.use(
            lambda session: session.read_configuration(nodes[0][0]),
            self._options.database_timeout_s,
        )
        properties = dict(_read_properties(template)) | dict(_read_properties(own))
        settings = {name: properties[name] for name in _SETTINGS if name in properties}
        settings |= {
            _OF_CLUSTER[name]: value
            for name, value in self.ask("SHOW VARIABLES")
            if name in _OF_CLUSTER
        }
        return {
            "version": f"IoTDB {version}",
            "settings": {"model": str(self._options.model), **settings, "nodes": len(nodes)}
            | self.describe_database(),
        }

    def describe_database(self) -> dict[str, Any]:
        """The database's own settings; none if there is no such database."""
        # The table model also has a time to live.
        before = 2 if self._options.model is Model.TABLE else 1
        for row in self.ask("SHOW DATABASES"):
            if row[0] == self._options.place:
                schema_copies, copies = row[before : before + 2]
                return {
                    "data_replication_factor": copies,
                    "schema_replication_factor": schema_copies,
                    "time_partition_interval": row[4],
                }
        return {}

    def read_storage(self) -> Storage:
        """The size of the database's TsFiles, once everything is in them and reported to the config node;
        SimulatorError if the server doesn't tell."""
        self.ask("FLUSH")
        flushed = time.monotonic()
        before = self._list_sizes()
        until = flushed + _APART_S
        while (now := time.monotonic()) < until:
            # There is no event for it.
            time.sleep(_PAUSE_S)
            current = self._list_sizes()
            if current != before:
                if now > flushed + _UNDER_WAY_S:
                    break
                before, until = current, now + _APART_S
        texts = self._list_sizes()
        sizes = list(map(_SIZE.fullmatch, texts))
        if not texts or None in sizes:
            raise SimulatorError(
                f"IoTDB doesn't report the size of database {self._options.place}: its regions say"
                f" {texts}"
            )
        total = sum(round(float(size[1]) * _UNITS[size[2]]) for size in sizes if size)
        copies = self.describe_database()["data_replication_factor"]
        return Storage(total_bytes=total, copies=int(copies), source=_SOURCE)

    def _list_sizes(self) -> list[str]:
        """The rows of SHOW DATA REGIONS for each copy of the database's regions."""
        regions = self.ask("SHOW DATA REGIONS")
        return [str(row[-1]) for row in regions if row[3] == self._options.place]


def _read_properties(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and not name.startswith("#"):
            yield name.strip(), value.strip()
