"""What other pods took of a node's CPU, by what its kubelet says now and then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cli.run.probes.kubelets import NodeUse

WORKER, JOB = ("here", "worker-0"), ("there", "job")


def summary(second: int, node: float, pods: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """As /stats/summary of a kubelet gives it, in cores."""

    def cpu(cores: float) -> dict[str, Any]:
        return {"time": f"2026-11-22T06:33:{second:02}Z", "usageNanoCores": round(cores * 1e9),
                "usageCoreNanoSeconds": 137218099}  # fmt: skip

    return {
        "node": {"nodeName": "n", "cpu": cpu(node)},
        "pods": [
            {"podRef": {"namespace": space, "name": name, "uid": "u"}, "cpu": cpu(cores)}
            for (space, name), cores in pods.items()
        ],
    }


def seen(*summaries: dict[str, Any]) -> NodeUse:
    use = NodeUse()
    for figures in summaries:
        use.add(figures)
    return use


BEFORE = [summary(5, 0.1, {WORKER: 0.0, JOB: 0.1}), summary(15, 2.0, {WORKER: 0.5, JOB: 0.1})]
"""The first figure is of the time before the run, the second of both."""


def test_what_the_run_did_not_use_was_used_by_others() -> None:
    use = seen(
        *BEFORE,
        summary(25, 3.0, {WORKER: 1.0, JOB: 1.6}),
        summary(36, 3.2, {WORKER: 1.2, JOB: 1.2}),
    )
    taken: Any = use.share_of_others([WORKER], cpus=4)
    # The node's daemons are in the sum, but no pods.
    assert taken == (pytest.approx((3.1 - 1.1) / 4), {"there/job": pytest.approx(1.4 / 4)})


def test_figures_count_once_however_often_they_are_read() -> None:
    late = summary(36, 2.0, {WORKER: 2.0})
    use = seen(*BEFORE, summary(25, 4.0, {WORKER: 2.0}), late, late, late)
    taken: Any = use.share_of_others([WORKER], cpus=4)
    assert taken == (pytest.approx(1.0 / 4), {})


def test_a_short_run_has_no_figure_of_its_own() -> None:
    assert seen(*BEFORE).share_of_others([WORKER], cpus=4) is None
    assert seen().share_of_others([], cpus=4) is None


def test_without_a_figure_of_a_pod_of_the_run_nothing_is_said() -> None:
    """What it used would be taken for the others'."""
    use = seen(*BEFORE, summary(25, 3.0, {JOB: 1.0}), summary(36, 3.0, {JOB: 1.0}))
    assert use.share_of_others([WORKER], cpus=4) is None
    assert use.share_of_others([], cpus=4) is not None


def test_a_kubelet_may_have_no_figures() -> None:
    without: dict[str, Any] = {"node": {"cpu": {"time": "t"}}, "pods": [{"podRef": {
        "namespace": "a", "name": "b"}}]}  # fmt: skip
    assert seen(*[without] * 4).share_of_others([], cpus=4) is None
