"""Elasticsearch 8 and 9, and OpenSearch (`flavor: opensearch`).

Both get the same requests over our own HTTP connections (`kit/http.py`): bodies are built in bulk, which
leaves no work for a client. For tables and settings, Elasticsearch gets requests from Elastic's client, which
refuses all other servers, over the same connections. With `client=official` and `client=streaming_bulk`, the
vendors' clients write; with the former, they also query: see `official`.

Each table is an index of the same name (after `index_prefix`). Writes go through an alias, since a write can
require an alias but not an index, and a write to a missing index would create one, with a mapping guessed
from the first document.

Each event is stored exactly once, however a connection dies
-----------------------------------------------------------
A bulk request is not a transaction: each document is stored or refused on its own. The answer says which, and
only those refused for a temporary reason (a full queue, a shard that is moving) are sent again. After an
error, only the outcome of a request without an answer is unknown:

* key `client`: the document's id is made from the event, and requests only ever create documents. The request
  is sent again unchanged; a document that already exists is refused with a conflict: the first attempt stored
  it.
* key `db`: the server makes the ids and would store a second copy. The writer waits until no node is still
  processing the request (it finds it among the cluster's tasks by the name it was sent with, X-Opaque-Id),
  refreshes the index to make stored events visible, looks up its events by their natural keys, and sends only
  the missing ones again.

Two cases are not covered; the count after the run shows both. With key `db`, a node that received the request
but didn't read it for a second, or a proxy in between, may begin it after the look-up. With either key,
documents that the server acknowledged and then lost (with index.translog.durability: async) are lost.

The size on disk is that of the segments of all shards and replicas (`_segments`), after a flush, without the
translog. Compaction merges each shard into one segment (`_forcemerge`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from ...conditions import ACCESS, Condition
from ...contract import MIB, Allocation, CommaList, Load, PrimaryKey, Storage
from ...errors import Retryable
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Function, Percentiles
from ...workloads.schema import Column, ColumnType, Schema
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
from ..kit.module import MARK, ConnectedModule, Found, MissingTable, nothing_to_query
from ..kit.options import EndpointOptions, InFlightOptions, LoginOptions
from ..options import LEAN, PAYLOAD, InsertMode, among, choose_mode
from .encoding import DocumentEncoder
from .paging import Statement
from .queries import SHAPES, compile_query

if TYPE_CHECKING:
    from .server import Connection


class Flavor(StrEnum):
    """The kind of server."""

    ELASTICSEARCH = "elasticsearch"
    OPENSEARCH = "opensearch"


# https://www.elastic.co/docs/reference/elasticsearch/index-settings/merge: floor_segment
ALLOCATION = Allocation(
    unit_bytes=2 * MIB, cause="small segments, below 2 MB, are merged before others"
)
"""The allocation of a shard."""

WRITE = "-write"
"""The suffix of the alias through which a table is written."""

STREAMING_BULK = "streaming_bulk"

_PACKAGES = ("elasticsearch", "opensearch-py")
MODES = (InsertMode.BULK, InsertMode.SINGLE)


class ElasticsearchOptions(EndpointOptions, LoginOptions, InFlightOptions):
    """Options of targets with `module: elasticsearch`."""

    DEFAULT_PORT: ClassVar[int] = 9200
    EXAMPLE_URL: ClassVar[str] = "https://elastic.example:9200"
    LOGIN: ClassVar[str] = "username and password, or api_key"

    insert_mode: Annotated[InsertMode | None, among(*MODES), Condition.BATCH, PAYLOAD] = Field(
        None,
        description="how events are sent: bulk (default with --batch), single (default without)",
    )
    index_prefix: Annotated[str, Condition.NONE, PAYLOAD] = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9._-]{0,99})?$",
        description="prefix of the names of the indices",
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1,
        description="the nodes' URLs, separated by commas: http[s]://HOST[:9200][/PATH]",
    )
    flavor: Flavor = Field(Flavor.ELASTICSEARCH, description="elasticsearch or opensearch")
    api_key: str | None = Field(
        None, repr=False, description="encoded API key, instead of username and password"
    )
    shards: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=1, le=1024, description="primary shards per index (default: the server's)"
    )
    replicas: Annotated[int | None, Condition.REPLICATION] = Field(
        None, ge=0, le=20, description="copies of each shard (default: the server's)"
    )
    refresh_interval: Annotated[str | None, Condition.DURABILITY] = Field(
        None,
        pattern=r"^(-1|[0-9]+(ms|s|m|h))$",
        description=(
            "how soon documents become visible to searches, e.g. 30s, -1: never (default: the"
            " server's)"
        ),
    )

    @model_validator(mode="after")
    def _check_one_login(self) -> Self:
        if self.username is not None and self.api_key is not None:
            raise ValueError("give either username and password or api_key")
        return self

    def login(self) -> dict[str, str]:
        if self.api_key is not None:
            return {"authorization": f"ApiKey {self.api_key}"}
        return super().login()

    def mode(self, load: Load) -> InsertMode:
        return choose_mode(
            "insert_mode", self.insert_mode, load, InsertMode.SINGLE, InsertMode.BULK
        )

    def index(self, table: str) -> str:
        """The index for a table."""
        return self.index_prefix + table

    def join_indices(self, tables: Iterable[str]) -> str:
        """The indices of tables, in the form for a request."""
        return ",".join(map(self.index, tables))

    def alias(self, table: str) -> str:
        """The alias through which a table is written."""
        return f"{self.index_prefix}{table}{WRITE}"


_FIELD_TYPES: dict[ColumnType, dict[str, Any]] = {
    ColumnType.TIMESTAMP_MS: {"type": "date", "format": "epoch_millis"},
    ColumnType.INT64: {"type": "long"},
    ColumnType.INT32: {"type": "integer"},
    ColumnType.FLOAT32: {"type": "float"},
    ColumnType.FLOAT64: {"type": "double"},
    ColumnType.BOOL: {"type": "boolean"},
    ColumnType.TEXT: {"type": "keyword"},
    # Any JSON value, stored as it is and not searchable.
    ColumnType.JSON: {"type": "object", "enabled": False},
}

# The names of the settings that decide the durability of an acknowledgement and the cost of a write.
_INDEX_SETTINGS = (
    "index.number_of_shards", "index.number_of_replicas", "index.refresh_interval",
    "index.translog.durability", "index.translog.sync_interval",
    "index.translog.flush_threshold_size", "index.write.wait_for_active_shards", "index.codec",
    "index.replication.type",
)  # fmt: skip

_META = {"description": MARK}

# The servers' default of index.mapping.total_fields.limit.
_FIELDS_LIMIT = 1000

_OWN_SETTINGS = {
    "default_pipeline": "_none",
    "final_pipeline": "_none",
    "mapping.ignore_malformed": False,
    "mapping.coerce": True,
    "max_result_window": 10_000,
    "max_terms_count": 65_536,
}
"""The defaults of settings that change or drop documents, or limit queries. A template of the cluster may
match the index's name and set others."""


