"""What the database's pods used, by counters that are read now and then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from cli.run.probes.consumption import Consumption
from cli.run.probes.kubelets import explain_too_little
from cli.run.probes.pods import Count, DatabasePod, Kind, Mean, Memory, PodName
from cli.run.probes.timeline import Window
from simulator.contract import Resources

A, B, C = ("s", "a"), ("s", "b"), ("s", "c")
PODS = {
    A: DatabasePod(A, "node1", cpu_limit=2.0, began_at=0.0),
    B: DatabasePod(B, "node2", cpu_limit=1.0, began_at=0.0),
}


def count(at: float, value: float, pod: PodName = A, kind: Kind = Kind.CPU, **more: Any) -> Count:
    return Count(kind, pod, "pg", at, value, **more)


def watch(counts: Iterable[Count], *pods: DatabasePod) -> Consumption:
    seen = Consumption("the kubelets")
    seen.set_pods(pods or [PODS[A]])
    for reading in counts:
        seen.add_counts([reading])
    return seen


def summarize(
    seen: Consumption, began: float, ended: float, events: int | None = None, warm_up_s: float = 0
) -> Resources:
    resources = seen.summarize(Window(began, ended, began - warm_up_s, events))
    assert resources is not None
    return resources


EVERY_TEN = [count(10.0 * n, 5.0 * n) for n in range(12)]
"""Half a CPU, looked at every ten seconds."""


def test_only_what_was_counted_under_load_counts() -> None:
    """From 25 to 65 s there was load: what is counted from 20 to 30 s is of half a time without."""
    readings = [count(0, 0), count(20, 0), count(30, 4), count(40, 12), count(50, 20), count(60, 28),
                count(70, 32)]  # fmt: skip
    resources = summarize(watch(readings), 25, 65, events=1000)
    assert resources.cpu_s == pytest.approx(32)
    assert resources.covered_share == pytest.approx(30 / 40)
    assert resources.cpu_us_per_event == pytest.approx(32_000)
    assert resources.cpu_share == pytest.approx(0.4)
    assert (resources.cpus, resources.names, resources.nodes) == (2.0, ["s/a"], ["node1"])
    assert resources.source == "the kubelets, every 10 s"
    assert (resources.busiest, resources.busiest_share, resources.restarts) == (None, None, 0)


def test_a_warm_up_has_the_same_load() -> None:
    """So that a figure of both is one of the window, too."""
    resources = summarize(watch(EVERY_TEN), 45, 62, warm_up_s=10)
    assert resources.covered_share == pytest.approx(15 / 17)
    assert resources.cpu_s == pytest.approx(8.5)
    assert [second for second, _, _ in resources.timeline] == [5, 15, 25]


def test_too_little_is_known() -> None:
    assert watch(EVERY_TEN).summarize(Window(43, 57, 43, 1)) is None
    assert watch(EVERY_TEN[:4]).summarize(Window(20, 60, 20, 1)) is None
    assert watch([]).summarize(Window(20, 60, 20, 1)) is None
    assert watch(EVERY_TEN[:1]).summarize(Window(0, 60, 0, 1)) is None


def test_a_reading_counts_once_however_often_it_is_asked_for() -> None:
    seen = watch([])
    assert seen.add_counts([EVERY_TEN[0]])
    assert not seen.add_counts([EVERY_TEN[0]])
    assert seen.add_counts([EVERY_TEN[1]])
    # Pods that aren't the database's.
    assert not seen.add_counts([count(10, 99, ("s", "other"))])


def test_counters_begin_at_0_again() -> None:
    """With a container that is started again: by its new beginning, or as the counter falls."""
    with_start = [count(10.0 * n, 105 + n, began_at=2.0) for n in range(4)]
    with_start += [count(10.0 * n, 0.5 * (n - 3.5), began_at=35.0) for n in range(4, 8)]
    resources = summarize(watch(with_start), 0, 70)
    # Nobody knows what it used from 30 to 35 s: as much as before and after.
    assert resources.cpu_s == pytest.approx(3 * 70 / 30 + 1.75)
    assert resources.restarts == 1

    without_start = [count(10.0 * n, 105 + n) for n in range(4)] + [count(40, 1), count(50, 2)]
    resources = summarize(watch(without_start), 0, 50)
    assert resources.cpu_s == pytest.approx(5)
    assert resources.restarts == 1


def test_a_pod_that_moves() -> None:
    """It has the same name, and another node: what is counted there begins at 0."""
    seen = watch(EVERY_TEN[:4])
    seen.set_pods([replace(PODS[A], node="node2", began_at=42.0)])
    for n in range(5, 8):
        seen.add_counts([count(10.0 * n, 0.1 * (10 * n - 42), began_at=42.0)])
    resources = summarize(seen, 0, 70)
    assert resources.restarts == 1
    assert resources.nodes == ["node2"]
    # What it did until it went is known to 30 s.
    assert resources.cpu_s == pytest.approx(0.5 * 70 + 0.1 * 28)


def test_pods_that_come_and_go() -> None:
    """Each counts for as long as it was there."""
    seen = watch(EVERY_TEN[:4])
    new = DatabasePod(C, "node3", cpu_limit=1.0, began_at=33.0)
    seen.set_pods([new])
    for n in range(4, 9):
        seen.add_counts([count(10.0 * n, 10.0 * n - 33, C, began_at=33.0)])
    resources = summarize(seen, 0, 80)
    assert resources.cpu_s == pytest.approx(15 + 47)
    assert resources.names == ["s/a", "s/c"]
    # It took the other's place.
    assert resources.restarts == 1
    assert resources.cpus == 1.0


def test_one_more_pod_is_no_restart() -> None:
    seen = watch(EVERY_TEN)
    seen.set_pods([PODS[A], replace(PODS[B], began_at=33.0)])
    for n in range(4, 12):
        seen.add_counts([count(10.0 * n, 10.0 * n - 33, B, began_at=33.0)])
    assert summarize(seen, 0, 110).restarts == 0


def test_the_busiest_pod_is_named() -> None:
    """A cluster of which one node can't do more has CPU left all the same."""
    seen = watch(EVERY_TEN, *PODS.values())
    for n in range(12):
        seen.add_counts([count(10.0 * n + 3, 9.5 * n, B)])
    resources = summarize(seen, 0, 110)
    assert resources.cpu_share == pytest.approx((0.5 + 0.95) / 3)
    assert resources.busiest == "s/b"
    assert resources.busiest_share == pytest.approx(0.95)
    # Of both, though they are looked at in turns.
    assert resources.timeline[5][1] == pytest.approx(1.45)


