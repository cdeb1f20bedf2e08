"""ArangoDB 3.11 and later, a single server or a cluster's coordinators.

The official client python-arango does everything but writing; it is given an HTTP layer of ours
(`HTTPClient`, its own extension point), over which writers send bodies that are built in bulk. Its own
layer and `insert_many` would serialise each document again, at 20 times the cost.

Each event is stored exactly once, however a connection dies
-----------------------------------------------------------
A request with many documents is no transaction: each is stored or refused alone, and the answer says
which. What an error leaves open is what became of a request whose answer never came:

* key `client`: the document's `_key` is made of the event. The request is sent again as it is; a
  document that is there already is refused (or, by the import API, ignored), which then means that
  the first try has stored it.
* keys `db` and `uuid`: the server makes the keys and would store a second copy. The writer looks up by
  their natural keys which of the request's events are stored, until twice in a row it finds the same,
  and leaves only the others to be sent again.

One thing can't be promised with `db` and `uuid`: a server so busy that it begins with the lost request only
after the look-ups stores it then, as ArangoDB doesn't tell which requests are under way. The count after
the run shows it. With `client` it can't happen.

Documents have JSON's numbers, of 64 bits. Sums are computed in floating point, so that those of whole
numbers are exact to 2**53.

What is on disk are the figures of the collections, RocksDB's estimates, after a flush of what is in memory;
in a cluster those of the leaders alone. To compact, the server is asked to compact all that it has, which
only superusers may: nobody who logs in by a name. Left out are the write-ahead log, and in a cluster the
followers' copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from arango.collection import StandardCollection

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...workloads.base import ColumnType
from ...workloads.queries import Bound
from ..base import Capabilities, Encoding, Job, Module, Query, Support, claim_queries
from ..shared.errors import nothing_to_query
from .encoding import DocumentEncoder, InsertMethod
from .options import ArangoOptions, EncodingOptions
from .queries import SHAPES, compile_query
from .server import Connection
from .storage import compact_all, read_storage
from .writer import ArangoWriter

# A document has JSON's types.
_JSON_TYPES = {
    **dict.fromkeys(ColumnType, "number"),
    ColumnType.TEXT: "string",
    ColumnType.BOOL: "boolean",
    ColumnType.JSON: "any",
}


class Arangodb(Module[ArangoOptions, EncodingOptions]):
    """ArangoDB's document store."""

    name = "arangodb"
    PACKAGES = ("python-arango", "httptools")
    options_model = ArangoOptions
    encoding_options_model = EncodingOptions
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "sync": Condition.DURABILITY,
        "role": Condition.REPLICATION,
        "replication_factor": Condition.REPLICATION,
        "write_concern": Condition.REPLICATION,
        "shard_count": Condition.REPLICATION,
        "key_options": Condition.KEY,
    }
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMethod, Support.FULL),
        primary_keys={
            PrimaryKey.DB: Support.FULL,
            PrimaryKey.CLIENT: Support.FULL,
            PrimaryKey.UUID: Support.FULL,
            # A cluster has no numbers in sequence, and no document is without a key.
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.NONE: Support.UNSUPPORTED,
        },
        multiple_tables=Support.FULL,
        queries=claim_queries(SHAPES),
        shapes=SHAPES,
        indices=Support.FULL,
        column_types=_JSON_TYPES,
        in_flight=dict.fromkeys(InsertMethod, Support.FULL),
        missing_values=True,
    )
    ENCODINGS = (
        Encoding("document", {"insert_method": "document"}),
        Encoding("import", {"insert_method": "import"}),
        Encoding("single", {"insert_method": "single"}, batched=False),
    )

    def __init__(self, options: ArangoOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        self._connection: Connection | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> DocumentEncoder:
        return DocumentEncoder(job, options.mode(batch))

    def writer(self, batch: int, prefill: bool = False) -> ArangoWriter:
        options = self.options
        if prefill and options.insert_method is InsertMethod.SINGLE:
            options = options.model_copy(update={"insert_method": None})
        return ArangoWriter(self.encoder(options, self.job, batch), options, self.job)

    def open(self) -> None:
        self._connection = Connection(self.options, self.job)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare(self) -> None:
        connection = self._connect()
        delete = partial(connection.database.delete_collection, ignore_missing=True)
        if self.job.clean:
            for table in self.job.all_table_names:
                connection.ask(partial(delete, table))
        uuids = self.job.load.primary_key is PrimaryKey.UUID
        create = partial(
            connection.database.create_collection,
            sync=self.options.sync,
            replication_factor=self.options.replication_factor,
            shard_count=self.options.shard_count,
            key_generator="uuid" if uuids else "traditional",
        )
        for table in self.job.table_names:
            if not self._is_there(table):
                connection.ask(partial(create, table))

    def _is_there(self, table: str) -> bool:
        connection = self._connect()
        return bool(connection.ask(partial(connection.database.has_collection, table)))

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if not self._is_there(table):
            raise nothing_to_query(table, self.job)
        if self.options.create_indices:
            for name, fields in self._indices().items():
                index = {"type": "persistent", "name": name, "fields": fields}
                self._connect().ask(partial(self._collection(table).add_index, index))

    def _indices(self) -> dict[str, list[str]]:
        schema = self.job.schema
        values = [column.name for column in schema.columns if column.type is ColumnType.FLOAT32]
        device = f"{schema.device}.{schema.device_path}" if schema.device_path else schema.device
        indices = {f"{schema.table}_device_ts": [device, schema.time, *values]}
        return indices | ({f"{schema.table}_temp": values} if values else {})

    def count(self) -> int:
        counts: list[Any] = [
            self._connect().ask(self._collection(table).count) for table in self.job.table_names
        ]
        return sum(counts)

    def storage(self) -> Storage:
        timeout_s = self.options.database_timeout_s
        return read_storage(self._connect(), self.job.table_names, timeout_s)

    def compact(self) -> bool:
        compact_all(self._connect(), self.options.database_timeout_s)
        return True

    def compile(self, bound: Bound) -> Query:
        return partial(self._ask_rows, compile_query(bound, self.job.schema))

    def _ask_rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._connect().rows(query)

    def server_info(self) -> dict[str, Any]:
        connection = self._connect()
        version: Any = connection.ask(partial(connection.database.version, details=True))
        settings: dict[str, Any] = {"role": connection.ask(connection.database.role)}
        table = self.job.table_names[0]
        if self._is_there(table):
            found: Any = connection.ask(self._collection(table).properties)
            names = ("sync", "replication_factor", "write_concern", "shard_count", "key_options")
            settings |= {name: found[name] for name in names if name in found}
        edition = version.get("license", "")
        return {"version": f"ArangoDB {version['version']} {edition}".strip(), "settings": settings}

    def _connect(self) -> Connection:
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection

    def _collection(self, table: str) -> StandardCollection:
        return self._connect().database.collection(table)
