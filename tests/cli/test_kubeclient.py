"""The Kubernetes client against a server that says what it is told to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import Configuration
from kubernetes.client.exceptions import ApiException

from cli.run.cluster import explain_errors, is_allowed
from cli.run.kubeclient import DEPLOYMENT, NODE, POD, UNREACHABLE, KubeClient
from cli.system.errors import RunFailed

from ..helpers import eventually
from .api_server import Api
from .stand_in import QuietHandler, StandIn

TIMEOUT_S = (5.0, 20.0)


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as api:
        yield api


@pytest.fixture
def client(api: Api) -> KubeClient:
    return KubeClient(api.configuration)


def test_what_is_asked(api: Api, client: KubeClient) -> None:
    client.find(POD, "here", labels="a in (b, c)")
    client.find(NODE)
    client.get(POD, "../odd place", "it")
    client.delete(POD, "here", "it")
    client.patch(DEPLOYMENT, "here", "db", {"spec": {"replicas": 0}})
    assert api.asked == [
        ("GET", "/api/v1/namespaces/here/pods?labelSelector=a%20in%20%28b%2C%20c%29"),
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/namespaces/..%2Fodd%20place/pods/it"),
        ("DELETE", "/api/v1/namespaces/here/pods/it?propagationPolicy=Background"),
        ("PATCH", "/apis/apps/v1/namespaces/here/deployments/db"),
    ]
    assert api.bodies[-1] == {"spec": {"replicas": 0}}
    assert api.headers[-1]["Content-Type"] == "application/strategic-merge-patch+json"


def test_a_review_says_what_is_allowed(api: Api, client: KubeClient) -> None:
    api.answer = lambda method, path: (201, b'{"status": {"allowed": true}}')
    assert is_allowed(client, "here", "", "pods", "log", "get")
    api.answer = lambda method, path: (201, b'{"status": {"reason": "no"}}')
    assert not is_allowed(client, "here", "batch", "jobs", None, "list")
    reviews = [body["spec"]["resourceAttributes"] for body in api.bodies]
    assert reviews == [
        {"namespace": "here", "group": "", "resource": "pods", "verb": "get", "subresource": "log"},
        {"namespace": "here", "group": "batch", "resource": "jobs", "verb": "list"},
    ]


def test_a_refusal_is_told_in_the_servers_words(api: Api, client: KubeClient) -> None:
    api.answer = lambda method, path: (403, b'{"message": "pods is forbidden: User x"}')
    with pytest.raises(RunFailed) as error, explain_errors("can't list"):
        client.find(POD, "here")
    assert error.value.message == "can't list: 403 Forbidden: pods is forbidden: User x"
    answer = client.ask_service("here", "iotb-1:http", "report", {"X-Run": "r"}, TIMEOUT_S)
    assert answer == (403, b'{"message": "pods is forbidden: User x"}')
    assert api.asked[-1][1] == "/api/v1/namespaces/here/services/iotb-1%3Ahttp/proxy/report"
    assert api.headers[-1]["X-Run"] == "r"


def test_a_server_that_is_not_there(client: KubeClient, api: Api) -> None:
    api.server.socket.close()
    with pytest.raises(RunFailed, match="the API server can't be reached"), explain_errors("no"):
        client.find(POD, "here")


def test_a_page_of_somebody_in_between_is_no_answer(api: Api, client: KubeClient) -> None:
    api.answer = lambda *_: (200, b"<html>Please log in</html>")
    with pytest.raises(RunFailed, match="<html>Please log in"), explain_errors("can't look"):
        client.find(POD, "here")


def test_a_watch_ends_with_what_was_cut_off(api: Api, client: KubeClient) -> None:
    changes = [{"type": how, "object": {"n": how}} for how in ("ADDED", "DELETED")]
    lines = "\n".join(map(json.dumps, changes)) + '\n{"type": "MODI'
    api.answer = lambda method, path: (200, lines.encode())
    seen = client.watch(POD, "here", labels="a=b", window_s=300, timeout_s=TIMEOUT_S)
    assert list(seen) == [("ADDED", {"n": "ADDED"}), ("DELETED", {"n": "DELETED"})]
    assert "watch=true" in api.asked[0][1] and "timeoutSeconds=300" in api.asked[0][1]

    error = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    api.answer = lambda method, path: (200, json.dumps(error).encode())
    with pytest.raises(ApiException) as raised:
        list(client.watch(POD, "here", window_s=300, timeout_s=TIMEOUT_S))
    assert (raised.value.status, raised.value.reason) == (410, "Expired: too old")


def test_only_its_own_requests_are_broken_off(api: Api, client: KubeClient) -> None:
    free = threading.Event()

    def hold(method: str, path: str) -> tuple[int, bytes]:
        free.wait(20)
        return 200, b'{"items": [{}]}'

    api.answer = hold
    other = client.make_another()
    outcomes: dict[str, object] = {}

    def ask(name: str, kube_client: KubeClient) -> None:
        try:
            outcomes[name] = kube_client.find(POD, "here")
        except UNREACHABLE as error:
            outcomes[name] = error

    threads = [
        threading.Thread(target=ask, args=pair) for pair in (("first", client), ("other", other))
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: len(api.asked) == 2, "both ask")
    client.break_off()
    threads[0].join(15)
    assert isinstance(outcomes["first"], UNREACHABLE)
    assert "other" not in outcomes
    free.set()
    threads[1].join(15)
    assert outcomes["other"] == [{}]


def test_credentials_are_renewed_by_one_thread_at_a_time(api: Api, client: KubeClient) -> None:
    at_once, most = [0], [0]

    def renew(configuration: Configuration) -> None:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        threading.Event().wait(0.01)
        at_once[0] -= 1

    api.configuration.api_key["BearerToken"] = "Bearer abc"
    configuration: Any = api.configuration
    configuration.refresh_api_key_hook = renew
    threads = [
        threading.Thread(target=kube_client.find, args=(POD, "here"))
        for kube_client in (client, client.make_another(), client.make_another())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(api.asked) == 3
    assert most == [1]
    assert api.headers[0]["authorization"] == "Bearer abc"


def test_a_stream_without_chunks_is_read_as_it_comes() -> None:
    """Somebody in between may take it apart: lines came by the 64 kB."""
    is_read = threading.Event()

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802
            self.send_response(200)
            self.end_headers()
            for line in (b"first\nsec", b"ond\n"):
                self.wfile.write(line)
                is_read.wait(20)

    with StandIn(Handler) as server:
        lines = KubeClient(Configuration(host=server.url)).follow_log("here", "it", "c", TIMEOUT_S)
        assert next(lines) == "first"
        is_read.set()
        assert list(lines) == ["second"]
