"""Elasticsearch 8 and 9, and OpenSearch (`flavor: opensearch`).

Both are sent the same requests by `wire`: bodies are built in bulk, so that nothing is left for a client
to do. Everything but writing goes through Elastic's client, if it is Elasticsearch that is asked: the
client refuses whatever else there is.

Each table is an index of one name with it (after `index_prefix`), written to through an alias, since
only to an alias can a server be told to write if it exists: a write to an index that is gone would
create another, with a mapping guessed from the first document.

Each event is stored exactly once, however a connection dies
-----------------------------------------------------------
A bulk request is no transaction: each document is stored or refused alone. The answer says which,
and only those refused for a reason that passes (a full queue, a shard that is moving) are sent again.
What an error leaves open is what became of a request whose answer never came:

* key `client`: the document's id is made of the event, and requests only ever create documents. The
  request is sent again as it is; a document that is there already is refused with a conflict, which
  then means that the first try has stored it.
* key `db`: the server makes the ids and would store a second copy. `recover` waits until no node is
  at work on the request any more (it finds it among the cluster's tasks by the name that it was sent
  under, X-Opaque-Id), makes what it stored visible by a refresh, looks up by their natural keys which
  of its events are stored, and leaves only the others to be sent again.

What can't be promised with key `db`: that a node which had received the request, but not read it for a
second, or a proxy on the way doesn't begin with it after the look-up. The count after the run shows
such copies. What can't with either: that a server which loses acknowledged documents (one with
index.translog.durability: async) still has them, which the count shows, too.
"""

from __future__ import annotations

import itertools
import ssl
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

import elastic_transport
import orjson
from elastic_transport import NodeConfig
from elasticsearch import ApiError, UnsupportedProductError
from elasticsearch import Elasticsearch as ElasticClient
from pydantic import Field, field_validator, model_validator
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from ...conditions import Condition
from ...contract import PrimaryKey
from ...encoding import bounds
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.base import FIRST_TIMESTAMP_MS, Column, ColumnType, Schema
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from ..base import (
    Capabilities,
    CommaList,
    Encoding,
    Job,
    Module,
    Options,
    Payload,
    Query,
    Support,
    Writer,
)
from ..shared.http import (
    Answer,
    AnswerTimeout,
    ConnectionLost,
    HttpPool,
    NoAnswer,
    TlsRefused,
    basic_auth,
    parsed,
    translated,
)
from ..shared.options import checked_url
from ..shared.tls import trusted
from .encoding import DocumentEncoder, InsertMode, Request

_FIELD_TYPES: dict[ColumnType, dict[str, Any]] = {
    ColumnType.TIMESTAMP_MS: {"type": "date", "format": "epoch_millis"},
    ColumnType.INT64: {"type": "long"},
    ColumnType.INT32: {"type": "integer"},
    ColumnType.FLOAT32: {"type": "float"},
    ColumnType.TEXT: {"type": "keyword"},
    # Kept as it is, any JSON value, not searched.
    ColumnType.JSON: {"type": "object", "enabled": False},
}

# Names of the settings that decide what an acknowledgement is worth and what a write costs.
_INDEX_SETTINGS = (
    "index.number_of_shards", "index.number_of_replicas", "index.refresh_interval",
    "index.translog.durability", "index.translog.sync_interval",
    "index.translog.flush_threshold_size", "index.write.wait_for_active_shards", "index.codec",
    "index.replication.type",
)  # fmt: skip

_DEFAULT_PORT = 9200
_CONNECT_S = 5.0

# How long a request whose answer was lost may go on before the next try.
_TASK_END_S = 10.0
_TASK_POLL_S = 0.05

# How long it must not be seen at work, to count as ended: a node lists it only once it has read it.
_SETTLE_S = 1.0

# How long to wait for shards that are being recovered, before the next try.
_SHARDS_READY_S = 5

# Buckets or documents in one page of an answer: the default of index.max_result_window, and well
# below that of search.max_buckets (65,536).
_PAGE = 10_000

# Events looked up by one question.
_LOOK_UP = 1_000

# The servers' default of index.mapping.total_fields.limit, which `extra_tags` come on top of.
_FIELDS_LIMIT = 1000

