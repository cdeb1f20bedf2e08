"""Leases as a stand-in for the API server has them; tests/kubernetes/test_leases.py tries a real one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from cli.run import exclusion
from cli.run.cluster import Place
from cli.run.exclusion import Claim, Lease, claim_databases
from cli.run.kubeclient import KubeClient
from cli.system.errors import ConfigError, RunFailed
from cli.system.installation import describe_user
from tests.e2e.tool import eventually

from .api_server import Api


class Namespace:
    """A namespace with room for one Lease; each change gives it a new version."""

    def __init__(self, api: Api) -> None:
        self.lease: dict[str, Any] | None = None
        self.forbidden = False
        self._changes = 0
        self._api = api
        api.answer = self._answer

    @property
    def version(self) -> str:
        return "" if self.lease is None else str(self.lease["metadata"]["resourceVersion"])

    def give(self, holder: str) -> None:
        """Let this one have it."""
        self._changes += 1
        metadata = {"resourceVersion": str(self._changes)}
        self.lease = {"metadata": metadata, "spec": {"holderIdentity": holder}}

    def _answer(self, method: str, _: str) -> tuple[int, bytes]:
        if self.forbidden:
            return 403, b"{}"
        body = self._api.bodies[-1]
        if (self.lease is None) != (method == "POST"):
            return (409 if method == "POST" else 404), b"{}"
        if method == "PATCH" and body["metadata"]["resourceVersion"] != self.version:
            return 409, b"{}"
        if method in ("POST", "PATCH"):
            self.give(body["spec"]["holderIdentity"])
        lease, self.lease = self.lease, None if method == "DELETE" else self.lease
        return 200, json.dumps(lease).encode()


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as api:
        yield api


@pytest.fixture
def namespace(api: Api, monkeypatch: pytest.MonkeyPatch) -> Namespace:
    monkeypatch.setattr(exclusion, "RENEW_S", 0.05)
    monkeypatch.setattr(exclusion, "LOOK_S", 0.1)
    monkeypatch.setattr(Place, "make_client", lambda _: KubeClient(api.configuration))
    return Namespace(api)


def claim(name: str) -> AbstractContextManager[list[Lease]]:
    exclusion._held.set(frozenset())  # as in a process of its own
    return claim_databases([Claim("target", "db:1", Place("ns"))], f"campaign {name}")


def test_who_is_at_work_is_named(namespace: Namespace) -> None:
    with claim("first") as (lease,):
        before = namespace.version
        eventually(lambda: namespace.version != before, "a renewal", 30, 0.01)
        with (
            pytest.raises(ConfigError, match=r"^campaign first of .* is using"),
            claim("other"),
        ):
            pass
        lease.check()
    assert namespace.lease is None


@pytest.mark.parametrize("page", [b"<html>Please log in</html>", b"{}"])
def test_a_lease_is_renewed_though_somebody_in_between_has_answered(
    namespace: Namespace, api: Api, page: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would expire, and somebody else would take the database."""
    with claim("first") as (lease,):
        answer, asked = api.answer, len(api.asked)
        api.answer = lambda *_: (200, page)
        eventually(lambda: len(api.asked) > asked + 2, "two renewals that failed", 30, 0.01)
        api.answer = answer
        before = namespace.version
        eventually(lambda: namespace.version != before, "a renewal", 30, 0.01)
        lease.check()
    assert "Traceback" not in capsys.readouterr().err


def test_who_is_killed_leaves_it_to_others(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace.give(f"campaign night of {describe_user()}")
    with claim("night"):
        assert not capsys.readouterr().err  # it is known to itself at once
    monkeypatch.setattr(exclusion, "LEASE_S", 0.3)
    namespace.give("somebody who was killed")
    with claim("night"):
        assert "still running: somebody who was killed" in capsys.readouterr().err


def test_only_one_of_two_that_come_at_once_gets_it(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Lease._read

    def read_and_be_late(lease: Lease) -> tuple[str, str]:
        found = read(lease)
        namespace.give("the faster one")
        return found

    monkeypatch.setattr(Lease, "_read", read_and_be_late)
    with pytest.raises(ConfigError, match=r"^another run is using"), claim("night"):
        pass
    assert namespace.lease is not None
    assert namespace.lease["spec"] == {"holderIdentity": "the faster one"}


def test_what_is_given_back_is_free_at_once(
    namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace.give("somebody at the end")
    monkeypatch.setattr("cli.run.exclusion.note", lambda _: setattr(namespace, "lease", None))
    with claim("night"):
        assert namespace.version


def test_somebody_else_may_have_taken_it_meanwhile(namespace: Namespace) -> None:
    with claim("first") as (lease,):
        namespace.give("somebody else")
        for _ in range(2):
            with pytest.raises(RunFailed, match=r"^somebody else has taken the database"):
                lease.check()
            # Nor is it taken back behind the other's end.
            namespace.lease = None


def test_or_have_come_and_gone(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusion, "RENEW_S", 60.0)
    with claim("first") as (lease,):
        namespace.lease = None
        ahead = time.time() + 3600.0  # the machine's clock is set: no time has passed
        monkeypatch.setattr("time.time", lambda: ahead)
        lease.check()  # it was renewed just now: a person has deleted it
        assert namespace.lease is not None
        namespace.lease = None
        monkeypatch.setattr(exclusion, "LEASE_S", 0.0)
        with pytest.raises(RunFailed, match=r"^a run that has ended since has taken"):
            lease.check()


def test_who_may_not_is_warned(namespace: Namespace, capsys: pytest.CaptureFixture[str]) -> None:
    namespace.forbidden = True
    with claim("first") as leases:
        assert leases == []
    assert "would not be noticed: no permission for leases" in capsys.readouterr().err
