"""The Kubernetes client: plain JSON over the connections and credentials that the client library makes from a
kubeconfig. Each request has a time limit, and requests under way can be broken off.

The library's own calls return objects of its models. Building those takes a second of CPU for one command:
more than all its other requests to the API server.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from urllib3 import HTTPConnectionPool, HTTPResponse
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, ProtocolError

from simulator.errors import one_line

UNREACHABLE = (HTTPError, OSError)
"""What the client raises if the API server doesn't answer. A refusal is an ApiException."""

Item = Mapping[str, Any]
"""An object as the API server describes it."""

Timeout = tuple[float, float]
"""Seconds to connect, and to wait for the next part of an answer."""

# Callers that wait longer on purpose pass their own.
_REQUEST_TIMEOUT_S: Timeout = (5.0, 10.0)

_ANY = "*/*"
_JSON = "application/json"
_BYTES = "application/octet-stream"
# This type merges lists by their keys, as kubectl does.
_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True)
class Kind:
    """A kind of object, and where the API server has it."""

    name: str
    """As in the tool's messages."""
    api: str
    """`api/v1`, or `apis/` with group and version."""
    plural: str

    def locate(self, namespace: str | None = None, *rest: str) -> str:
        """The path of all objects of a namespace (None: of the cluster), or of one object and its
        subresources."""
        space = [] if namespace is None else ["namespaces", namespace]
        return join_path(*self.api.split("/"), *space, self.plural, *rest)


POD = Kind("pod", "api/v1", "pods")
SERVICE = Kind("service", "api/v1", "services")
SECRET = Kind("secret", "api/v1", "secrets")
EVENT = Kind("event", "api/v1", "events")
NODE = Kind("node", "api/v1", "nodes")
NAMESPACE = Kind("namespace", "api/v1", "namespaces")
VOLUME_CLAIM = Kind("volume claim", "api/v1", "persistentvolumeclaims")
LEASE = Kind("lease", "apis/coordination.k8s.io/v1", "leases")
JOB = Kind("job", "apis/batch/v1", "jobs")
NETWORK_POLICY = Kind("networkpolicy", "apis/networking.k8s.io/v1", "networkpolicies")
DISRUPTION_BUDGET = Kind("poddisruptionbudget", "apis/policy/v1", "poddisruptionbudgets")
STATEFUL_SET = Kind("statefulset", "apis/apps/v1", "statefulsets")
DEPLOYMENT = Kind("deployment", "apis/apps/v1", "deployments")
DAEMON_SET = Kind("daemonset", "apis/apps/v1", "daemonsets")
POD_METRICS = Kind("pod's metrics", "apis/metrics.k8s.io/v1beta1", "pods")
ACCESS_REVIEW = Kind("access review", "apis/authorization.k8s.io/v1", "selfsubjectaccessreviews")


