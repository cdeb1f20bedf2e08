"""How the command reaches an API server behind a proxy, and what it asks for where little is allowed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
from urllib3 import HTTPConnectionPool
from urllib3.connection import HTTPConnection

from cli.run.cluster import Place, check_namespace
from cli.run.diagnosis import PERMISSIONS, list_permissions
from cli.run.kubeclient import NODE, POD, UNREACHABLE, _watch_sockets
from cli.system.errors import ConfigError

from .api_server import Api

FAR = "cluster.example:6443"
"""Nobody answers there: what is heard comes from the proxy."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """It answers by itself what it is asked to pass on, and the environment names none."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with Api() as api:
        yield api


def place_at(folder: Path, server: str, **cluster: Any) -> Place:
    """A kubeconfig that leads there."""
    file = folder / "kubeconfig"
    named = {"name": "it", "cluster": {"server": server, **cluster}}
    document = {
        "apiVersion": "v1", "kind": "Config", "current-context": "it", "clusters": [named],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }  # fmt: skip
    file.write_text(json.dumps(document))
    return Place("here", str(file))


def url_of(api: Api) -> str:
    return api.configuration.host


def test_a_proxy_that_the_kubeconfig_names(
    proxy: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes before the environment's."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    place = place_at(tmp_path, f"http://{FAR}", **{"proxy-url": url_of(proxy)})
    place.make_client().find(NODE)
    assert proxy.asked == [("GET", f"http://{FAR}/api/v1/nodes")]


@pytest.mark.parametrize(("scheme", "name"), [("http", "HTTP_PROXY"), ("https", "HTTPS_PROXY")])
def test_a_proxy_that_the_environment_names(
    proxy: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, name: str
) -> None:
    monkeypatch.setenv(name, url_of(proxy))
    client = place_at(tmp_path, f"{scheme}://{FAR}").make_client()
    if scheme == "http":
        client.find(NODE)
        assert proxy.asked == [("GET", f"http://{FAR}/api/v1/nodes")]
        # Connections of their own go the same way.
        client.make_another().find(POD, "here")
        assert proxy.asked[1][1].startswith(f"http://{FAR}/")
    else:
        # What is encrypted goes by a tunnel, which this proxy refuses.
        proxy.answer = lambda method, path: (403, b"")
        with pytest.raises(UNREACHABLE):
            client.find(NODE)
        assert proxy.asked == [("CONNECT", FAR)]


@pytest.mark.parametrize("excepted", ["127.0.0.1", "127.0.0.0/8", "other.example,127.0.0.1", "*"])
def test_what_goes_by_no_proxy(
    proxy: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excepted: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", excepted)
    place_at(tmp_path, url_of(proxy)).make_client().find(NODE)
    assert proxy.asked == [("GET", "/api/v1/nodes")]


def test_a_socks_proxy_needs_a_package(
    proxy: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.run.cluster.find_spec", lambda name: None)
    place = place_at(tmp_path, f"https://{FAR}", **{"proxy-url": "socks5://localhost:1080"})
    with pytest.raises(ConfigError, match=r"uses SOCKS.*pip install 'urllib3\[socks\]'"):
        place.make_client()


def test_connections_are_still_those_of_the_proxy(proxy: Api) -> None:
    """A SOCKS proxy's pools connect in a way of their own."""

    class OwnConnection(HTTPConnection):
        pass

    class OwnPool(HTTPConnectionPool):
        ConnectionCls = OwnConnection

    sockets: WeakSet[Any] = WeakSet()
    watched = _watch_sockets({"http": OwnPool}, sockets)["http"]
    assert issubclass(watched, OwnPool) and issubclass(watched.ConnectionCls, OwnConnection)
    seen: list[int] = []

    def answer(method: str, path: str) -> tuple[int, bytes]:
        seen.append(len(sockets))
        return 200, b""

    proxy.answer = answer
    pool = watched("127.0.0.1", proxy.server.server_port)
    assert pool.request("GET", "/").status == 200
    assert seen == [1]
    pool.close()


def test_who_may_not_see_the_namespace_itself_may_use_it(proxy: Api, tmp_path: Path) -> None:

    def answer(method: str, path: str) -> tuple[int, bytes]:
        within = path.startswith("/api/v1/namespaces/here/")
        return (200, b'{"items": []}') if within else (403, b'{"message": "forbidden"}')

    proxy.answer = answer
    client = place_at(tmp_path, url_of(proxy)).make_client()
    check_namespace(client, "here")
    assert client.find(POD, "here") == []


def test_an_account_that_is_made_needs_a_permission() -> None:
    assert list_permissions({}) == list(PERMISSIONS)
    assert list_permissions({"serviceAccount": {"name": "there"}}) == list(PERMISSIONS)
    permissions = list_permissions({"serviceAccount": {"annotations": {"a": "b"}}})
    assert [permission[1] for permission in permissions if permission not in PERMISSIONS] == [
        "serviceaccounts"
    ]
