"""What Kubernetes says of a run's objects, and whether that ends the run."""

from __future__ import annotations

import pytest
from kubernetes.client import CoreV1Event, V1ObjectMeta, V1ObjectReference

from cli.executors.problems import event_problem

MISSING = 'MountVolume.SetUp failed for volume "settings" : secret "adx-secret" not found'
NOT_YET = (
    'MountVolume.SetUp failed for volume "settings" : failed to sync secret cache: timed out'
    " waiting for the condition"
)
QUOTA = "Error creating: pods is forbidden: exceeded quota: small"


def event(reason: str, message: str, kind: str = "Pod") -> CoreV1Event:
    """An event of an object called `it`."""
    about = V1ObjectReference(kind=kind, name="it")
    return CoreV1Event(
        involved_object=about, metadata=V1ObjectMeta(), reason=reason, message=message
    )


@pytest.mark.parametrize(
    ("happened", "said"),
    [
        (event("FailedMount", MISSING), "a shipped target's Secret comes from"),
        (event("FailedCreatePodSandBox", "no network"), "pod it: FailedCreatePodSandBox"),
        (event("FailedCreate", QUOTA, "Job"), "job it: pods are refused"),
    ],
)
def test_what_lasts_ends_the_run_after_a_while(happened: CoreV1Event, said: str) -> None:
    problem = event_problem(happened)
    assert problem is not None
    assert said in problem.text
    assert 0 < problem.patience_s < 15


def test_a_node_that_is_busy_gets_its_time() -> None:
    assert event_problem(event("FailedMount", NOT_YET)) is None
    assert event_problem(event("Scheduled", "assigned")) is None