# What is counted as `connection_lost` in a result.
_LOST = "connection_lost"
_TRUST = "ca_certs (or set verify_certs=false)"

_OK, _CREATED, _BAD_REQUEST = 200, 201, 400
_UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _CONFLICT = 401, 403, 404, 409
_TIMED_OUT, _TOO_LARGE, _TOO_MANY_REQUESTS, _SERVER_ERROR = 408, 413, 429, 500
_STORED = b'"status":201'


class Flavor(StrEnum):
    """What kind of server it is."""

    ELASTICSEARCH = "elasticsearch"
    OPENSEARCH = "opensearch"


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_mode: Annotated[InsertMode | None, Condition.BATCH] = Field(
        None,
        description="how events are sent: bulk (default with --batch), single (default without)",
    )
    index_prefix: Annotated[str, Condition.NONE] = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9._-]{0,99})?$",
        description="what the names of the indices begin with",
    )

    def mode(self, batch: int) -> InsertMode:
        """The insert mode for requests of `batch` events; OptionError if they don't fit."""
        fitting = InsertMode.BULK if batch else InsertMode.SINGLE
        if batch and self.insert_mode is InsertMode.SINGLE:
            raise OptionError("insert_mode=single sends each event alone: leave --batch out")
        if not batch and self.insert_mode is InsertMode.BULK:
            raise OptionError("insert_mode=bulk needs --batch N")
        return fitting

    def index(self, table: str) -> str:
        """The index that is a table."""
        return self.index_prefix + table

    def alias(self, table: str) -> str:
        """What a table is written to by."""
        return f"{self.index_prefix}{table}-write"


class ElasticsearchOptions(EncodingOptions):
    """Options of targets with `module: elasticsearch`."""

    endpoint: Annotated[CommaList, Condition.NONE] = Field(
        min_length=1,
        description="the nodes' URLs, separated by commas: http[s]://HOST[:9200][/PATH]",
    )
    flavor: Flavor = Field(Flavor.ELASTICSEARCH, description="elasticsearch or opensearch")
    username: Annotated[str | None, Condition.NONE] = Field(
        None, description="user name, with password"
    )
    password: str | None = Field(None, repr=False, description="the user's password")
    api_key: str | None = Field(
        None, repr=False, description="encoded API key, instead of username and password"
    )
    ca_certs: Annotated[str | None, Condition.NONE] = Field(
        None, description="authorities to trust: a PEM file, or its text (default: the usual ones)"
    )
    verify_certs: Annotated[bool, Condition.NONE] = Field(
        True, description="check the server's certificate"
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
        description="how soon documents can be found, e.g. 30s, -1: never (default: the server's)",
    )
    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description="requests that a worker keeps under way at once"
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="how long to wait for an answer, in seconds"
    )

    @field_validator("endpoint")
    @classmethod
    def _urls(cls, value: list[str]) -> list[str]:
        example, login = "https://elastic.example:9200", "username and password, or api_key"
        return [checked_url(url, example, login) for url in value]

    @model_validator(mode="after")
    def _one_way_in(self) -> ElasticsearchOptions:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        if self.username is not None and self.api_key is not None:
            raise ValueError("give either username and password or api_key")
        return self

    def secrets(self) -> list[str]:
        return [secret for secret in (self.password, self.api_key) if secret]

    def public(self) -> dict[str, Any]:
        shown = super().public()
        return shown | {name: "***" for name in ("password", "api_key") if name in shown}

    @property
    def server(self) -> str:
        """The nodes' host:port, for messages."""
        return ", ".join(f"{node.host}:{node.port}" for node in self.nodes({}))

    def login(self) -> dict[str, str]:
        """The header that lets a request in."""
        if self.api_key is not None:
            return {"authorization": f"ApiKey {self.api_key}"}
        if self.username is not None and self.password is not None:
            return {"authorization": basic_auth(self.username, self.password)}
        return {}

    def trusted(self) -> ssl.SSLContext | None:
        """Whom to trust where an endpoint says https; SimulatorError if `ca_certs` can't be used."""
        return trusted(self.endpoint, self.ca_certs, self.verify_certs)

    def nodes(
        self, headers: Mapping[str, str], tls: ssl.SSLContext | None = None
    ) -> list[NodeConfig]:
        """How Elastic's client reaches each node, with these headers in each request."""
        trust: dict[str, Any] = {"ssl_context": tls}
        if not self.verify_certs:
            trust = {"verify_certs": False, "ssl_show_warn": False}
        nodes = []
        for url in self.endpoint:
            parts = urlsplit(url)
            assert parts.hostname is not None
            nodes.append(
                NodeConfig(
                    parts.scheme,
                    parts.hostname,
                    parts.port or _DEFAULT_PORT,
                    path_prefix=parts.path.rstrip("/"),
                    headers=headers,
                    request_timeout=self.request_timeout_s,
                    **(trust if parts.scheme == "https" else {}),
                )
            )
        return nodes


