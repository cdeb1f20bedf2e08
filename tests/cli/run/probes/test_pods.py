"""Which pods are the database's."""

from __future__ import annotations

from typing import Any

import pytest

from cli.run.probes.pods import (
    Selection,
    is_named,
    read_pod,
    read_selections,
)


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("host=postgresql-rw dbname=x", True),
        ("http://postgresql-rw:8086", True),
        ("postgresql-rw.databases.svc.cluster.local", True),
        ("host=postgresql-rw2", False),
        ("host=old.postgresql-rw", False),
        (5432, False),
    ],
)
def test_a_service_is_known_by_an_option_that_names_it(option: object, named: bool) -> None:
    assert is_named("postgresql-rw", [None, option]) is named


@pytest.mark.parametrize(
    ("text", "labels", "namespace"),
    [
        ("app=postgresql", "app=postgresql", "here"),
        ("app=postgresql in databases", "app=postgresql", "databases"),
        ("app in (a, b),tier!=x", "app in (a, b),tier!=x", "here"),
        (" app in (a, b) in databases ", "app in (a, b)", "databases"),
    ],
)
def test_a_selector_may_name_a_namespace(text: str, labels: str, namespace: str) -> None:
    assert read_selections("here", {"database": text}) == [(labels, namespace)]


def test_pods_are_those_that_are_named_or_that_the_run_keeps_away_from() -> None:
    away = {"keepAwayFrom": {"app": "db", "tier": "x"}}
    assert read_selections("here", away) == [Selection("app=db,tier=x", "here")]
    spaces = {**away, "keepAwayFromNamespaces": ["a", "b"]}
    assert [selection.namespace for selection in read_selections("here", spaces)] == ["a", "b"]
    named = {**spaces, "database": "role=main in c"}
    assert read_selections("here", named) == [Selection("role=main", "c")]
    assert read_selections("here", {"database": "", "keepAwayFrom": {}}) == []


def make_pod(*limits: str | None, **spec: Any) -> dict[str, Any]:
    """As the API server gives it."""
    containers = [
        {"name": f"c{n}", "resources": {} if limit is None else {"limits": {"cpu": limit}}}
        for n, limit in enumerate(limits)
    ]
    return {
        "metadata": {
            "name": "db-0",
            "namespace": "databases",
            "annotations": {"kubernetes.io/egress-bandwidth": "100M"},
        },
        "spec": {"nodeName": "node1", "containers": containers, **spec},
        "status": {
            "startTime": "2026-11-22T12:00:00Z",
            "containerStatuses": [
                {"name": "c0", "state": {"running": {"startedAt": "2026-11-22T12:05:00Z"}}},
                {"name": "c1", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ],
        },
    }


def test_what_is_known_of_a_pod() -> None:
    pod = read_pod(make_pod("1500m", "1"), {"databaseLink": "10G"})
    assert (pod.name, pod.node, pod.cpu_limit) == (("databases", "db-0"), "node1", 2.5)
    assert pod.began_at is not None
    assert pod.find_begin("c0") == pod.began_at + 300
    # The network is the pod's, not a container's.
    assert pod.find_begin("c1") == pod.find_begin("uid eth0") == pod.began_at
    # An annotation of its own comes first.
    assert (pod.ingress_bits_per_s, pod.egress_bits_per_s) == (10e9, 100e6)


def test_the_limit_of_a_pod_is_that_of_all_its_containers() -> None:
    side_car = {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "250m"}}}
    once = {"name": "i", "resources": {}}
    with_side_car = make_pod("1", initContainers=[once, side_car])
    assert read_pod(with_side_car, {}).cpu_limit == 1.25
    assert read_pod(make_pod("1", None), {}).cpu_limit is None
    whole = make_pod("1", None, resources={"limits": {"cpu": "4"}})
    assert read_pod(whole, {}).cpu_limit == 4
    bare: dict[str, Any] = {
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"containers": [{"name": "c"}]},
    }
    pod = read_pod(bare, {})
    assert (pod.node, pod.cpu_limit, pod.began_at, pod.ingress_bits_per_s) == ("", None, None, None)
