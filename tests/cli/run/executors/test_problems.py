"""What Kubernetes says of a run's objects, and whether that ends the run."""

from __future__ import annotations

from typing import Any

import pytest

from cli.run.executors.base import Problem
from cli.run.executors.kubernetes.watching import event_problem, pod_problem
from cli.run.kubeclient import has_ended, is_running

MISSING = 'MountVolume.SetUp failed for volume "settings" : secret "adx-secret" not found'
NOT_YET = (
    'MountVolume.SetUp failed for volume "settings" : failed to sync secret cache: timed out'
    " waiting for the condition"
)
QUOTA = "Error creating: pods is forbidden: exceeded quota: small"


def judge(pod: dict[str, Any]) -> Problem | None:
    return pod_problem(pod, scheduling_patience_s=300.0)


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
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said
    }  # fmt: skip
    problem = judge(
        {
            "metadata": {"name": "it", "labels": {"app.kubernetes.io/component": component}},
            # What was injected may stand first.
            "spec": {"containers": [{"name": "mesh"}, {"name": component}]},
            "status": {"phase": "Pending", "conditions": [condition]},
        }
    )
    assert problem is not None
    assert problem.patience_s == 300.0
    first, *rest = problem.text.splitlines()
    assert first == f"pod it can't be scheduled: {said}"
    assert len(rest) == bool(remedies)
    for remedy in remedies:
        assert remedy in rest[0] and "config.yaml" in rest[0]


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
    assert judge(pod_with("RunContext", RUNNING, FAILED)) is None
    killed: dict[str, Any] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    assert judge(pod_with("RunContext", RUNNING, killed)) is None
    own = judge(pod_with("RunContext", killed, RUNNING))
    assert own is not None and own.text.endswith("out of memory; raise resources.memory")
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    injected = judge(pod_with("Pending", {"waiting": {"reason": "x"}}, waiting))
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
