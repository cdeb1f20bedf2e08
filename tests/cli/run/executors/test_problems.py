"""What Kubernetes says of a run's objects, and whether that ends the run."""

from __future__ import annotations

import time
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.run.executors import Problems
from cli.run.executors.kubernetes.watching import (
    Change,
    ReleaseWatch,
    event_problem,
    pod_problem,
    room_problem,
)
from cli.run.kubeclient import EVENT, POD, KubeClient, has_ended, is_running

MISSING = 'MountVolume.SetUp failed for volume "settings" : secret "adx-secret" not found'
NOT_YET = (
    'MountVolume.SetUp failed for volume "settings" : failed to sync secret cache: timed out'
    " waiting for the condition"
)
QUOTA = "Error creating: pods is forbidden: exceeded quota: small"


def event(reason: str, message: str, kind: str = "Pod") -> dict[str, Any]:
    """An event of an object called `it`."""
    about = {"kind": kind, "name": "it"}
    return {"involvedObject": about, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("happened", "said"),
    [
        (event("FailedMount", MISSING), "a shipped target's Secret is made by"),
        (event("FailedCreatePodSandBox", "no network"), "pod it: FailedCreatePodSandBox"),
        (event("FailedCreate", QUOTA, "Job"), "job it: pods are refused"),
    ],
)
def test_what_lasts_ends_the_run_after_a_while(happened: dict[str, Any], said: str) -> None:
    problem = event_problem(happened)
    assert problem is not None
    assert said in problem.text
    assert 0 < problem.patience_s < 15


def test_a_node_that_is_busy_gets_its_time() -> None:
    assert event_problem(event("FailedMount", NOT_YET)) is None
    assert event_problem(event("Scheduled", "assigned")) is None


@pytest.mark.parametrize(
    ("component", "said", "remedies"),
    [
        ("worker", "0/1 nodes are available: 1 Insufficient cpu.", ["`kubernetes: resources:`"]),
        ("collector", "1 Insufficient memory.", ["`kubernetes: collectorResources:`"]),
        ("worker", "1 node(s) didn't match Pod's node affinity/selector.", ["nodeSelector:"]),
        (
            "worker",
            "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b}.",
            ["resources:", "tolerations:"],
        ),
        ("worker", "1 node(s) didn't match pod anti-affinity rules.", ["keepAwayFrom:"]),
        ("worker", "something new", []),
    ],
)
def test_a_pod_that_can_not_be_scheduled_says_what_to_set(
    component: str, said: str, remedies: list[str]
) -> None:
    problem = room_problem([homeless(component, said)], 3, 300.0)
    assert problem is not None
    assert problem.patience_s == 300.0
    first, remedy = problem.text.splitlines()
    assert first.startswith(f"pod it can't be scheduled: {said}")
    for text in [*remedies, "to wait longer for a node, raise `kubernetes: scheduling_patience:`"]:
        assert text in remedy and "config.yaml" in remedy


def homeless(component: str, said: str, name: str = "it") -> dict[str, Any]:
    """A pod that no node takes."""
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said
    }  # fmt: skip
    requests = {"cpu": "1", "memory": "512Mi"}
    own = {"name": component, "resources": {"requests": requests}}
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/component": component}},
        # What was injected may stand first.
        "spec": {"containers": [{"name": "mesh"}, own]},
        "status": {"phase": "Pending", "conditions": [condition]},
    }


def test_it_says_how_many_workers_have_no_node_and_the_collector_comes_first() -> None:
    said = "0/1 nodes are available: 1 Insufficient cpu."
    workers = [homeless("worker", said, f"x-worker-{number}") for number in (3, 2)]
    problem = room_problem(workers, 4, 10.0, "1 max node group size reached")
    assert problem is not None
    assert problem.text.splitlines()[0] == (
        f"pod x-worker-2 can't be scheduled: {said} The autoscaler: 1 max node group size reached."
        " Of 4 workers, 2 have no node; each requests cpu 1 and memory 512Mi."
    )
    problem = room_problem([*workers, homeless("collector", said, "x-collector")], 4, 10.0)
    assert problem is not None and problem.text.startswith("pod x-collector can't be scheduled")
    assert "collectorResources" in problem.text
    assert room_problem([], 4, 10.0) is None