@pytest.mark.parametrize(
    ("limits", "nodes", "cpus"),
    [
        ((2.0, 1.0), {}, 3.0),
        ((None, 1.0), {}, None),
        ((None, 1.0), {"node1": 8.0}, 9.0),
        ((16.0, None), {"node1": 8.0, "node2": 4.0}, 12.0),
    ],
)
def test_share_of_limits_or_of_nodes(
    limits: tuple[float | None, float | None], nodes: dict[str, float], cpus: float | None
) -> None:
    pods = [replace(pod, cpu_limit=limit) for pod, limit in zip(PODS.values(), limits, strict=True)]
    seen = watch(EVERY_TEN, *pods)
    seen.node_cpus |= nodes
    resources = summarize(seen, 0, 110)
    assert resources.cpus == cpus
    assert resources.cpu_share == (None if cpus is None else pytest.approx(0.5 / cpus))


def test_two_pods_of_a_node_have_its_cpus_once() -> None:
    pods = [replace(pod, node="node1", cpu_limit=None) for pod in PODS.values()]
    seen = watch(EVERY_TEN, *pods)
    seen.node_cpus["node1"] = 8.0
    assert summarize(seen, 0, 110).cpus == 8.0


def test_disk_network_and_memory() -> None:
    seen = watch(EVERY_TEN, replace(PODS[A], ingress_bits_per_s=8000.0, egress_bits_per_s=80e3))
    for n in range(12):
        at = 10.0 * n
        seen.add_counts(
            [
                count(at, 1e6 + 7000 * n, kind=Kind.WRITTEN),
                count(at, 2000 * n, kind=Kind.READ),
                count(at, 9000 * n, kind=Kind.RECEIVED),
                count(at, 4000 * n, kind=Kind.SENT),
            ]
        )
        seen.add_memory([Memory(A, "pg", at, 1e6 + n), Memory(A, "side", at + 1, 500)])
    resources = summarize(seen, 20, 100)
    assert (resources.disk_written_bytes, resources.disk_read_bytes) == (56_000, 16_000)
    assert (resources.received_bytes, resources.sent_bytes) == (72_000, 32_000)
    assert resources.link_share == pytest.approx(0.9)
    assert resources.memory_peak_bytes == 1e6 + 10 + 500
    second, cpus, memory = resources.timeline[0]
    assert (second, memory) == (0, 1e6 + 3 + 500)
    assert cpus == pytest.approx(0.5)


def test_what_is_not_known_of_all_pods_is_not_known() -> None:
    """One of them may be on its node's network, of which nothing is told."""
    seen = watch(EVERY_TEN, *PODS.values())
    for n in range(12):
        seen.add_counts([count(10.0 * n, 5 * n, B), count(10.0 * n, n, kind=Kind.SENT)])
    resources = summarize(seen, 20, 100)
    assert resources.sent_bytes is resources.received_bytes is resources.disk_read_bytes is None
    assert resources.memory_peak_bytes is resources.link_share is None


def test_means_of_the_metrics_api_cover_the_time_before_them() -> None:
    seen = Consumption("the metrics API")
    seen.set_pods([PODS[A]])
    for ended in (30.0, 30.0, 45.0, 60.0):
        seen.add_means([Mean(A, "pg", ended - 20, ended, 0.5, 1e6), Mean(B, "x", 0, 9, 1, 1)])
    resources = summarize(seen, 20, 60)
    assert resources.cpu_s == pytest.approx(20)
    assert resources.covered_share == pytest.approx(0.75)
    assert resources.memory_peak_bytes == 1e6
    assert resources.source == "the metrics API, every 15 s"


def test_what_is_used_now_is_what_each_pod_used_last() -> None:
    """Of pods that are there now; a container that began anew counts once."""
    readings = [count(0, 0), count(10, 5), count(20, 25), count(20, 0, B), count(30, 5, B)]
    seen = watch(readings, *PODS.values())
    use = seen.find_use()
    assert use is not None
    assert use.cpus_used == pytest.approx(2.5)
    assert use.cpus == 3.0
    seen.add_counts([count(35, 0.0, began_at=30.0), count(40, 0.5, began_at=30.0)])
    seen.set_pods([PODS[A]])
    use = seen.find_use()
    assert use is not None
    assert use.cpus_used == pytest.approx(0.1)
    assert use.cpus == 2.0
    assert watch([count(0, 0)]).find_use() is None


def test_a_longer_window_is_only_advised_where_it_would_help() -> None:
    assert explain_too_little("the kubelets", 20.0).endswith(
        "make it 30 s or longer, or add a warm-up"
    )
    assert (
        explain_too_little("the kubelets", 60.0)
        == "the kubelets covered less than half of the window"
    )
