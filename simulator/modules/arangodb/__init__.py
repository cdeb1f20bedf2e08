"""ArangoDB 3.11 and later, a single server or a cluster's coordinator.

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
* keys `db` and `uuid`: the server makes the keys and would store a second copy. `recover` looks up by
  their natural keys which of the request's events are stored, until twice in a row it finds the same,
  and leaves only the others to be sent again.

What can't be promised for `db` and `uuid`: that a server so busy that it begins with the lost request
only after that doesn't store it then. ArangoDB doesn't tell which requests are under way. The count
after the run shows it; with `client` it can't happen.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from arango.client import ArangoClient
from arango.collection import StandardCollection
from arango.database import StandardDatabase
from arango.exceptions import ArangoServerError
from arango.http import HTTPClient
from arango.response import Response
from pydantic import Field, field_validator

from ...conditions import Condition
from ...contract import PrimaryKey
from ...errors import OptionError, Retryable, SimulatorError, one_line
from ...workloads.base import FIRST_TIMESTAMP_MS, ColumnType, Schema
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from ..base import Capabilities, Encoding, Job, Module, Options, Payload, Query, Support, Writer
from ..shared.http import HttpPool, NoAnswer, basic_auth, parsed, translated
from ..shared.options import checked_url
from ..shared.tls import trusted
from .encoding import DocumentEncoder, InsertMethod, Request

_DEFAULT_PORT = 8529
_CONNECT_S = 5.0
# Characters of an answer in a message.
_SHOWN = 300
_JSON = {"content-type": "application/json"}
_TRUST = "ca_certs (or set verify_certs=false)"

# https://docs.arangodb.com/stable/develop/error-codes/
_WRITE_CONFLICT, _NO_COLLECTION, _UNIQUE, _NO_DATABASE = 1200, 1203, 1210, 1228
_QUEUE_FULL, _QUEUED_TOO_LONG = 21003, 21004

# Rows in one page of an answer.
_PAGE = 10_000

# How far apart the two look-ups are that must agree on what a lost request has stored.
_SETTLED_S = 0.3

_METRICS = ", ".join(f"e.{name}" for name in METRICS)
_HOSTS = ", ".join(f'"{host}"' for host in MAX_ALL_HOSTS)

# AQL compares arrays element by element, so that the greatest [time, value] is the newest.
QUERIES = {
    "count-events": "RETURN [LENGTH(events)]",
    "temperature-min-max": """
        FOR e IN events
        COLLECT AGGREGATE low = MIN(e.temperature), high = MAX(e.temperature)
        RETURN [low, high]""",
    "temperature-stats": """
        FOR e IN events
        COLLECT AGGREGATE low = MIN(e.temperature), mean = AVERAGE(e.temperature),
            high = MAX(e.temperature)
        RETURN [low, mean, high]""",
    "temperature-stats-per-device": """
        FOR e IN events
        COLLECT device = e.device_id AGGREGATE low = MIN(e.temperature),
            mean = AVERAGE(e.temperature), high = MAX(e.temperature)
        RETURN [device, low, mean, high]""",
    "newest-per-device": """
        FOR e IN events
        COLLECT device = e.device_id AGGREGATE newest = MAX([e.timestamp, e.temperature])
        RETURN [device, newest[1]]""",
    "cpu-max-all": f"""
        FOR e IN cpu
        FILTER e.tags.hostname IN [{_HOSTS}]
            AND e.ts >= {FIRST_TIMESTAMP_MS} AND e.ts < {MAX_ALL_UNTIL_MS}
        COLLECT hour = e.ts - e.ts % {HOUR_MS}
            AGGREGATE {", ".join(f"max_{name} = MAX(e.{name})" for name in METRICS)}
        RETURN [hour, {", ".join(f"max_{name}" for name in METRICS)}]""",
    "high-cpu": f"""
        FOR e IN cpu
        FILTER e.usage_user > {HIGH_CPU_ABOVE}
            AND e.ts >= {FIRST_TIMESTAMP_MS} AND e.ts < {HIGH_CPU_UNTIL_MS}
        RETURN [e.tags.hostname, e.ts, {_METRICS}]""",
    "last-point": f"""
        FOR e IN cpu
        COLLECT host = e.tags.hostname AGGREGATE newest = MAX([e.ts, {_METRICS}])
        RETURN APPEND([host], newest)""",
}

_RESULT = TypeVar("_RESULT")


class EncodingOptions(Options):
    """Options that say what a payload looks like."""

    insert_method: Annotated[InsertMethod | None, Condition.BATCH] = Field(
        None,
        description="how events are sent: document (default with --batch) or import, the APIs of "
        "these names; single (default without --batch)",
    )

    def method(self, batch: int) -> InsertMethod:
        """The method for requests of `batch` events; OptionError if they don't fit."""
        if batch and self.insert_method is InsertMethod.SINGLE:
            raise OptionError("insert_method=single sends each event alone: leave --batch out")
        if not batch and self.insert_method not in (None, InsertMethod.SINGLE):
            raise OptionError(f"insert_method={self.insert_method} needs --batch N")
        if not batch:
            return InsertMethod.SINGLE
        return self.insert_method or InsertMethod.DOCUMENT


