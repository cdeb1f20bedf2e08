"""What of a run's objects is shown as left, by what the API server says of them."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

import pytest

from cli.run.cluster import RUN_LABEL, STARTED_BY, Place
from cli.run.kubeclient import KubeClient
from cli.run.leftovers import LeftoverRun, describe_others, find_runs, has_orphans, sort_by_run

from .api_server import Api

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def item(name: str = "it", going_s: float | None = None, **more: Any) -> dict[str, Any]:
    """An object of the run `r1`. `going_s`: since when it should be gone."""
    meta: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "labels": {RUN_LABEL: "r1"},
        "creationTimestamp": "2026-05-01T10:00:00Z",
    }
    if going_s is not None:
        meta["deletionTimestamp"] = (NOW - timedelta(seconds=going_s)).isoformat()
    return {"metadata": meta | more.pop("metadata", {}), "status": {"phase": "RunContext"} | more}


def sort_one(*labelled: tuple[str, dict[str, Any]], releases: tuple[str, ...] = ()) -> LeftoverRun:
    [run] = sort_by_run(releases, labelled, NOW)
    return run


def test_what_is_there() -> None:
    job = item("job", metadata={"annotations": {STARTED_BY: "me@here"}})
    run = sort_one(("job", job), ("pod", item("pod")), releases=("iotb-r1",))
    assert (run.state, run.objects) == ("1 pods at work", "release, 1 job, 1 pod")
    assert run.started_by == "me@here"
    assert run.created == NOW - timedelta(hours=2)


@pytest.mark.parametrize("going_s", [-30.0, 0.0, 55.0])
def test_what_is_being_deleted_is_nothing_to_remove(going_s: float) -> None:
    """Within its grace period and a while after it."""
    assert not sort_by_run([], [("pod", item(going_s=going_s))], NOW)
    # Beside something else its pod is still at work.
    run = sort_one(("pod", item(going_s=going_s)), ("service", item("service")))
    assert (run.state, run.objects) == ("1 pods at work", "1 service")


def test_what_hangs_in_deletion_is_shown_as_such() -> None:
    run = sort_one(("pod", item(going_s=600.0)))
    assert not run.removable and not run.at_work
    assert (run.state, run.objects) == ("hangs in deletion", "1 pod stuck in deletion")
    assert run.hanging == {"pod": ["it"]}


def test_pods_whose_job_is_gone_are_about_to_be_deleted() -> None:
    owned: dict[str, Any] = {"metadata": {"ownerReferences": [{"kind": "Job", "uid": "uid-job"}]}}
    pod = item("pod", **owned)
    assert has_orphans([("pod", pod)])
    assert not has_orphans([("job", item("job")), ("pod", pod)])
    assert not has_orphans([("pod", item("pod"))])
    assert not has_orphans([("pod", item("pod", going_s=0.0, **owned))])


def test_runs_that_were_left_at_work_are_named_with_the_command_that_removes_them() -> None:
    """Each by itself; not those that have ended, and not the run that asks."""
    items = {
        "jobs": [item("job", metadata={"annotations": {STARTED_BY: "me@here"}})],
        "pods": [item("pod"), item("done", phase="Succeeded")],
    }

    def answer(_: str, path: str) -> tuple[int, bytes]:
        listed = next(items[kind] for kind in items if f"/{kind}?" in path)
        return 200, json.dumps({"items": listed}).encode()

    with Api() as api:
        api.answer = answer
        client = KubeClient(api.configuration)
        place = Place("bench", context="prod")
        text = describe_others(client, place, "r2")
        assert all(f"{RUN_LABEL}!=r2" in unquote(path) for _, path in api.asked)
        assert text is not None
        assert "run r1, started by me@here " in text
        assert text.endswith("clean r1 --running --namespace bench --context prod")
        items["pods"] = [item("done", phase="Succeeded")]
        assert describe_others(client, place, "r2") is None
        api.answer = lambda method, path: (403, b"{}")
        assert describe_others(client, place, "r2") is None


def release(name: str, chart: str) -> dict[str, Any]:
    """A Secret in which helm keeps a release."""
    packed = gzip.compress(
        json.dumps({"name": name, "chart": {"metadata": {"name": chart}}}).encode()
    )
    return {
        "metadata": {"name": f"sh.helm.release.v1.{name}.v1", "labels": {"name": name}},
        "data": {"release": b64encode(b64encode(packed)).decode()},
    }


def test_releases_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those whose names begin like ours, or that can't be read."""
    secrets = [
        release("iotb-1234abcd", "iot-database-benchmark"),
        release("iotb-production", "postgresql"),
        release("shop", "iot-database-benchmark"),
        {"metadata": {"name": "odd", "labels": {"name": "iotb-odd"}}, "data": {"release": "eHg="}},
    ]

    def answer(_: str, path: str) -> tuple[int, bytes]:
        is_asked = "/secrets?" in path and "owner" in path
        return 200, json.dumps({"items": secrets if is_asked else []}).encode()

    with Api() as api:
        api.answer = answer
        monkeypatch.setattr(Place, "make_client", lambda _: KubeClient(api.configuration))
        assert [run.run_id for run in find_runs(Place("bench"))] == ["1234abcd"]
