"""Connections to both kinds of server: requests in, answers out, and what an error means."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import elastic_transport
import orjson
from elastic_transport import NodeConfig
from elasticsearch import ApiError, UnsupportedProductError
from elasticsearch import Elasticsearch as ElasticClient
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from ...errors import Retryable, SimulatorError, one_line
from .._base.errors import lost_table, missing_table, stored_by_earlier_run, unreachable
from .._base.http import (
    CONNECT_TIMEOUT_S,
    Answer,
    AnswerTimeout,
    ConnectionLost,
    HttpPool,
    NoAnswer,
    Probe,
    TlsRefused,
    interpret_no_answer,
    parse_body,
)
from .._base.options import TRUST_REMEDY
from ..base import Job
from .encoding import Request
from .options import ElasticsearchOptions, Flavor

OK, CREATED, CONFLICT, SERVER_ERROR = 200, 201, 409, 500
_BAD_REQUEST, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND = 400, 401, 403, 404
_TIMED_OUT, _TOO_LARGE, _TOO_MANY_REQUESTS = 408, 413, 429

# A node answers it once it has joined the others and knows who leads them, whatever is wrong with them.
_PROBE = Probe("GET", "/_cluster/health")

# How long to wait for shards that are being recovered, before the next try.
_SHARDS_READY_S = 5


class _NotSent(elastic_transport.ConnectionError):
    """No connection could be made: another node can be asked."""


class Connection:
    """A cluster of either kind, as a job needs it; errors come translated."""

    def __init__(self, options: ElasticsearchOptions, job: Job, by_client: bool = False) -> None:
        """Connects to nothing yet. `by_client`: what is asked goes through Elastic's client.

        Raises SimulatorError if `ca_certs` or a header can't be used.
        """
        self._options = options
        self._job = job
        self._server = options.server
        self.expects_tables = False
        """Whether the job's indices have been made: a node that doesn't know them has not caught up."""
        self.name = f"iot-benchmark {job.run_id}"
        """The name under which the server lists the requests."""
        login, tls = options.login(), options.make_tls_context()
        self._pool = HttpPool(
            options.endpoint,
            options.DEFAULT_PORT,
            login,
            options.request_timeout_s,
            tls,
            job.stamps_arrivals,
            _PROBE,
        )
        # Whether a request may be sent again isn't for the client to decide.
        once: dict[str, Any] = {"max_retries": 0, "retry_on_status": ()}
        nodes = configure_nodes(options, {**login, "x-opaque-id": self.name}, tls)
        self._client = ElasticClient(nodes, **once) if by_client else None

    def check(self) -> None:
        """Connect to all nodes; SimulatorError with a remedy if none lets us in."""
        failure: Retryable | None = None
        failures = 0
        timeout_s = min(CONNECT_TIMEOUT_S, self._options.request_timeout_s)
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
        if failure is not None and failures == len(self._options.endpoint):
            raise unreachable(self._options.flavor, failure) from failure

    def close(self) -> None:
        """Close all connections that nobody uses."""
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
            return self._ask_by_client(self._client, method, target, body, timeout_s)
        headers = {"x-opaque-id": self.name, "content-type": "application/json"}
        text = b"" if body is None else orjson.dumps(body)
        found = self._answer(method, target, text, headers, timeout_s)
        answer = parse_body(found.body)
        if found.status >= _BAD_REQUEST:
            raise self.interpret(found.status, answer)
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
            raise interpret_no_answer(
                error, self._options.flavor, self._server, TRUST_REMEDY
            ) from error

    def _ask_by_client(
        self, client: ElasticClient, method: str, target: str, body: object, timeout_s: float
    ) -> Any:
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        limited = client.options(request_timeout=timeout_s)
        try:
            for _ in self._options.endpoint[1:]:
                with suppress(_NotSent):
                    return self._ask_once(limited, method, target, headers, body)
            return self._ask_once(limited, method, target, headers, body)
        except UnsupportedProductError as error:
            raise SimulatorError(
                f"the server at {self._server} isn't Elasticsearch; if it is OpenSearch, set"
                " flavor: opensearch"
            ) from error
        except ApiError as error:
            raise self.interpret(error.status_code, error.body) from error
        except elastic_transport.TransportError as error:
            raise self.interpret_silence(error) from error

    def _ask_once(self, client: ElasticClient, *request: Any) -> Any:
        """_NotSent if the node whose turn it is can't be reached: the client leaves it out then."""
        method, target, headers, body = request
        try:
            return client.perform_request(method, target, headers=headers, body=body).body
        except elastic_transport.TransportError as error:
            if isinstance(error.__cause__, NewConnectionError | ConnectTimeoutError):
                raise _NotSent(error.message, error.errors) from error
            raise

    def interpret(self, status: int, answer: object) -> Retryable | SimulatorError:
        """What an answer that is an error means."""
        text = f"{self._options.flavor} at {self._server}: {status} {describe_error(answer)}"
        if status == _UNAUTHORIZED:
            return SimulatorError(f"{text}; check username and password, or api_key")
        if status == _FORBIDDEN:
            return SimulatorError(f"{text}; give the user the rights, or use another one")
        if status == _NOT_FOUND:
            return lost_table(text) if self.expects_tables else missing_table(text, self._job)
        if status == _TOO_LARGE:
            return SimulatorError(f"{text}; use a smaller --batch")
        if status == CONFLICT:
            return stored_by_earlier_run(text)
        if status == _TOO_MANY_REQUESTS:
            return Retryable("too_many_requests", text)
        if status == _TIMED_OUT or status >= SERVER_ERROR:
            return Retryable("unavailable", text)
        return SimulatorError(text)

    def interpret_silence(
        self, error: elastic_transport.TransportError
    ) -> Retryable | SimulatorError:
        """What it means that the client got no answer."""
        kinds = {
            elastic_transport.TlsError: TlsRefused,
            elastic_transport.ConnectionTimeout: AnswerTimeout,
        }
        kind = kinds.get(type(error), ConnectionLost)
        text = one_line(error.message)
        return interpret_no_answer(kind(text), self._options.flavor, self._server, TRUST_REMEDY)

    def refresh(self, names: str) -> None:
        """Make all that is stored visible, on every primary shard."""
        shards = self.ask("POST", f"/{names}/_refresh")["_shards"]
        if shards["successful"] < shards["total"]:
            # A refresh skips shards that aren't there: replicas without a node, which don't matter, and
            # primaries that are being recovered after a start.
            self.ask(
                "GET", f"/_cluster/health/{names}?wait_for_status=yellow&timeout={_SHARDS_READY_S}s"
            )
            self.ask("POST", f"/{names}/_refresh")


def configure_nodes(
    options: ElasticsearchOptions, headers: Mapping[str, str], tls: ssl.SSLContext | None
) -> list[NodeConfig]:
    """How Elastic's client reaches each node, with these headers in each request."""
    trust: dict[str, Any] = {"ssl_context": tls}
    if not options.verify_certs:
        trust = {"verify_certs": False, "ssl_show_warn": False}
    nodes = []
    for url in options.endpoint:
        parts = urlsplit(url)
        assert parts.hostname is not None
        nodes.append(
            NodeConfig(
                parts.scheme,
                parts.hostname,
                parts.port or options.DEFAULT_PORT,
                path_prefix=parts.path.rstrip("/"),
                headers=headers,
                request_timeout=options.request_timeout_s,
                **(trust if parts.scheme == "https" else {}),
            )
        )
    return nodes


def describe_error(answer: object) -> str:
    """One line out of an error's body, or out of one item of a bulk answer."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if isinstance(error, dict) and "type" in error:
        error = f"{error['type']}: {error.get('reason')}"
    return one_line(error, 300)