class ArangoOptions(EncodingOptions):
    """Options of targets with `module: arangodb`."""

    endpoint: Annotated[str, Condition.NONE] = Field(
        min_length=1, description="the server's or a coordinator's URL: http[s]://HOST[:8529]"
    )
    database: Annotated[str, Condition.NONE] = Field(
        "_system", min_length=1, description="a database that is there"
    )
    username: Annotated[str, Condition.NONE] = Field("root", description="user name")
    password: str = Field("", repr=False, description="the user's password")
    ca_certs: Annotated[str | None, Condition.NONE] = Field(
        None, description="authorities to trust: a PEM file, or its text (default: the usual ones)"
    )
    verify_certs: Annotated[bool, Condition.NONE] = Field(
        True, description="check the server's certificate"
    )
    replication_factor: Annotated[int, Condition.REPLICATION] = Field(
        1, ge=1, le=10, description="copies of each document (in a cluster)"
    )
    shard_count: Annotated[int | None, Condition.REPLICATION] = Field(
        None,
        ge=1,
        le=1000,
        description="shards per collection (in a cluster; default: the server's)",
    )
    sync: Annotated[bool, Condition.DURABILITY] = Field(
        False, description="acknowledge documents once they are on disk (waitForSync)"
    )
    create_indices: bool = Field(
        False, description="create the indices on device, time and temperature before the queries"
    )
    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description="requests that a worker keeps under way at once"
    )
    request_timeout_s: Annotated[float, Condition.NONE] = Field(
        60, gt=0, description="how long to wait for an answer, in seconds"
    )

    @field_validator("endpoint")
    @classmethod
    def _url(cls, value: str) -> str:
        return checked_url(
            value, "http://arangodb.example:8529", "username and password", path=False
        )

    def secrets(self) -> list[str]:
        return [self.password] if self.password else []

    def public(self) -> dict[str, Any]:
        return super().public() | {"password": "***"}

    @property
    def server(self) -> str:
        """host:port, for messages."""
        parts = urlsplit(self.endpoint)
        return f"{parts.hostname}:{parts.port or _DEFAULT_PORT}"

    def trusted(self) -> ssl.SSLContext | None:
        """Whom to trust if the endpoint says https; SimulatorError if `ca_certs` can't be used."""
        return trusted([self.endpoint], self.ca_certs, self.verify_certs)