class _NotSent(elastic_transport.ConnectionError):
    """No connection could be made: another node can be asked."""


class _NotFound(SimulatorError):
    """There is no such index."""


class _Connection:
    """Both kinds of server: requests in, answers out, errors translated."""

    def __init__(self, options: ElasticsearchOptions, name: str, by_client: bool = False) -> None:
        """Connects to nothing yet; requests are known to the server as `name`.

        `by_client`: what is asked goes through Elastic's client. Raises SimulatorError if `ca_certs`
        or a header can't be used.
        """
        self._options = options
        self._server = options.server
        self._name = name
        login, tls = options.login(), options.trusted()
        self._pool = HttpPool(
            options.endpoint, _DEFAULT_PORT, login, options.request_timeout_s, tls
        )
        # Whether a request may be sent again isn't for the client to decide.
        once: dict[str, Any] = {"max_retries": 0, "retry_on_status": ()}
        nodes = options.nodes({**login, "x-opaque-id": name}, tls)
        self._client = ElasticClient(nodes, **once) if by_client else None

    def check(self) -> None:
        """Connect to all nodes; SimulatorError with a remedy if none lets us in."""
        failure: Retryable | None = None
        failures = 0
        timeout_s = min(_CONNECT_S, self._options.request_timeout_s)
        for _ in self._options.endpoint:
            try:
                version = self.ask("GET", "/", timeout_s=timeout_s)["version"]
            except Retryable as error:
                failure = error
                failures += 1
                continue
            if self._options.flavor is Flavor.OPENSEARCH and "build_flavor" in version:
                raise SimulatorError(
                    f"the server at {self._server} is Elasticsearch: leave flavor out"
                )
        if failures == len(self._options.endpoint):
            raise SimulatorError(
                f"can't connect to {self._options.flavor} at {failure};"
                " check that the server runs and that endpoint names it"
            ) from failure

    def close(self) -> None:
        self._pool.close()
        if self._client is not None:
            self._client.close()

    def write(self, request: Request, name: str) -> tuple[int, bytes]:
        """Send a request under a name: the answer's status and body, whatever they are.

        Raises Retryable if there is none.
        """
        kind = "x-ndjson" if request.method == "POST" and "/_bulk?" in request.target else "json"
        headers = {"content-type": f"application/{kind}", "x-opaque-id": name}
        answer = self._answer(request.method, request.target, request.body, headers)
        return answer.status, answer.body

    def ask(
        self, method: str, target: str, body: object = None, timeout_s: float | None = None
    ) -> Any:
        """A request and its parsed answer; Retryable or SimulatorError if there is none."""
        timeout_s = timeout_s or self._options.request_timeout_s
        if self._client is not None:
            return self._asked(self._client, method, target, body, timeout_s)
        headers = {"x-opaque-id": self._name, "content-type": "application/json"}
        text = b"" if body is None else orjson.dumps(body)
        found = self._answer(method, target, text, headers, timeout_s)
        answer = parsed(found.body)
        if found.status >= _BAD_REQUEST:
            raise self.refusal(found.status, answer)
        return answer

    def _answer(
        self,
        method: str,
        target: str,
        body: bytes,
        headers: Mapping[str, str],
        timeout_s: float | None = None,
    ) -> Answer:
        try:
            return self._pool.request(method, target, body, headers, timeout_s)
        except NoAnswer as error:
            raise translated(error, self._options.flavor, self._server, _TRUST) from error

    def _asked(
        self, client: ElasticClient, method: str, target: str, body: object, timeout_s: float
    ) -> Any:
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        limited = client.options(request_timeout=timeout_s)
        try:
            for _ in self._options.endpoint[1:]:
                with suppress(_NotSent):
                    return self._asked_once(limited, method, target, headers, body)
            return self._asked_once(limited, method, target, headers, body)
        except UnsupportedProductError as error:
            raise SimulatorError(
                f"the server at {self._server} isn't Elasticsearch; if it is OpenSearch, set"
                " flavor: opensearch"
            ) from error
        except ApiError as error:
            raise self.refusal(error.status_code, error.body) from error
        except elastic_transport.TransportError as error:
            raise self._lost(error) from error

    def _asked_once(self, client: ElasticClient, *request: Any) -> Any:
        """_NotSent if the node whose turn it is can't be reached: the client leaves it out then."""
        method, target, headers, body = request
        try:
            return client.perform_request(method, target, headers=headers, body=body).body
        except elastic_transport.TransportError as error:
            if isinstance(error.__cause__, NewConnectionError | ConnectTimeoutError):
                raise _NotSent(error.message, error.errors) from error
            raise

    def refusal(self, status: int, answer: object) -> Retryable | SimulatorError:
        """What an answer that is an error means."""
        text = f"{self._options.flavor} at {self._server}: {status} {reason(answer)}"
        if status == _UNAUTHORIZED:
            return SimulatorError(f"{text}; check username and password, or api_key")
        if status == _FORBIDDEN:
            return SimulatorError(f"{text}; give the user the rights, or use another one")
        if status == _NOT_FOUND:
            return _NotFound(f"{text}; run insert first, or without --no-clean")
        if status == _TOO_LARGE:
            return SimulatorError(f"{text}; use a smaller --batch")
        if status == _CONFLICT:
            return SimulatorError(
                f"{text}; an earlier run has stored the event: run without --no-clean, or with"
                " another --seed"
            )
        if status == _TOO_MANY_REQUESTS:
            return Retryable("too_many_requests", text)
        if status == _TIMED_OUT or status >= _SERVER_ERROR:
            return Retryable("unavailable", text)
        return SimulatorError(text)

    def _lost(self, error: elastic_transport.TransportError) -> Retryable | SimulatorError:
        """What it means that the client has no answer."""
        kinds = {
            elastic_transport.TlsError: TlsRefused,
            elastic_transport.ConnectionTimeout: AnswerTimeout,
        }
        kind = kinds.get(type(error), ConnectionLost)
        text = one_line(error.message)
        return translated(kind(text), self._options.flavor, self._server, _TRUST)