def _count_places(settings: Mapping[str, Any]) -> int | None:
    """The copies for which there is a node."""
    replicas, nodes = str(settings.get("index.number_of_replicas")), settings.get("data_nodes")
    return min(nodes, 1 + int(replicas)) if replicas.isdigit() and isinstance(nodes, int) else None


class Elasticsearch(ConnectedModule[ElasticsearchOptions, "Connection"]):
    """A cluster of either kind."""

    name = "elasticsearch"
    PACKAGES = ("elasticsearch", "elastic-transport")
    IMPORTED_LATE = ("elasticsearch", f"{__name__}.server")
    options_model = ElasticsearchOptions
    # Version 8 of Elastic's client uses requests that only servers since 8 accept:
    # https://www.elastic.co/docs/reference/elasticsearch/clients/python. OpenSearch has had everything we use
    # from the start.
    OLDEST: ClassVar[Mapping[str, str]] = {"Elasticsearch": "8.0", "OpenSearch": "1.0"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "index.refresh_interval": Condition.DURABILITY,
        "index.translog.durability": Condition.DURABILITY,
        "index.translog.sync_interval": Condition.DURABILITY,
        "nodes": Condition.REPLICATION,
        "data_nodes": Condition.REPLICATION,
        "index.number_of_shards": Condition.REPLICATION,
        "index.number_of_replicas": Condition.REPLICATION,
        "index.write.wait_for_active_shards": Condition.REPLICATION,
        "index.replication.type": Condition.REPLICATION,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(
            f"{__name__}.server:ElasticsearchWriter", f"{__package__}.server:ElasticsearchAsker"
        ),
        "official": Client(
            f"{__name__}.official:OfficialWriter",
            f"{__name__}.official:OfficialElasticsearchAsker",
            packages=_PACKAGES,
            ways={
                InsertMode.BULK: "the client's helpers.bulk",
                InsertMode.SINGLE: "the client's index",
            },
            in_flight=True,
        ),
        STREAMING_BULK: Client(
            f"{__name__}.official:OfficialWriter",
            packages=_PACKAGES,
            ways={InsertMode.BULK: "the client's helpers.streaming_bulk"},
            in_flight=True,
        ),
    }
    CAPABILITIES = Capabilities(
        own_schema=OwnSchema(reason="an index is made by a document with its mappings"),
        # https://www.elastic.co/docs/reference/elasticsearch/index-settings/translog
        durability=Durability(
            {
                "index.translog.durability": Needed(
                    ("request",), "within {index.translog.sync_interval}"
                )
            },
            count_places=_count_places,
        ),
        ageing=Ageing("_delete_by_query of a range of time, since a table is one index"),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(MODES, Support.FULL),
        # There are no sequences and no UUIDs, and every document has an id.
        primary_keys=support_keys(PrimaryKey.DB, PrimaryKey.CLIENT),
        shapes=SHAPES,
        # Every field is indexed anyway.
        indices=Support.UNSUPPORTED,
        column_types={kind: mapped["type"] for kind, mapped in _FIELD_TYPES.items()},
        in_flight=dict.fromkeys(MODES, Support.FULL),
        tags_table=Support.UNSUPPORTED,
        # https://www.elastic.co/docs/reference/aggregations#limits-for-long-values
        rounded=(Function.MIN, Function.MAX, Function.SUM),
        # https://www.elastic.co/docs/reference/aggregations/search-aggregations-metrics-percentile-aggregation
        percentiles=Percentiles("t-digests", rank_error=0.01),
    )
    ENCODINGS = (
        Encoding("bulk", {"insert_mode": "bulk"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: ElasticsearchOptions, job: Job) -> None:
        super().__init__(options, job)
        self._shards: int | None = None

    @classmethod
    def encoder(cls, options: ElasticsearchOptions, job: Job) -> DocumentEncoder:
        aliases = [options.alias(table) for table in job.table_names]
        return DocumentEncoder(job, options.mode(job.load), aliases)

    ELSEWHERE = "another index_prefix"

    def connect(self) -> Connection:
        from .server import Connection

        return Connection.connect(self.options, self.job)

    def prepare(self) -> None:
        self.connection.expects_tables = False
        if self.job.retention is not None:
            self.connection.require_module("reindex", "--retention deletes by _delete_by_query")
        ours = self.claim_tables()
        if self.job.clean and (
            dropped := [name for name in ours if name in self.job.all_table_names]
        ):
            self._ask("DELETE", f"/{self.options.join_indices(dropped)}?ignore_unavailable=true")
        for table in self.job.table_names:
            index, alias = self._list_requests(table)
            if not self._is_there(self.options.index(table)):
                self._ask(*index)
            self._ask(*alias)
        self.connection.expects_tables = True

    def describe_schema(self) -> list[str]:
        requests = [
            request for table in self.job.table_names for request in self._list_requests(table)
        ]
        return [
            f"{method} {target}" + (f"\n{json.dumps(body, indent=2)}" if body else "")
            for method, target, body in requests
        ]

    def _list_requests(self, table: str) -> list[tuple[str, str, dict[str, Any] | None]]:
        """Method, target and body of the requests that create a table: its index, and the alias for
        writing."""
        index, alias = self.options.index(table), self.options.alias(table)
        return [("PUT", f"/{index}", self._index()), ("PUT", f"/{index}/_alias/{alias}", None)]

    @property
    def needed_names(self) -> list[str]:
        # An alias with this name would lead to two indices.
        return [*self.tables, *(f"{table}{WRITE}" for table in self.tables)]

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        found = {}
        for name in names:
            indices = self._read_mappings(name)
            if mapping := indices.get(self.options.index(name)):
                found[name] = Found(mapping.get("_meta") == _META)
            elif indices:
                # An alias, or a data stream.
                own = self.options.index(name.removesuffix(WRITE))
                found[name] = Found(name.endswith(WRITE) and indices.keys() == {own})
        return found

    def _read_mappings(self, name: str) -> dict[str, dict[str, Any]]:
        """The indices with a table's name, or to which it leads, and their mappings."""
        try:
            answer = self._ask("GET", f"/{self.options.index(name)}/_mapping")
        except MissingTable:
            return {}
        return {index: described["mappings"] for index, described in answer.items()}

    def read_columns(self, table: str) -> Mapping[str, str]:
        mapping = self._read_mappings(table).get(self.options.index(table), {})
        properties = mapping.get("properties", {})
        return {name: field.get("type", "object") for name, field in properties.items()}

    def expect_columns(self, table: str) -> Mapping[str, str | None]:
        schema = self.job.schema
        return {column.name: _map_column(schema, column)["type"] for column in schema.columns}

    def _is_there(self, index: str) -> bool:
        try:
            self._ask("GET", f"/{index}/_settings?filter_path=*.settings.index.uuid")
        except MissingTable:
            return False
        return True

    def _index(self) -> dict[str, Any]:
        options, schema = self.options, self.job.schema
        settings: dict[str, Any] = {
            "number_of_shards": options.shards,
            "number_of_replicas": options.replicas,
            "refresh_interval": options.refresh_interval,
            **_OWN_SETTINGS,
        }
        mapping: dict[str, Any] = {
            "_source": {"enabled": True},
            # A document with a field outside the schema is a defect of ours.
            "dynamic": "strict",
            "_meta": _META,
            "properties": {column.name: _map_column(schema, column) for column in schema.columns},
        }
        fields = max(_FIELDS_LIMIT, len(schema.columns)) + schema.json_keys
        if fields > _FIELDS_LIMIT or schema.device_path:
            settings["mapping.total_fields.limit"] = fields
        if schema.device_path:
            # Devices can be searched by any of their attributes.
            mapping["dynamic_templates"] = [
                {
                    "attributes": {
                        "path_match": f"{schema.device}.*",
                        "match_mapping_type": "string",
                        "mapping": {"type": "keyword"},
                    }
                }
            ]
        chosen = {name: value for name, value in settings.items() if value is not None}
        return {"settings": {"index": chosen}, "mappings": mapping}

    def prepare_queries(self) -> None:
        index = self.options.index(self.job.schema.table)
        if not self._is_there(index):
            raise nothing_to_query(index, self.job)
        self.connection.refresh(index)

    def count(self) -> int:
        self.connection.refresh(self._names)
        answer = self._ask("POST", f"/{self._names}/_count")
        shards = answer["_shards"]
        if shards["successful"] < shards["total"]:
            raise Retryable(
                "unavailable", f"{shards['successful']} of {shards['total']} shards were counted"
            )
        return int(answer["count"])

    def delete_older(self, before_ms: int) -> None:
        """https://www.elastic.co/docs/api/doc/elasticsearch/operation/operation-delete-by-query"""
        query = {"range": {self.job.schema.time: {"lt": before_ms, "format": "epoch_millis"}}}
        # Events since the last refresh would not be found.
        target = f"/{self._names}/_delete_by_query?refresh=true&conflicts=proceed"
        self.connection.refresh(self._names)
        self.connection.ask("POST", target, {"query": query}, self.options.database_timeout_s)

    def storage(self) -> Storage:
        self.connection.flush(self._names)
        return self.storage_during()

    def storage_during(self) -> Storage:
        return self.connection.read_segments(self._names)

    def compact(self) -> bool:
        self.connection.merge_segments(self._names)
        return True

    def server_info(self) -> dict[str, Any]:
        version = self._ask("GET", "/")["version"]
        health = self._ask("GET", "/_cluster/health")
        settings: dict[str, Any] = {
            "nodes": health["number_of_nodes"],
            "data_nodes": health["number_of_data_nodes"],
            "status": health["status"],
        }
        index = self.options.index(self.job.table_names[0])
        with suppress(MissingTable):
            answer = self._ask(
                "GET", f"/{index}/_settings?include_defaults=true&flat_settings=true"
            )
            index_settings = answer[index].get("defaults", {}) | answer[index]["settings"]
            settings |= {
                name: index_settings[name] for name in _INDEX_SETTINGS if name in index_settings
            }
        name = version.get("distribution", Flavor.ELASTICSEARCH.value)
        return {
            "version": f"{name} {version['number']} (Lucene {version['lucene_version']})",
            "settings": settings,
        }

    def read_versions(self) -> Mapping[str, str]:
        is_fork = self.options.flavor is Flavor.OPENSEARCH
        number = self._ask("GET", "/")["version"]["number"]
        return {"OpenSearch" if is_fork else "Elasticsearch": number}

    def compile(self, bound: BoundQuery) -> Statement:
        index = self.options.index(self.job.schema.table)
        # It can't be read before there is a connection, or an index.
        if self._shards is None and self._connection is not None:
            with suppress(MissingTable):
                path = "*.settings.index.number_of_shards"
                answer = self._ask("GET", f"/{index}/_settings?filter_path={path}")
                self._shards = int(answer[index]["settings"]["index"]["number_of_shards"])
        return compile_query(bound, self.job.schema, self._shards)

    def describe_statement(self, statement: Statement) -> str:
        from .server import find_target

        body = json.loads(statement.begin + statement.plan.tail)
        target = find_target(self.options.index(self.job.schema.table))
        text = f"POST {target}\n{json.dumps(body, indent=2, ensure_ascii=False)}"
        return f"{text}\n{statement.plan.FURTHER}" if statement.plan.FURTHER else text

    @property
    def _names(self) -> str:
        """The indices of the job's tables, in the form for a request."""
        return self.options.join_indices(self.job.table_names)

    def _ask(self, method: str, target: str, body: object = None) -> Any:
        return self.connection.manage(method, target, body)


def _map_column(schema: Schema, column: Column) -> dict[str, Any]:
    if column.name == schema.device and schema.device_path:
        return {
            "type": "object",
            "dynamic": "true",
            "properties": {schema.device_path: {"type": "keyword"}},
        }
    if asked := schema.list_paths(column.name):
        # Columns that no query uses are stored and not searchable.
        properties: dict[str, Any] = {}
        for path in asked:
            below = properties
            for step in path.path[:-1]:
                below = below.setdefault(step, {"properties": {}})["properties"]
            below[path.path[-1]] = _FIELD_TYPES[path.type]
        return {"type": "object", "dynamic": "false", "properties": properties}
    return _FIELD_TYPES[column.type]