class ArangoHttp(HTTPClient):
    """Requests in, answers out; what is no answer becomes our errors.

    The client's own layer would try some requests again by itself, hides why it can't connect, and
    takes several times the CPU.
    """

    def __init__(self, options: ArangoOptions, run_id: str) -> None:
        """Connects to nothing yet. SimulatorError if `ca_certs`, or a header, can't be used."""
        self._options = options
        headers = {
            "user-agent": f"iot-benchmark {run_id}",
            "authorization": basic_auth(options.username, options.password),
        }
        self._pool = HttpPool(
            [options.endpoint], _DEFAULT_PORT, headers, options.request_timeout_s, options.trusted()
        )
        self._database = f"/_db/{quote(options.database, safe='')}"

    def close(self) -> None:
        """Close all connections that nobody uses."""
        self._pool.close()

    def check(self) -> None:
        """Connect; SimulatorError with a remedy if that fails."""
        timeout = min(_CONNECT_S, self._options.request_timeout_s)
        try:
            status, body = self.request("GET", f"{self._database}/_api/version", timeout_s=timeout)
        except Retryable as error:
            raise SimulatorError(
                f"can't connect to ArangoDB at {error};"
                " check that the server runs and that endpoint names it"
            ) from error
        if status != 200:
            raise self.meaning(status, parsed(body))

    def write(self, path: str, body: bytes) -> tuple[int, bytes]:
        """POST a body to an API of the database; Retryable if there is no answer."""
        return self.request("POST", self._database + path, body, _JSON)

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> tuple[int, bytes]:
        """An answer's status and body, whatever they are; Retryable if there is none."""
        try:
            answer = self._pool.request(method, target, body, headers, timeout_s)
        except NoAnswer as error:
            raise translated(error, "ArangoDB", self._options.server, _TRUST) from error
        return answer.status, answer.body

    def create_session(self, host: str) -> Any:
        """The client keeps one per host, for what isn't its own layer to keep."""
        return self

    def send_request(
        self,
        session: Any,
        method: str,
        url: str,
        headers: Any = None,
        params: Any = None,
        data: Any = None,
        auth: Any = None,
    ) -> Response:
        """What the client asks. Raises what it can't know to be worth another try, or whose fault."""
        parts = urlsplit(url)
        target = f"{parts.path}?{urlencode(params)}" if params else parts.path
        content = data.encode() if isinstance(data, str) else data or b""
        status, body = self.request(method.upper(), target, content, headers)
        text = body.decode(errors="replace")
        if status in (401, 403) or status in _PASSING or status >= 500:
            raise self.meaning(status, parsed(body))
        return Response(method, url, {}, status, "", text)

    def meaning(self, status: int, answer: object) -> Retryable | SimulatorError:
        """What an answer that is an error means: worth another try, or the end of the run."""
        options = self._options
        number = answer.get("errorNum") if isinstance(answer, dict) else None
        message = answer.get("errorMessage", "") if isinstance(answer, dict) else answer
        text = f"ArangoDB at {options.server}: {status} {one_line(message, _SHOWN)}"
        if status == 401:
            return SimulatorError(f"{text}; check username and password")
        if status == 403:
            return SimulatorError(f"{text}; give the user the rights, or use another one")
        if number == _NO_DATABASE:
            return SimulatorError(
                f"{text}; check database, which must be there: {options.database}"
            )
        if number == _NO_COLLECTION:
            return SimulatorError(f"{text}; run insert first, or without --no-clean")
        if status == 413:
            return SimulatorError(f"{text}; use a smaller --batch")
        if number == _UNIQUE:
            return stored_before(text)
        if number == _WRITE_CONFLICT:
            return Retryable("write_conflict", text, backoff_s=0.01)
        if status == 429 or number in (_QUEUED_TOO_LONG, _QUEUE_FULL):
            return Retryable("too_many_requests", text)
        if status in _PASSING or status >= 500:
            return Retryable("unavailable", text)
        return SimulatorError(text)


# 408: a gateway lost patience; 421: another server leads by now; 429 and, after
# x-arango-queue-time-seconds, 412: too busy.
_PASSING = (408, 412, 421, 429)


