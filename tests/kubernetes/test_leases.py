"""Commands that notice each other by a Lease of the real API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from cli.run import exclusion
from cli.run.cluster import Place
from cli.run.exclusion import Claim, Lease, claim_databases
from cli.system.errors import ConfigError, RunFailed
from tests.e2e.tool import eventually

from .cluster import Cluster, Namespace
from .proxy import Proxy

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def _looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusion, "RENEW_S", 0.1)
    monkeypatch.setattr(exclusion, "LOOK_S", 0.2)


@pytest.fixture
def _soon_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exclusion, "LEASE_S", 1.0)


class Campaigns:
    """Campaigns of a namespace: one whose way to the API server can be cut, and another one."""

    def __init__(self, namespace: Namespace, proxy: Proxy, cut_off: Path, place: Path) -> None:
        self.proxy = proxy
        self._namespace = namespace
        self._cut_off, self._place = str(cut_off), place
        self._api: Any = client.CoordinationV1Api(namespace.cluster.api)

    @contextmanager
    def first(self) -> Iterator[Lease]:
        with self._claim("first", self._cut_off) as lease:
            yield lease

    @contextmanager
    def second(self) -> Iterator[Lease]:
        with self._claim("second", None) as lease:
            yield lease

    @contextmanager
    def _claim(self, name: str, kubeconfig: str | None) -> Iterator[Lease]:
        exclusion._held.set(frozenset())  # as in a process of its own
        claim = Claim("target", "db:1", Place(self._namespace.name, kubeconfig))
        with claim_databases([claim], f"campaign {name}") as (lease,):
            yield lease

    @property
    def lease(self) -> Any:
        """The only Lease; None if there is none."""
        listed = self._api.list_namespaced_lease(self._namespace.name).items
        assert len(listed) <= 1
        return listed[0] if listed else None

    def delete_lease(self) -> None:
        self._api.delete_namespaced_lease(self.lease.metadata.name, self._namespace.name)

    def await_renewal(self) -> None:
        before = self.lease.metadata.resource_version
        eventually(lambda: self.lease.metadata.resource_version != before, "a renewal", 5, 0.05)


@pytest.fixture
def campaigns(cluster: Cluster, tmp_path: Path) -> Iterator[Campaigns]:
    with cluster.namespace() as namespace, cluster.proxied() as (proxy, document):
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.touch(mode=0o600)
        kubeconfig.write_text(yaml.safe_dump(document))
        yield Campaigns(namespace, proxy, kubeconfig, tmp_path)


def test_a_lease_is_renewed_and_another_campaign_refused(campaigns: Campaigns) -> None:
    with campaigns.first() as first:
        campaigns.await_renewal()
        with (
            pytest.raises(ConfigError, match=r"campaign first of .* is using"),
            campaigns.second(),
        ):
            pass
        first.check()
        # A person has tidied up: there is no other campaign.
        campaigns.delete_lease()
        eventually(lambda: campaigns.lease, "a new Lease", 5, 0.05)
        first.check()
    assert campaigns.lease is None


@pytest.mark.usefixtures("_soon_free")
def test_a_campaign_that_was_cut_off_learns_who_has_taken_its_database(
    campaigns: Campaigns, capsys: pytest.CaptureFixture[str]
) -> None:
    with campaigns.first() as first:
        campaigns.proxy.cut()
        # It can't know yet, and its runs will say what they miss.
        first.check()
        with campaigns.second() as second:
            assert "waiting to see whether this is still running" in capsys.readouterr().err
            campaigns.proxy.mend()
            with pytest.raises(
                RunFailed, match=r"second of .* has taken .* target \(db:1\)"
            ) as lost:
                first.check()
            assert len(lost.value.message.splitlines()) == 2
            campaigns.await_renewal()
            second.check()
        # Nor is it taken back after the other's end.
        assert campaigns.lease is None
        with pytest.raises(RunFailed):
            first.check()
        assert campaigns.lease is None


@pytest.mark.usefixtures("_soon_free")
def test_another_campaign_may_have_come_and_gone_meanwhile(
    campaigns: Campaigns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Lease is looked at now, not when the next renewal is due."""
    monkeypatch.setattr(exclusion, "RENEW_S", 60.0)
    with campaigns.first() as first:
        campaigns.proxy.cut()
        with campaigns.second():
            pass
        campaigns.proxy.mend()
        with pytest.raises(RunFailed, match="a run that has ended since"):
            first.check()
