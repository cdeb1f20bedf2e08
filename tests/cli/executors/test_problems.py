"""What Kubernetes says of a run's objects, and whether that ends the run."""

from __future__ import annotations

from typing import Any

import pytest

from cli.executors.kubernetes.problems import event_problem, pod_problem

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
        (event("FailedMount", MISSING), "a shipped target's Secret comes from"),
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
    problem = pod_problem(
        {
            "metadata": {"name": "it"},
            "spec": {"containers": [{"name": component}]},
            "status": {"phase": "Pending", "conditions": [condition]},
        }
    )
    assert problem is not None
    first, *rest = problem.text.splitlines()
    assert first == f"pod it can't be scheduled: {said}"
    assert len(rest) == bool(remedies)
    for remedy in remedies:
        assert remedy in rest[0] and "config.yaml" in rest[0]