def stored_before(text: str) -> SimulatorError:
    return SimulatorError(
        f"{text}; an earlier run has stored the event: run without --no-clean, or with another --seed"
    )


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
        queries=dict.fromkeys(QUERIES, Support.FULL),
        indices=Support.FULL,
        column_types=frozenset(ColumnType),
    )
    ENCODINGS = (
        Encoding("document", {"insert_method": "document"}),
        Encoding("import", {"insert_method": "import"}),
        Encoding("single", {"insert_method": "single"}, batched=False),
    )

    def __init__(self, options: ArangoOptions, job: Job) -> None:
        super().__init__(options, job)
        self.options.method(job.load.batch)
        self._http: ArangoHttp | None = None
        self._database: StandardDatabase | None = None

    @classmethod
    def encoder(cls, options: EncodingOptions, job: Job, batch: int) -> DocumentEncoder:
        return DocumentEncoder(job, options.method(batch))

    def writer(self, batch: int, prefill: bool = False) -> ArangoWriter:
        options = self.options
        if prefill and options.insert_method is InsertMethod.SINGLE:
            options = options.model_copy(update={"insert_method": None})
        return ArangoWriter(self.encoder(options, self.job, batch), options, self.job)

    def open(self) -> None:
        self._http, self._database = connected(self.options, self.job.run_id)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
        self._http = self._database = None

    def prepare(self) -> None:
        database = self._opened()
        if self.job.clean:
            for table in self.job.all_table_names:
                self._asked(partial(database.delete_collection, table, ignore_missing=True))
        for table in self.job.table_names:
            if not self._is_there(table):
                self._asked(
                    partial(
                        database.create_collection,
                        table,
                        sync=self.options.sync,
                        replication_factor=self.options.replication_factor,
                        shard_count=self.options.shard_count,
                        key_generator=(
                            "uuid"
                            if self.job.load.primary_key is PrimaryKey.UUID
                            else "traditional"
                        ),
                    )
                )

    def _is_there(self, table: str) -> bool:
        return bool(self._asked(partial(self._opened().has_collection, table)))

    def prepare_queries(self) -> None:
        table = self.job.schema.table
        if not self._is_there(table):
            raise SimulatorError(
                f"there is no table {table} to query: run insert first, with --tables single"
            )
        if self.options.create_indices:
            for name, fields in self._indices().items():
                index = {"type": "persistent", "name": name, "fields": fields}
                self._asked(partial(self._collection(table).add_index, index))

    def _indices(self) -> dict[str, list[str]]:
        schema = self.job.schema
        values = [column.name for column in schema.columns if column.type is ColumnType.FLOAT32]
        device = f"{schema.device}.{schema.device_path}" if schema.device_path else schema.device
        indices = {"events_device_ts": [device, schema.time, *values]}
        return indices | ({"events_temp": values} if values else {})

    def count(self) -> int:
        return sum(self._asked(self._collection(table).count) for table in self.job.table_names)

    def workload_queries(self) -> Mapping[str, Query]:
        return {name: partial(self._rows, QUERIES[name]) for name in self.job.schema.queries}

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        database = self._opened()
        assert self._http is not None
        return rows(self._http, database, query, {})

    def server_info(self) -> dict[str, Any]:
        version = self._asked(partial(self._opened().version, details=True))
        settings: dict[str, Any] = {"role": self._asked(self._opened().role)}
        table = self.job.table_names[0]
        if self._is_there(table):
            found = self._asked(self._collection(table).properties)
            names = ("sync", "replication_factor", "write_concern", "shard_count", "key_options")
            settings |= {name: found[name] for name in names if name in found}
        edition = version.get("license", "")
        return {"version": f"ArangoDB {version['version']} {edition}".strip(), "settings": settings}

    def _opened(self) -> StandardDatabase:
        if self._database is None:
            self.open()
        assert self._database is not None
        return self._database

    def _collection(self, table: str) -> StandardCollection:
        return self._opened().collection(table)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What the client answers, its errors translated."""
        self._opened()
        assert self._http is not None
        return asked(self._http, ask)


def connected(options: ArangoOptions, run_id: str) -> tuple[ArangoHttp, StandardDatabase]:
    """A connection, and the client over it; SimulatorError with a remedy if nobody lets us in."""
    http = ArangoHttp(options, run_id)
    try:
        http.check()
    except SimulatorError:
        http.close()
        raise
    client = ArangoClient(hosts=options.endpoint, http_client=http)
    # The connection has the password already: the client's idea of it goes nowhere. Of the database's
    # name it makes a path as it is.
    return http, client.db(quote(options.database, safe=""), username=options.username, password="")


def asked(http: ArangoHttp, ask: Callable[[], _RESULT]) -> _RESULT:
    """What the client answers, its errors translated."""
    try:
        return ask()
    except ArangoServerError as error:
        answer = {"errorNum": error.error_code, "errorMessage": error.message}
        raise http.meaning(error.http_code, answer) from error


def rows(
    http: ArangoHttp, database: StandardDatabase, query: str, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """All rows of a query that returns arrays."""

    def ask() -> list[tuple[Any, ...]]:
        cursor = database.aql.execute(query, batch_size=_PAGE, bind_vars=values, cache=False)
        return [tuple(row) for row in cursor]  # type: ignore[union-attr]

    return asked(http, ask)


def _paths(schema: Schema, names: Sequence[str]) -> Iterator[str]:
    """How AQL names these columns of event e; the device's by its id."""
    for name in names:
        path = schema.device_path if name == schema.device else None
        yield f"e.`{name}`.`{path}`" if path else f"e.`{name}`"