def join_path(*parts: str) -> str:
    """A path of these parts, each quoted."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


class KubeClient(ApiClient):
    """Sends requests to the API server. Several threads may use it: each request under way has a connection.

    All methods raise ApiException if the API server refuses, and one of UNREACHABLE if it can't be reached.
    """

    def __init__(
        self, configuration: Configuration, credentials: threading.Lock | None = None
    ) -> None:
        """`credentials`: the lock that a thread holds while it renews the configuration's credentials."""
        super().__init__(configuration)
        self._credentials = credentials or threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        manager = self.rest_client.pool_manager
        manager.pool_classes_by_scheme = _watch_sockets(
            manager.pool_classes_by_scheme, self._sockets
        )

    def make_another(self) -> KubeClient:
        """A client with the same credentials but its own connections, so that it can be broken off
        separately."""
        return KubeClient(self.configuration, self._credentials)

    # --- objects ---------------------------------------------------------------------------------

    def find(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Item]:
        """The objects of a namespace (None: of the cluster) that match the selectors."""
        listing = self.read_json(kind.locate(namespace), labelSelector=labels, fieldSelector=fields)
        items: list[Item] = listing.get("items") or []
        return items

    def get(
        self, kind: Kind, namespace: str | None, name: str, timeout_s: Timeout | None = None
    ) -> Item:
        """One object."""
        return _decode(self._ask("GET", kind.locate(namespace, name), timeout_s=timeout_s))

    def create(self, kind: Kind, namespace: str | None, body: Item) -> Item:
        """Create an object. Returns it as the API server has it."""
        return _decode(self._ask("POST", kind.locate(namespace), body=body))

    def delete(self, kind: Kind, namespace: str, name: str, *, dry_run: bool = False) -> None:
        """Delete an object; Kubernetes deletes what it owns later. `dry_run`: only check whether that would
        work."""
        query = {"propagationPolicy": "Background", "dryRun": "All" if dry_run else ""}
        self._ask("DELETE", kind.locate(namespace, name), query=query).read()

    def patch(
        self, kind: Kind, namespace: str, name: str, body: Item, *, dry_run: bool = False
    ) -> None:
        """Change part of an object. `dry_run`: only check whether that would work."""
        path, query = kind.locate(namespace, name), {"dryRun": "All" if dry_run else ""}
        self._ask("PATCH", path, query=query, body=body, content_type=_PATCH).read()

    def watch(
        self, kind: Kind, namespace: str, *, labels: str = "", window_s: int, timeout_s: Timeout
    ) -> Generator[tuple[str, Item]]:
        """Each change, as ADDED, MODIFIED or DELETED and the object: first the existing objects, then all
        changes until the API server ends the watch, after `window_s`."""
        query = {"watch": "true", "timeoutSeconds": str(window_s), "labelSelector": labels}
        for line in self._stream(kind.locate(namespace), query, timeout_s):
            try:
                change = json.loads(line)
            except ValueError:
                return  # the line was cut off with the connection
            item = change["object"]
            if change["type"] == "ERROR":
                reason = f"{item.get('reason')}: {item.get('message')}"
                raise ApiException(status=item.get("code"), reason=reason)
            yield change["type"], item

    # --- what isn't an object --------------------------------------------------------------------

    def read_json(self, path: str, **query: str) -> Mapping[str, Any]:
        """The JSON object at a path. Empty parameters are left out."""
        return _decode(self._ask("GET", path, query=query))

    def read_text(self, path: str) -> str:
        """The text at a path."""
        return _read(self._ask("GET", path, accept=_ANY)).decode(errors="replace")

    def read_version(self) -> str:
        """The API server's version, such as `v1.34.0`."""
        return str(self.read_json("/version")["gitVersion"])

    def read_log(self, namespace: str, pod: str, container: str) -> bytes:
        """A container's log so far."""
        query = {"container": container}
        return _read(self._ask("GET", POD.locate(namespace, pod, "log"), query=query, accept=_ANY))

    def follow_log(
        self, namespace: str, pod: str, container: str, timeout_s: Timeout
    ) -> Generator[str]:
        """The lines of a container's log, until the log ends."""
        query = {"container": container, "follow": "true"}
        return self._stream(POD.locate(namespace, pod, "log"), query, timeout_s)

    def ask_service(
        self,
        namespace: str,
        service: str,
        path: str,
        headers: Mapping[str, str],
        timeout_s: Timeout,
        content: bytes | None = None,
    ) -> tuple[int, bytes]:
        """GET from a service, as `name:port`, through the API server's proxy, or POST this content to it.
        Returns status and body; a refusal by the API server itself is a status, too."""
        try:
            answer = self._ask(
                "GET" if content is None else "POST",
                SERVICE.locate(namespace, service, "proxy", path),
                body=content, content_type=_BYTES, headers=headers, accept=_ANY, timeout_s=timeout_s,
            )  # fmt: skip
        except ApiException as error:
            return int(error.status or 0), str(error.body or "").encode()
        return int(answer.status), _read(answer)

    # --- requests --------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Item | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        accept: str = _JSON,
        content_type: str = _JSON,
        timeout_s: Timeout | None = None,
    ) -> Any:
        """The answer, of which only the head has been read; ApiException if it is a refusal."""
        all_headers = {"Accept": accept, **(headers or {})}
        if body is not None:
            all_headers["Content-Type"] = content_type
        request = self.param_serialize(
            method, path, query_params=[pair for pair in (query or {}).items() if pair[1]],
            header_params=all_headers, body=body, auth_settings=["BearerToken"],
        )  # fmt: skip
        answer = self.call_api(*request, _request_timeout=timeout_s)
        if not 200 <= answer.status <= 299:
            answer.read()
            raise ApiException.from_response(http_resp=answer, body=None, data=None)
        return answer

    def _stream(self, path: str, query: Mapping[str, str], timeout_s: Timeout) -> Generator[str]:
        """The lines of an answer, as they arrive."""
        answer = self._ask("GET", path, query=query, accept=_ANY, timeout_s=timeout_s)
        response: HTTPResponse = answer.response
        try:
            yield from _split_lines(response)
        finally:
            response.close()
            response.release_conn()

    def call_api(self, *arguments: Any, **options: Any) -> Any:
        """All requests pass through here. One without a time limit gets one: a network may swallow
        everything."""
        options["_request_timeout"] = options.get("_request_timeout") or _REQUEST_TIMEOUT_S
        return super().call_api(*arguments, **options)

    def close(self) -> None:
        """Close all connections."""
        super().close()  # type: ignore[no-untyped-call]

    def update_params_for_auth(self, *arguments: Any, **options: Any) -> None:
        """One thread at a time: this renews expired credentials."""
        with self._credentials:
            super().update_params_for_auth(*arguments, **options)

    def break_off(self) -> None:
        """End the requests that other threads have under way; they raise one of UNREACHABLE.

        A thread that is still reading when the interpreter exits aborts it, and a thread may read from a dead
        server for minutes.
        """
        for connection in list(self._sockets):
            with suppress(OSError):
                # On the plain socket below TLS: there is nobody left to say goodbye to.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _read(answer: Any) -> bytes:
    return bytes(answer.read())


