"""ArangoDB, a single server or a cluster's coordinators.

The official client python-arango creates collections and indexes and reads settings. It uses our HTTP layer
(through `HTTPClient`, its extension point), which also sends queries and bodies that are built in bulk. Its
own layer and `insert_many` would serialise each document again, at 20 times the cost. `client=official` uses
both, also for queries: see `official`.

Each event is stored exactly once, however a connection dies
-----------------------------------------------------------
A request with many documents is not a transaction: each is stored or refused on its own, and the answer says
which. After an error, only the outcome of a request without an answer is unknown:

* key `client`: the document's `_key` is made from the event. The request is sent again unchanged; a document
  that is already stored is refused (or ignored by the import API): the first attempt stored it.
* keys `db` and `uuid`: the server makes the keys and would store a second copy. The writer looks up the
  request's events by their natural keys until two look-ups in a row agree, and sends only the missing ones
  again.

With `db` and `uuid` one case is not covered: a very busy server may process the lost request only after the
look-ups, since ArangoDB doesn't report which requests are running. The count after the run shows it. It can't
happen with `client`.

Tags in a separate collection (`tags=table`) have the ids as keys. Existing documents are kept, so storing
tags may be repeated. Queries look up the tags of their results by id, in the primary index.

Numbers in documents are JSON's, with 64 bits. Sums are computed in floating point, so sums of integers are
exact up to 2**53.

The size on disk is the sum of the collections' figures (RocksDB's estimates) after a flush of the memory. It
leaves out the write-ahead log and, in a cluster, the followers' copies. Compaction covers all of the server's
data, and only superusers may request it, which no named user is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from numpy.typing import NDArray

from ...conditions import Condition
from ...contract import MIB, Allocation, PrimaryKey, Storage
from ...errors import SimulatorError
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Function, Percentiles
from ...workloads.schema import ID, ColumnType
from ..base import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Job,
    Needed,
    OwnSchema,
    Support,
    support_keys,
)
from ..kit.module import (
    INSERT_REMEDY,
    MARK,
    QUERY_REMEDY,
    CountingModule,
    Found,
    IndexedModule,
    made_otherwise,
    nothing_to_query,
)
from ..options import LEAN, InsertMode
from ..own_statements import JSON_LITERALS, fill_statement
from .encoding import MODES, ArangoOptions, DocumentEncoder, encode_devices
from .queries import SHAPES, compile_query, name_field, write_number

if TYPE_CHECKING:
    from arango.collection import StandardCollection

    from ..kit.http_answer import Answer
    from .server import Connection

# Documents have JSON's types.
_JSON_TYPES = {
    **dict.fromkeys(ColumnType, "number"),
    ColumnType.TEXT: "string",
    ColumnType.BOOL: "boolean",
    ColumnType.JSON: "any",
}


# https://docs.arangodb.com/stable/develop/http-api/collections/#get-the-collection-statistics
_FLUSH = "/_admin/wal/flush?waitForSync=true&waitForCollector=true"
# A coordinator queries the leader of each shard, and no other server.
_SOURCE = (
    "collection figures: RocksDB's estimates of documents and indexes (the primary one, too),"
    " compressed as stored; in a cluster only the shards' leaders, so one copy; without the"
    " write-ahead log"
)
_NOT_FLUSHED = "; memtables could not be flushed and are included uncompressed"

_log = logging.getLogger(__name__)

_SAMPLE = 100
"""Number of documents by which a collection without the mark is recognised."""


def _count_places(settings: Mapping[str, Any]) -> int | None:
    """A shard's leader acknowledges once the followers in sync have the documents, at least `write_concern`
    copies in all."""
    if settings.get("role") in (None, "SINGLE"):
        return 1
    return settings.get("write_concern")


class Arangodb(
    CountingModule[ArangoOptions, "Connection"],
    IndexedModule[ArangoOptions],
):
    """ArangoDB's document store."""

    name = "arangodb"
    PACKAGES = ("python-arango",)
    IMPORTED_LATE = ("arango", f"{__name__}.server")
    options_model = ArangoOptions
    # What the official client supports: https://github.com/arangodb/python-arango#requirements
    OLDEST: ClassVar[Mapping[str, str]] = {"ArangoDB": "3.11"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "sync": Condition.DURABILITY,
        "role": Condition.REPLICATION,
        "replication_factor": Condition.REPLICATION,
        "write_concern": Condition.REPLICATION,
        "shard_count": Condition.REPLICATION,
        "key_options": Condition.SCHEMA,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(f"{__name__}.server:ArangoWriter", f"{__package__}.server:ArangoAsker"),
        "official": Client(
            f"{__name__}.official:OfficialWriter",
            f"{__name__}.official:OfficialArangoAsker",
            packages=("python-arango",),
            ways={
                InsertMode.DOCUMENT: "python-arango's insert_many",
                InsertMode.IMPORT: "python-arango's import_bulk",
                InsertMode.SINGLE: "python-arango's insert",
            },
            in_flight=True,
        ),
    }
    CAPABILITIES = Capabilities(
        own_schema=OwnSchema(reason="a collection has no columns"),
        # https://docs.arangodb.com/stable/develop/http-api/collections/: a sync every 100 ms by default
        durability=Durability(
            {"sync": Needed(("true",), "within rocksdb.sync-interval (100 ms by default)")},
            count_places=_count_places,
        ),
        ageing=Ageing(
            reason="its TTL indexes use today's date, and AQL would remove documents one by one"
        ),
        # https://docs.arangodb.com/stable/components/arangodb-server/options/#--rocksdbwrite-buffer-size
        allocation=Allocation(
            unit_bytes=64 * MIB, cause="RocksDB writes files of 64 MiB, and merges them later"
        ),
        insert_modes=dict.fromkeys(MODES, Support.FULL),
        # A cluster has no sequential numbers, and every document has a key.
        primary_keys=support_keys(PrimaryKey.DB, PrimaryKey.CLIENT, PrimaryKey.UUID),
        shapes=SHAPES,
        percentiles=Percentiles("the nearest rank"),
        statements="AQL",
        indices=Support.FULL,
        column_types=_JSON_TYPES,
        in_flight=dict.fromkeys(MODES, Support.FULL),
        tags_table=Support.FULL,
        rounded=(Function.SUM,),
    )
    ENCODINGS = (
        Encoding("document", {"insert_method": "document"}),
        Encoding("import", {"insert_method": "import"}),
        Encoding("single", {"insert_method": "single"}, batched=False),
    )

    @classmethod
    def encoder(cls, options: ArangoOptions, job: Job) -> DocumentEncoder:
        return DocumentEncoder(job, options.mode(job.load))

    def connect(self) -> Connection:
        from .server import Connection

        return Connection.connect(self.options, self.job)

    def prepare(self) -> None:
        connection = self.connection
        connection.expects_tables = False
        delete = partial(connection.database.delete_collection, ignore_missing=True)
        ours = self.claim_tables()
        if self.job.clean:
            for table in ours:
                connection.ask(partial(delete, table))
        self._check_documents(filter(self._is_there, self.job.table_names), INSERT_REMEDY)
        for table, properties in self._collections().items():
            if not self._is_there(table):
                create = partial(connection.database.create_collection, table, **properties)
                connection.ask(create)
        connection.expects_tables = True

    def describe_schema(self) -> list[str]:
        return [
            f"collection {table} {json.dumps(properties)}"
            for table, properties in self._collections().items()
        ]

    def _collections(self) -> dict[str, dict[str, Any]]:
        """Table -> the properties of its collection, as python-arango calls them."""
        options, uuids = self.options, self.job.load.primary_key is PrimaryKey.UUID
        properties = {
            "sync": options.sync,
            "replication_factor": options.replication_factor,
            "shard_count": options.shard_count,
            # It validates nothing.
            # https://docs.arangodb.com/stable/concepts/data-structure/documents/schema-validation/
            "schema": {"rule": {}, "level": "none", "message": MARK},
        }
        # Tags have the ids as keys.
        generators = dict.fromkeys(self.job.table_names, "uuid" if uuids else "traditional")
        generators |= dict.fromkeys(self.job.tags_tables, "traditional")
        return {
            table: {**properties, "key_generator": generator}
            for table, generator in generators.items()
        }

    def _check_documents(self, tables: Iterable[str], remedy: str) -> None:
        """SimulatorError if a collection's first document lacks a field that the key needs now."""
        schema = self.job.schema
        names = schema.row_key
        fields = ", ".join(name_field(schema, name) for name in names)
        for table in tables:
            for values in self.connection.rows(f"FOR e IN `{table}` LIMIT 1 RETURN [{fields}]"):
                lacking = [name for name, value in zip(names, values, strict=True) if value is None]
                if lacking:
                    raise made_otherwise(table, f"its documents have no {lacking[0]}", remedy)

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        found = {}
        for name in filter(self._is_there, names):
            properties: Any = self.connection.ask(self._collection(name).properties)
            found[name] = Found((properties.get("schema") or {}).get("message") == MARK)
        return found

    def read_columns(self, table: str) -> Mapping[str, str]:
        # A field that only some documents have.
        documents = self.connection.rows(f"FOR e IN `{table}` LIMIT {_SAMPLE} RETURN e")
        names = {name for document in documents for name in document}
        return dict.fromkeys(names - {"_key", "_id", "_rev"}, "any")

    def _is_there(self, table: str) -> bool:
        connection = self.connection
        return bool(connection.ask(partial(connection.database.has_collection, table)))

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        for name in (table, *self.job.tags_tables):
            if not self._is_there(name):
                raise nothing_to_query(name, self.job)
        self._check_documents([table], QUERY_REMEDY)

    @property
    def index_names(self) -> Collection[str]:
        return [name for indexes in self._indexes().values() for name in indexes]

    def create_indexes(self, names: Collection[str]) -> None:
        for table, indexes in self._indexes().items():
            for name, fields in indexes.items():
                if name in names:
                    index = _describe_index(name, fields)
                    self.connection.ask(partial(self._collection(table).add_index, index))

    def describe_indexes(self) -> list[str]:
        return [
            f"index of {table} {json.dumps(_describe_index(name, fields))}"
            for table, indexes in self._indexes().items()
            for name, fields in indexes.items()
        ]

    def drop_indexes(self, names: Collection[str]) -> None:
        for table, index in self._ask_indexes():
            if index["name"] in names:
                self.connection.ask(partial(self._collection(table).delete_index, index["id"]))

    def list_indexes(self) -> Mapping[str, str]:
        return {
            # Each collection names its key index `primary`.
            f"{table}_primary" if index["type"] == "primary" else index["name"]: f"{table}"
            f" {index['type']} ({', '.join(index['fields'])})"
            for table, index in self._ask_indexes()
        }

    def _ask_indexes(self) -> list[tuple[str, dict[str, Any]]]:
        """All indexes, each with its collection."""
        indexes = []
        for table in filter(self._is_there, self.tables):
            listed: Any = self.connection.ask(self._collection(table).indexes)
            indexes += [(table, index) for index in listed]
        return indexes

    def _indexes(self) -> dict[str, dict[str, list[str]]]:
        """Collection -> name -> fields of each index created by `create_indices`."""
        schema = self.job.schema
        device = f"{schema.device}.{schema.device_path}" if schema.device_path else schema.device
        columns = {
            index: [device if name == schema.device else name for name in names]
            for index, names in schema.indexes.items()
        }
        tables = dict.fromkeys(self.job.table_names, columns)
        tables |= {table: {"device": [device]} for table in self.job.tags_tables}
        return {
            table: {f"{table}_{name}": fields for name, fields in indexes.items()}
            for table, indexes in tables.items()
        }

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        from .server import import_missing

        schema = self.job.schema
        for columns in rows:
            import_missing(
                self.connection,
                schema.tags_table,
                encode_devices(schema, columns),
                len(columns[ID]),
                self.options.sync,
            )

    def count_rows(self, table: str) -> int:
        count: Any = self.connection.ask(self._collection(table).count)
        return int(count)

    def storage(self) -> Storage:
        # Data in memory would count at its size there.
        answer = self._put(_FLUSH)
        if answer.status != 200:
            _log.warning("flushing memtables failed: %s", self.connection.explain(answer))
        statistics: list[Any] = [
            self.connection.ask(self._collection(table).statistics) for table in self.tables
        ]
        documents = sum(int(figures["documents_size"]) for figures in statistics)
        indexes = sum(int(figures["indexes"]["size"]) for figures in statistics)
        return Storage(
            total_bytes=documents + indexes,
            data_bytes=documents,
            index_bytes=indexes,
            source=_SOURCE + ("" if answer.status == 200 else _NOT_FLUSHED),
        )

    def compact(self) -> bool:
        # For the whole server: compaction of one collection is only started, not awaited.
        answer = self._put("/_admin/compact")
        if answer.status == 403:
            raise SimulatorError(
                "only superusers may compact ArangoDB, and no user is a superuser; on a server"
                " without authentication, every user may"
            )
        if answer.status != 200:
            raise self.connection.explain(answer)
        return True

    def _put(self, path: str) -> Answer:
        """Send an empty PUT, which may take a while, to an API of the database."""
        target = self.options.path + path
        return self.connection.request("PUT", target, timeout_s=self.options.database_timeout_s)

    def compile(self, bound: BoundQuery) -> str:
        return compile_query(bound, self.job.schema)

    def take_statement(self, text: str, bound: BoundQuery) -> str:
        schema = self.job.schema
        return fill_statement(text, bound, schema, JSON_LITERALS, write_number, f"`{schema.table}`")

    def server_info(self) -> dict[str, Any]:
        connection = self.connection
        version: Any = connection.ask(partial(connection.database.version, details=True))
        settings: dict[str, Any] = {"role": connection.ask(connection.database.role)}
        table = self.job.table_names[0]
        if self._is_there(table):
            properties: Any = connection.ask(self._collection(table).properties)
            names = ("sync", "replication_factor", "write_concern", "shard_count", "key_options")
            settings |= {name: properties[name] for name in names if name in properties}
        edition = version.get("license", "")
        return {"version": f"ArangoDB {version['version']} {edition}".strip(), "settings": settings}

    def _collection(self, table: str) -> StandardCollection:
        return self.connection.database.collection(table)


def _describe_index(name: str, fields: list[str]) -> dict[str, Any]:
    """https://docs.arangodb.com/stable/develop/http-api/indexes/persistent/"""
    return {"type": "persistent", "name": name, "fields": fields}