class ArangoWriter(Writer):
    """Sends payloads of `DocumentEncoder`."""

    encoder: DocumentEncoder

    def __init__(self, encoder: DocumentEncoder, options: ArangoOptions, job: Job) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.max_in_flight
        self._options = options
        self._job = job
        self._client_key = job.load.primary_key is PrimaryKey.CLIENT
        self._http: ArangoHttp | None = None
        self._database: StandardDatabase | None = None
        sync = str(options.sync).lower()
        names = job.table_names
        self._document_paths = [
            f"/_api/document/{name}?silent=true&waitForSync={sync}" for name in names
        ]
        self._import_paths = [
            f"/_api/import?collection={name}&type=documents&details=true&waitForSync={sync}"
            for name in names
        ]

    def open(self) -> None:
        self._http, self._database = connected(self._options, self._job.run_id)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
        self._http = self._database = None

    def send(self, payload: Payload) -> int:
        return sum(self._send_request(request) for request in payload.data)

    def _send_request(self, request: Request) -> int:
        """Send what is left of a request; how many of its events are stored."""
        if not request.rows:
            return request.stored
        request.in_doubt = True
        if request.method is InsertMethod.IMPORT:
            self._import(request)
        else:
            self._store(request)
        request.in_doubt = False
        request.stored += len(request.rows)
        request.rows = ()
        return request.stored

    def _store(self, request: Request) -> None:
        """https://docs.arangodb.com/stable/develop/http-api/documents/#create-multiple-documents"""
        assert self._http is not None
        status, body = self._http.write(self._document_paths[request.table], request.body)
        if status in (201, 202):
            # Silently: nothing of the documents that are stored.
            if body in (b"{}", b"[]"):
                return
            errors = parsed(body)
        else:
            errors = [parsed(body)]
        if not isinstance(errors, list):
            raise SimulatorError(
                f"ArangoDB gave an answer that makes no sense: {one_line(body, _SHOWN)}"
            )
        again = request.sent_before and self._client_key
        left = [error for error in errors if not (again and _number(error) == _UNIQUE)]
        if left:
            raise self._worst(request, status, left)

    def _worst(
        self, request: Request, status: int, errors: Sequence[Any]
    ) -> Retryable | SimulatorError:
        """What the errors of a request mean together."""
        assert self._http is not None
        worst: Retryable | SimulatorError | None = None
        for error in errors:
            found = self._http.meaning(status, error)
            if isinstance(found, SimulatorError):
                return found
            worst = found
        assert worst is not None
        # Then it has done nothing.
        refused = status == 429 or _number(errors[0]) in (_QUEUE_FULL, _QUEUED_TOO_LONG)
        request.in_doubt = not refused
        return worst

    def _import(self, request: Request) -> None:
        """https://docs.arangodb.com/stable/develop/http-api/import/"""
        assert self._http is not None
        again = request.sent_before and self._client_key
        path = self._import_paths[request.table] + (
            "&onDuplicate=ignore" if again else "&onDuplicate=error"
        )
        status, body = self._http.write(path, request.body)
        answer = parsed(body)
        if status != 201:
            raise self._worst(request, status, [answer])
        if answer["created"] + answer["ignored"] == len(request.rows):
            return
        details = answer.get("details") or [one_line(body, _SHOWN)]
        refused = [detail for detail in details if "conflict" not in detail]
        if not refused:
            raise Retryable("write_conflict", one_line(details[0], _SHOWN), backoff_s=0.01)
        text = f"ArangoDB at {self._options.server}: {one_line(refused[0], _SHOWN)}"
        if "unique constraint violated" in refused[0]:
            raise stored_before(text)
        raise SimulatorError(text)

    def recover(self, payload: Payload) -> bool:
        for request in payload.data:
            if not request.in_doubt:
                continue
            if self._client_key:
                request.sent_before = True
            else:
                missing = self._missing(payload, request)
                request.stored += len(request.rows) - len(missing)
                request.keep(missing)
            request.in_doubt = False
        return not any(request.rows for request in payload.data)

    def _missing(self, payload: Payload, request: Request) -> list[int]:
        """Which of the request's rows (positions in `rows`) the database doesn't have."""
        block, first = payload.block, payload.last + 1 - payload.events
        schema = self._job.schema
        keys = [tuple(block.key_of(first + row).values()) for row in request.rows]
        time_position, device_position = map(schema.key.index, (schema.time, schema.device))
        paths = list(_paths(schema, schema.key))
        query = f"""
            FOR e IN @@collection
            FILTER {paths[time_position]} >= @first AND {paths[time_position]} <= @last
                AND {paths[device_position]} IN @devices
            RETURN [{", ".join(paths)}]"""
        values = {
            "@collection": self._job.table_names[request.table],
            "first": min(key[time_position] for key in keys),
            "last": max(key[time_position] for key in keys),
            "devices": sorted({str(key[device_position]) for key in keys}),
        }
        assert self._http is not None and self._database is not None
        found: set[tuple[Any, ...]] | None = None
        while found != (stored := set(rows(self._http, self._database, query, values))):
            found = stored
            # The server may still be at work on the request, and has no event for its end.
            time.sleep(_SETTLED_S)
        return [position for position, key in enumerate(keys) if key not in stored]


def _number(error: Any) -> Any:
    return error.get("errorNum") if isinstance(error, dict) else None