def reason(answer: object) -> str:
    """One line out of an error's body, or out of one item of a bulk answer."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, dict) and "type" in error:
        error = f"{error['type']}: {error.get('reason')}"
    return one_line(error, 300)


def field_of(schema: Schema, name: str) -> str:
    """The field that a column's values are found by."""
    if name == schema.device and schema.device_path:
        return f"{name}.{schema.device_path}"
    return name


class Elasticsearch(Module[ElasticsearchOptions, EncodingOptions]):
    """A cluster of either kind."""

    name = "elasticsearch"
    PACKAGES = ("elasticsearch", "elastic-transport", "httptools")
    options_model = ElasticsearchOptions
    encoding_options_model = EncodingOptions
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
    CAPABILITIES = Capabilities(
        insert_modes=dict.fromkeys(InsertMode, Support.FULL),
        primary_keys={
            PrimaryKey.DB: Support.FULL,
            PrimaryKey.CLIENT: Support.FULL,
            # There are no sequences and no UUIDs, and no document is without an id.
            PrimaryKey.SQL: Support.UNSUPPORTED,
            PrimaryKey.UUID: Support.UNSUPPORTED,
            PrimaryKey.NONE: Support.UNSUPPORTED,
        },
        multiple_tables=Support.FULL,
        queries=dict.fromkeys(
            (
                "count-events", "temperature-min-max", "temperature-stats",
                "temperature-stats-per-device", "newest-per-device",
                "cpu-max-all", "high-cpu", "last-point",
            ),
            Support.FULL,
        ),
        # Every field is indexed anyway.
        indices=Support.UNSUPPORTED,
        column_types=_FIELD_TYPES,
    )  # fmt: skip
    ENCODINGS = (
        Encoding("bulk", {"insert_mode": "bulk"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    def __init__(self, options: ElasticsearchOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.mode(job.load.batch)
        self._connection: _Connection | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> DocumentEncoder:
        aliases = [options.alias(table) for table in job.table_names]
        return DocumentEncoder(job, options.mode(batch), aliases)

    def writer(self, batch: int, prefill: bool = False) -> ElasticsearchWriter:
        # There is no other way to prefill: its batch says how.
        options = self.options.model_copy(update={"insert_mode": None}) if prefill else self.options
        return ElasticsearchWriter(self.encoder(options, self.job, batch), options, self.job)

    def open(self) -> None:
        by_client = self.options.flavor is Flavor.ELASTICSEARCH
        name = f"iot-benchmark {self.job.run_id}"
        connection = _Connection(self.options, name, by_client=by_client)
        connection.check()
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def prepare(self) -> None:
        if self.job.clean:
            self.drop()
        for table in self.job.table_names:
            index, alias = self.options.index(table), self.options.alias(table)
            if not self._is_there(index):
                self._ask("PUT", f"/{index}", self._index())
            self._ask("PUT", f"/{index}/_alias/{alias}")

    def drop(self) -> None:
        """Delete the indices of all tables that there may be."""
        names = ",".join(map(self.options.index, self.job.all_table_names))
        self._ask("DELETE", f"/{names}?ignore_unavailable=true")

    def _is_there(self, index: str) -> bool:
        try:
            self._ask("GET", f"/{index}/_settings?filter_path=*.settings.index.uuid")
        except _NotFound:
            return False
        return True

    def _index(self) -> dict[str, Any]:
        """Settings and mapping of an index."""
        options, schema = self.options, self.job.schema
        settings: dict[str, Any] = {
            "number_of_shards": options.shards,
            "number_of_replicas": options.replicas,
            "refresh_interval": options.refresh_interval,
        }
        mapping: dict[str, Any] = {
            # A document with a field that isn't the schema's is a defect of ours.
            "dynamic": "strict",
            "properties": {column.name: _field(schema, column) for column in schema.columns},
        }
        if schema.device_path:
            settings["mapping.total_fields.limit"] = _FIELDS_LIMIT + self.job.schema.extra_json_keys
            # Whatever attributes a device has, each can be searched by.
            mapping["dynamic_templates"] = [
                {
                    "attributes": {
                        "path_match": f"{schema.device}.*",
                        "match_mapping_type": "string",
                        "mapping": {"type": "keyword"},
                    }
                }
            ]
        given = {name: value for name, value in settings.items() if value is not None}
        return {"settings": {"index": given}, "mappings": mapping}

    def prepare_queries(self) -> None:
        index = self.options.index(self.job.schema.table)
        if not self._is_there(index):
            raise SimulatorError(
                f"there is no table {index} to query: run insert first, with --tables single"
            )
        self._refresh(index)

    def count(self) -> int:
        names = ",".join(map(self.options.index, self.job.table_names))
        self._refresh(names)
        answer = self._ask("POST", f"/{names}/_count")
        shards = answer["_shards"]
        if shards["successful"] < shards["total"]:
            raise Retryable(
                "unavailable", f"{shards['successful']} of {shards['total']} shards were counted"
            )
        return int(answer["count"])

    def _refresh(self, names: str) -> None:
        refresh(self._opened(), names)

    def server_info(self) -> dict[str, Any]:
        version = self._ask("GET", "/")["version"]
        health = self._ask("GET", "/_cluster/health")
        settings: dict[str, Any] = {
            "nodes": health["number_of_nodes"],
            "data_nodes": health["number_of_data_nodes"],
            "status": health["status"],
        }
        index = self.options.index(self.job.table_names[0])
        with suppress(_NotFound):
            found = self._ask("GET", f"/{index}/_settings?include_defaults=true&flat_settings=true")
            known = found[index].get("defaults", {}) | found[index]["settings"]
            settings |= {name: known[name] for name in _INDEX_SETTINGS if name in known}
        name = version.get("distribution", Flavor.ELASTICSEARCH.value)
        return {
            "version": f"{name} {version['number']} (Lucene {version['lucene_version']})",
            "settings": settings,
        }

    # --- queries ----------------------------------------------------------------------------------

    def workload_queries(self) -> Mapping[str, Query]:
        asked: dict[str, Query] = {
            "count-events": self._count_events,
            "temperature-min-max": partial(self._stats, ("min", "max")),
            "temperature-stats": partial(self._stats, ("min", "avg", "max")),
            "temperature-stats-per-device": self._stats_per_device,
            "newest-per-device": self._newest_per_device,
            "cpu-max-all": self._cpu_max_all,
            "high-cpu": self._high_cpu,
            "last-point": self._last_point,
        }
        return {name: asked[name] for name in self.job.schema.queries}

    def _count_events(self) -> list[tuple[Any, ...]]:
        answer = self._search({"size": 0, "track_total_hits": True})
        return [(answer["hits"]["total"]["value"],)]

    def _stats(self, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        asked = {name: {name: {"field": "temperature"}} for name in wanted}
        found = self._search({"size": 0, "track_total_hits": False, "aggs": asked})["aggregations"]
        return [tuple(found[name]["value"] for name in wanted)]

    def _stats_per_device(self) -> list[tuple[Any, ...]]:
        stats = {"temperature": {"stats": {"field": "temperature"}}}
        return [
            (bucket["key"]["device_id"], *(bucket["temperature"][n] for n in ("min", "avg", "max")))
            for bucket in self._buckets(["device_id"], stats)
        ]

    def _newest_per_device(self) -> list[tuple[Any, ...]]:
        return [
            (device, *values)
            for device, values in self._newest(Column("temperature", ColumnType.FLOAT32))
        ]

    def _newest(self, *columns: Column) -> Iterator[tuple[str, list[Any]]]:
        """Each device and these columns of its newest event.

        By top_hits, not the cheaper top_metrics, which only Elastic's own distribution has.
        """
        schema = self.job.schema
        names = [column.name for column in columns]
        newest = {
            "size": 1,
            "sort": [{schema.time: "desc"}],
            "_source": False,
            "docvalue_fields": names,
        }
        for bucket in self._buckets([schema.device], {"newest": {"top_hits": newest}}):
            [hit] = bucket["newest"]["hits"]["hits"]
            yield bucket["key"][schema.device], _values(hit, names)

    def _cpu_max_all(self) -> list[tuple[Any, ...]]:
        hours = {
            "date_histogram": {"field": "ts", "fixed_interval": f"{HOUR_MS}ms", "min_doc_count": 1},
            "aggs": {name: {"max": {"field": name}} for name in METRICS},
        }
        answer = self._search(
            {
                "size": 0,
                "track_total_hits": False,
                "query": _all_of(
                    {"terms": {"tags.hostname": MAX_ALL_HOSTS}},
                    {"range": {"ts": {"gte": FIRST_TIMESTAMP_MS, "lt": MAX_ALL_UNTIL_MS}}},
                ),
                "aggs": {"hours": hours},
            }
        )
        return [
            (bucket["key"], *(bucket[name]["value"] for name in METRICS))
            for bucket in answer["aggregations"]["hours"]["buckets"]
        ]

    def _high_cpu(self) -> list[tuple[Any, ...]]:
        names = ["tags.hostname", "ts", *METRICS]
        question = {
            "size": _PAGE,
            "sort": ["_doc"],
            "_source": False,
            "docvalue_fields": names,
            "query": _all_of(
                {"range": {"usage_user": {"gt": HIGH_CPU_ABOVE}}},
                {"range": {"ts": {"gte": FIRST_TIMESTAMP_MS, "lt": HIGH_CPU_UNTIL_MS}}},
            ),
        }
        return [tuple(_values(hit, names)) for hit in self._scrolled(question)]

    def _last_point(self) -> list[tuple[Any, ...]]:
        columns = [self.job.schema.column(name) for name in ("ts", *METRICS)]
        return [(host, *values) for host, values in self._newest(*columns)]

    def _search(self, question: Mapping[str, Any]) -> Any:
        return search(self._opened(), self.options.index(self.job.schema.table), question)

    def _buckets(self, columns: Sequence[str], aggregations: Mapping[str, Any]) -> Iterator[Any]:
        index = self.options.index(self.job.schema.table)
        return buckets(self._opened(), index, self.job.schema, columns, aggregations)

    def _scrolled(self, question: Mapping[str, Any]) -> Iterator[Any]:
        """All hits, page by page (a scroll is never answered from the request cache)."""
        index = self.options.index(self.job.schema.table)
        answer = self._ask("POST", f"/{index}/_search?scroll=1m&{_WHOLE}", question)
        try:
            while hits := answer["hits"]["hits"]:
                yield from hits
                more = {"scroll": "1m", "scroll_id": answer["_scroll_id"]}
                answer = self._ask("POST", "/_search/scroll", more)
        finally:
            self._ask("DELETE", "/_search/scroll", {"scroll_id": answer["_scroll_id"]})

    def _opened(self) -> _Connection:
        if self._connection is None:
            self.open()
        assert self._connection is not None
        return self._connection

    def _ask(self, method: str, target: str, body: object = None) -> Any:
        return self._opened().ask(method, target, body)


# An answer from a part of the shards would pass for one from all.
_WHOLE = "allow_partial_search_results=false"


def _field(schema: Schema, column: Column) -> dict[str, Any]:
    """The mapping of a column."""
    if column.name == schema.device and schema.device_path:
        return {
            "type": "object",
            "dynamic": "true",
            "properties": {schema.device_path: {"type": "keyword"}},
        }
    return _FIELD_TYPES[column.type]


def _all_of(*conditions: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions that don't rank."""
    return {"bool": {"filter": list(conditions)}}


def _values(hit: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The values of a hit's docvalue_fields; dates, which come as text, as numbers."""
    fields = hit["fields"]
    return [int(v) if name == "ts" else v for name in names for v in fields[name]]


def refresh(connection: _Connection, names: str) -> None:
    """Make all that is stored visible, on every primary shard."""
    shards = connection.ask("POST", f"/{names}/_refresh")["_shards"]
    if shards["successful"] < shards["total"]:
        # It skips shards that aren't there: replicas without a node, which don't matter, and
        # primaries that are being recovered after a start.
        connection.ask(
            "GET", f"/_cluster/health/{names}?wait_for_status=yellow&timeout={_SHARDS_READY_S}s"
        )
        connection.ask("POST", f"/{names}/_refresh")


def search(connection: _Connection, names: str, question: Mapping[str, Any]) -> Any:
    """A search that is really made: an answer from the request cache measures nothing."""
    return connection.ask("POST", f"/{names}/_search?request_cache=false&{_WHOLE}", question)


def buckets(
    connection: _Connection,
    names: str,
    schema: Schema,
    columns: Sequence[str],
    aggregations: Mapping[str, Any],
    query: Mapping[str, Any] | None = None,
) -> Iterator[Any]:
    """The events grouped by columns, all groups, page by page."""
    groups: dict[str, Any] = {
        "size": _PAGE,
        "sources": [{name: {"terms": {"field": field_of(schema, name)}}} for name in columns],
    }
    question: dict[str, Any] = {"size": 0, "track_total_hits": False}
    if query:
        question["query"] = query
    while True:
        grouping: dict[str, Any] = {"composite": groups}
        if aggregations:
            grouping["aggs"] = aggregations
        answer = search(connection, names, question | {"aggs": {"groups": grouping}})
        found = answer["aggregations"]["groups"]
        yield from found["buckets"]
        if len(found["buckets"]) < _PAGE:
            return
        groups["after"] = found["after_key"]


class ElasticsearchWriter(Writer):
    """Sends payloads of `DocumentEncoder`; by several threads if `max_in_flight` says so."""

    encoder: DocumentEncoder

    def __init__(self, encoder: DocumentEncoder, options: ElasticsearchOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.max_in_flight
        self._options = options
        self._job = job
        self._name = f"iot-benchmark {job.run_id}"
        self._connection: _Connection | None = None
        self._own = threading.local()
        """Each thread's name at the server, which has to tell requests under way apart."""
        self._numbers = itertools.count()

    def open(self) -> None:
        connection = _Connection(self._options, self._name)
        connection.check()
        self._connection = connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, payload: Payload) -> int:
        connection = self._connection
        assert connection is not None
        request: Request = payload.data
        name = self._thread_name()
        try:
            status, answer = connection.write(request, name)
        except Retryable:
            self._doubt(request, name)
            raise
        if status == _CREATED:
            return request.stored + 1
        if status == _OK and self.encoder.mode is InsertMode.BULK:
            if answer.startswith(b'{"errors":false'):
                return request.stored + answer.count(_STORED)
            return self._partly(request, name, orjson.loads(answer)["items"])
        if status == _CONFLICT and request.sent_before:
            return request.stored + 1
        if status >= _SERVER_ERROR:
            self._doubt(request, name)
        raise connection.refusal(status, parsed(answer))

    def _partly(self, request: Request, name: str, items: Sequence[Mapping[str, Any]]) -> int:
        """Events stored, if all that weren't are stored already; else the first one's error, with
        only those that may be sent again left in the request."""
        assert self._connection is not None
        kept: list[int] = []
        failure: Retryable | None = None
        for position, item in enumerate(items):
            [result] = item.values()
            status = result["status"]
            if status == _CREATED or (status == _CONFLICT and request.sent_before):
                continue
            meaning = self._connection.refusal(status, result)
            if isinstance(meaning, SimulatorError):
                raise meaning
            failure = failure or meaning
            kept.append(position)
            if status >= _SERVER_ERROR:
                self._doubt(request, name)
        request.stored += len(items) - len(kept)
        if failure is None:
            return request.stored
        request.keep(kept)
        raise failure

    def _thread_name(self) -> str:
        name: str | None = getattr(self._own, "name", None)
        if name is None:
            # Few names, used again: a server that logs deprecations does so once per name.
            name = self._own.name = f"{self._name} {id(self):x}-{next(self._numbers)}"
        return name

    def _doubt(self, request: Request, name: str) -> None:
        request.in_doubt = name
        request.sent_before = True
        # What is still at work under this name must stay apart from what is sent later.
        self._own.name = None

    def recover(self, payload: Payload) -> bool:
        request: Request = payload.data
        if request.in_doubt is None:
            return False
        if self._job.load.primary_key is not PrimaryKey.CLIENT:
            self._await_end(request.in_doubt)
            kept = self._missing(payload)
            request.stored += len(request.rows) - len(kept)
            request.keep(kept)
        request.in_doubt = None
        return not request.rows

    def _await_end(self, name: str) -> None:
        """Wait until no node is at work on what was sent under that name, nor begins to."""
        assert self._connection is not None
        began = idle_since = time.monotonic()
        while (now := time.monotonic()) - idle_since < _SETTLE_S:
            answer = self._connection.ask("GET", "/_tasks?actions=indices:data/write/*")
            if "node_failures" in answer:
                raise Retryable(_LOST, f"a node doesn't answer: {reason(answer['node_failures'])}")
            tasks = [task for node in answer["nodes"].values() for task in node["tasks"].values()]
            if any(task["headers"].get("X-Opaque-Id") == name for task in tasks):
                if now - began > _TASK_END_S:
                    raise Retryable(_LOST, "the server is still at work on the request")
                idle_since = time.monotonic()
            # The server has no event for the end of a task of another connection to wait for.
            time.sleep(_TASK_POLL_S)

    def _missing(self, payload: Payload) -> list[int]:
        """Which of the request's rows (positions in it) aren't stored."""
        assert self._connection is not None
        request: Request = payload.data
        schema, tables = self._job.schema, self._job.table_names
        names = ",".join(map(self._options.index, tables))
        refresh(self._connection, names)
        first = payload.last + 1 - payload.events
        missing: list[int] = []
        for start, stop in bounds(len(request.rows), _LOOK_UP):
            keys = [
                tuple(payload.block.key_of(first + row).values())
                for row in request.rows[start:stop]
            ]
            conditions: list[dict[str, Any]] = []
            for name, values in zip(schema.key, zip(*keys, strict=True), strict=True):
                field = field_of(schema, name)
                if isinstance(values[0], str):
                    conditions.append({"terms": {field: sorted(set(values))}})
                else:
                    conditions.append({"range": {field: {"gte": min(values), "lte": max(values)}}})
            found = {
                tuple(bucket["key"][name] for name in schema.key)
                for bucket in buckets(
                    self._connection, names, schema, schema.key, {}, _all_of(*conditions)
                )
            }
            missing.extend(start + at for at, key in enumerate(keys) if key not in found)
        return missing
