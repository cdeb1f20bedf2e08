"""Sessions with the data nodes, statements, and what an error means."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import CONNECTION_LOST, connection_lost
from .._base.http import CONNECT_TIMEOUT_S
from .._base.http_connection import HungUpInTls, NoAnswer, TlsRefused, make_tls_context
from .._base.options import TRUST_REMEDY
from ..base import Job
from ..waiting import TIMEOUTS
from .answers import Row
from .connection import Connection
from .errors import ServerError, translate
from .options import IotdbOptions, Model
from .thrift import ThriftError

ERRORS = (OSError, NoAnswer, ThriftError, ServerError)
"""All that a connection raises."""

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
"""What SHOW VARIABLES calls a setting -> its name in the files; the cluster's value is the one in effect."""


class Connector:
    """Makes sessions with the data nodes, which get them in turn."""

    def __init__(self, options: IotdbOptions, job: Job) -> None:
        self._options = options
        self._job = job
        self._reached = False
        """Whether there was a session before."""
        self._turn = itertools.count()
        self._configuration = {
            "version": "V_1_0",
            "sql_dialect": options.model,
            # Nobody asks for it but who reads the wire.
            "client": f"iot-benchmark {job.run_id}",
        }
        if options.model is Model.TABLE:
            # There need be none of that name yet. Paths name theirs.
            self._configuration["db"] = options.database

    @cached_property
    def _tls(self) -> ssl.SSLContext | None:
        """Whom to trust."""
        options = self._options
        return make_tls_context(options.ca_certs, options.verify_certs) if options.tls else None

    def connect(self) -> Connection:
        """A session with the next node that can be reached. Raises Retryable or SimulatorError."""
        hosts = self._options.host
        first = next(self._turn)
        for number in range(len(hosts)):
            address = (hosts[(first + number) % len(hosts)], self._options.port)
            try:
                found = Connection(
                    address,
                    min(CONNECT_TIMEOUT_S, self._options.request_timeout_s),
                    (self._options.username, self._options.password),
                    self._configuration,
                    self._job.stamps_arrivals,
                    self._tls,
                )
            except ERRORS as error:
                failure = self.interpret(error, address)
                if not isinstance(failure, Retryable) or number == len(hosts) - 1:
                    raise failure from error
            else:
                self._reached = True
                return found
        raise AssertionError

    def connect_first(self) -> Connection:
        """The first session, for which nothing is tried again: SimulatorError says what to check."""
        try:
            return self.connect()
        except Retryable as error:
            raise SimulatorError(
                f"can't connect to IoTDB at {error}; check that the server runs, and host, port"
                " and tls"
            ) from error

    def interpret(
        self, error: Exception, address: tuple[str, int] | None = None
    ) -> Retryable | SimulatorError:
        """What an error of a session means."""
        if isinstance(error, ServerError):
            return translate(error, self._options, self._job)
        where = f"{address[0]}:{address[1]}" if address else self._options.servers
        # A node that was talked to, and hangs up now, is one that ends.
        if isinstance(error, TlsRefused) and not (self._reached and isinstance(error, HungUpInTls)):
            return SimulatorError(
                f"no TLS with IoTDB at {where}: {error}; check tls, and {TRUST_REMEDY}"
            )
        if isinstance(error, TIMEOUTS):
            return Retryable(
                "timeout" if address is None else CONNECTION_LOST, f"{where}: no answer"
            )
        return connection_lost(f"{where}: {one_line(error)}")


class Server:
    """One session, for everything but writing. It is made again when it is asked after it was lost."""

    def __init__(self, options: IotdbOptions, job: Job) -> None:
        """Connects. Raises SimulatorError."""
        self._options = options
        self._connector = Connector(options, job)
        self._connection: Connection | None = self._connector.connect_first()

    def close(self) -> None:
        """End the session; no error if that was lost already."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, statement: str, timeout_s: float) -> list[Row]:
        """All rows of a statement. Raises Retryable or SimulatorError."""
        with self._session() as connection:
            return connection.ask(statement, timeout_s)

    def _session(self) -> _Guard:
        if self._connection is None:
            self._connection = self._connector.connect()
        return _Guard(self, self._connection)

    def lose(self, error: Exception) -> Retryable | SimulatorError:
        """What an error means; after most of them, the connection is of no use."""
        if not isinstance(error, ServerError) and self._connection is not None:
            self._connection.cut()
            self._connection = None
        return self._connector.interpret(error)

    def describe(self, database: str) -> dict[str, Any]:
        """Version, and the settings that change a result."""
        timeout_s = self._options.database_timeout_s
        [(version, *_)] = self.ask("SHOW VERSION", timeout_s)
        nodes = self.ask("SHOW DATANODES", timeout_s)
        with self._session() as connection:
            template, own = connection.read_configuration(nodes[0][0])
        found = dict(_read_properties(template)) | dict(_read_properties(own))
        settings: dict[str, Any] = {name: found[name] for name in _SETTINGS if name in found}
        for name, value in self.ask("SHOW VARIABLES", timeout_s):
            if name in _OF_CLUSTER:
                settings[_OF_CLUSTER[name]] = value
        return {
            "version": f"IoTDB {version}",
            "settings": {"model": str(self._options.model), **settings, "nodes": len(nodes)}
            | self.describe_database(database),
        }

    def describe_database(self, database: str) -> dict[str, Any]:
        """Its own settings; none if there is no such database."""
        # The table model has a time to live there in addition.
        before = 2 if self._options.model is Model.TABLE else 1
        for row in self.ask("SHOW DATABASES", self._options.database_timeout_s):
            if row[0] == database:
                schema_copies, copies = row[before : before + 2]
                return {
                    "data_replication_factor": copies,
                    "schema_replication_factor": schema_copies,
                    "time_partition_interval": row[4],
                }
        return {}


class _Guard:
    """Translates what goes wrong with a server's session."""

    def __init__(self, server: Server, connection: Connection) -> None:
        self._server = server
        self._connection = connection

    def __enter__(self) -> Connection:
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ERRORS):
            raise self._server.lose(error) from error


def _read_properties(text: str) -> Iterator[tuple[str, str]]:
    """The settings of a file of properties."""
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign and not name.startswith("#"):
            yield name.strip(), value.strip()