def _decode(answer: Any) -> Mapping[str, Any]:
    text = _read(answer)
    try:
        document: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        said = one_line(text.decode(errors="replace"), 100)
        raise ProtocolError(f"what answers isn't the API server: {said}") from error
    return document


def _split_lines(response: HTTPResponse) -> Iterator[str]:
    rest = b""
    # Whatever has arrived: `stream` would wait for all of it if a proxy has undone the chunked encoding.
    while chunk := response.read1(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


def _watch_sockets(
    pools: Mapping[str, type[HTTPConnectionPool]], sockets: WeakSet[socket.socket]
) -> dict[str, type[HTTPConnectionPool]]:
    """The same pools, including those of a SOCKS proxy, with connections that add their sockets to
    `sockets`."""

    def watch(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
        usual: type[HTTPConnection] = pool.ConnectionCls  # type: ignore[assignment]

        class Watched(usual):  # type: ignore[valid-type,misc]
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

        return type(pool.__name__, (pool,), {"ConnectionCls": Watched})

    return {scheme: watch(pool) for scheme, pool in pools.items()}


# A run's pods as the API server describes them. A service mesh or a log collector may have injected
# containers beside the chart's own. Pure.

COLLECTOR = "collector"
WORKER = "worker"


def read_component(pod: Item) -> str | None:
    """`collector` or `worker`, which is also the name of the chart's container."""
    labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/component")


def find_own_container(pod: Item) -> Item | None:
    """The status of the chart's container; None if it has none yet."""
    name = read_component(pod)
    statuses = pod["status"].get("containerStatuses") or []
    return next((status for status in statuses if status["name"] == name), None)


def is_running(pod: Item) -> bool:
    """Whether the process of the chart's container is running."""
    own = find_own_container(pod)
    return own is not None and "running" in (own.get("state") or {})


def has_ended(pod: Item) -> bool:
    """Whether the process of the chart's container has ended, or all have. Injected containers may still
    run."""
    own = find_own_container(pod)
    ended = own is not None and "terminated" in (own.get("state") or {})
    return ended or pod["status"].get("phase") in ("Succeeded", "Failed")