@pytest.fixture
def problems() -> Problems:
    return Problems()


@pytest.fixture
def watch(problems: Problems) -> ReleaseWatch:
    """Of a run whose pods wait for 10 s for a node, or 300 if one is promised."""
    client = cast(KubeClient, SimpleNamespace(make_another=lambda: None))
    return ReleaseWatch(
        client, "here", "x", "run=x", 2, (10.0, 300.0), SimpleQueue(), problems
    )  # fmt: skip


def due_in(problems: Problems) -> float | None:
    due = problems.first_due()
    return None if due is None else round(due - time.monotonic())


@pytest.mark.parametrize("reason", ["TriggeredScaleUp", "Nominated"])
def test_a_node_that_an_autoscaler_adds_is_waited_for(
    problems: Problems, watch: ReleaseWatch, reason: str
) -> None:
    pod = homeless("worker", "1 Insufficient cpu.", "x-worker-0")
    watch.notice(Change(POD, "ADDED", pod))
    assert due_in(problems) == 10
    about = {"kind": "Pod", "name": "x-worker-0"}
    refused = {"involvedObject": about, "reason": "NotTriggerScaleUp", "message": "too large"}
    watch.notice(Change(EVENT, "ADDED", refused))
    assert due_in(problems) == 10 and "The autoscaler: too large." in str(problems.first_text())
    for other in ("x-worker-0", "y-worker-0"):
        promise = {"involvedObject": {"kind": "Pod", "name": other}, "reason": reason}
        watch.notice(Change(EVENT, "ADDED", promise))
        assert due_in(problems) == 300
    placed = {**pod, "status": {"phase": "Pending", "conditions": []}}
    watch.notice(Change(POD, "MODIFIED", placed))
    assert due_in(problems) is None


def pod_with(phase: str, own: dict[str, Any], injected: dict[str, Any]) -> dict[str, Any]:
    """A worker's pod with another container before its own, in these states."""
    return {
        "metadata": {"name": "it", "labels": {"app.kubernetes.io/component": "worker"}},
        "status": {
            "phase": phase,
            "containerStatuses": [
                {"name": "mesh", "image": "mesh:1", "state": injected},
                {"name": "worker", "image": "ours:1", "state": own},
            ],
        },
    }


RUNNING: dict[str, Any] = {"running": {}}
FAILED: dict[str, Any] = {"terminated": {"exitCode": 1, "reason": "Error"}}
DONE: dict[str, Any] = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def test_an_injected_container_matters_only_while_it_keeps_the_pod_from_starting() -> None:
    assert pod_problem(pod_with("RunContext", RUNNING, FAILED)) is None
    killed: dict[str, Any] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert pod_problem(pod_with("RunContext", RUNNING, killed)) is None
    own = pod_problem(pod_with("RunContext", killed, RUNNING))
    assert own is not None and own.text.endswith("out of memory; raise resources.memory")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    injected = pod_problem(pod_with("Pending", {"waiting": {"reason": "x"}}, waiting))
    assert injected is not None
    assert injected.text == "pod it, injected container mesh: ImagePullBackOff: no such image"


def test_a_pod_has_ended_with_its_own_container() -> None:
    assert has_ended(pod_with("RunContext", DONE, RUNNING))
    assert not has_ended(pod_with("RunContext", RUNNING, DONE))
    assert is_running(pod_with("RunContext", RUNNING, DONE))
    assert not is_running(pod_with("RunContext", DONE, RUNNING))
    assert has_ended({"metadata": {"name": "it"}, "status": {"phase": "Failed"}})


def test_what_to_do_where_pods_are_refused() -> None:
    """By OpenShift, for a user that is none of the namespace's; and by the Pod Security of the namespace."""
    constraint = (
        "pods is forbidden: unable to validate against any security context constraint: [provider"
        " restricted-v2: .containers[0].runAsUser: Invalid value: 10001: must be in the ranges: [1, 2]]"
    )
    for message, remedy in (
        (constraint, "set `kubernetes: {runAsUser: null}` in config.yaml"),
        ('violates PodSecurity "restricted:latest"', "leave runAsUser and podAnnotations"),
    ):
        problem = event_problem(event("FailedCreate", message, "Job"))
        assert problem is not None and remedy in problem.text
