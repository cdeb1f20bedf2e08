"""What the database's processes used, between looks at them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.run.probes.database import Counters, Root, Use, count_cpus, summarize_use
from cli.run.probes.timeline import Window

OLD, NEW = (10, 1.0), (20, 105.0)


def look(at: float, cpu_s: float, root: Root = OLD, **others: float) -> Use:
    """`others`: CPU seconds of further roots, by `p` and their number; they began at 0."""
    used = {root: cpu_s} | {(int(name[1:]), 0.0): own for name, own in others.items()}
    return Use(
        at=at,
        roots={process: Counters(own, 0, int(own * 1000)) for process, own in used.items()},
        names=("postgres",),
        memory_bytes=1_000_000,
        disks_busy_s={"a": at / 4, "b": at / 2},
    )


STEADY = [look(100.0 + second, 50 + 0.5 * second) for second in range(11)]


def test_use_is_that_of_the_window() -> None:
    resources = summarize_use(STEADY, Window(102.0, 108.0, 100.0, 1_000_000), 2)
    assert resources is not None
    assert resources.cpu_s == pytest.approx(3.0)
    assert resources.cpu_share == pytest.approx(0.25)
    assert resources.cpu_us_per_event == pytest.approx(3.0)
    assert resources.disk_written_bytes == 3000
    assert resources.disk_busy_share == pytest.approx(0.5)
    assert resources.restarts == 0
    assert [second for second, _, _ in resources.timeline] == [2, 3, 4, 5, 6, 7]
    assert {cpus for _, cpus, _ in resources.timeline} == {0.5}


def test_the_ends_of_a_window_go_on_as_the_rest() -> None:
    resources = summarize_use(STEADY[3:8], Window(102.5, 107.5, 100.0, None), 2)
    assert resources is not None
    assert resources.cpu_s == pytest.approx(2.5)
    assert resources.cpu_us_per_event is None


def test_too_little_is_known_of_a_window() -> None:
    assert summarize_use(STEADY[:2], Window(100.0, 103.0, 100.0, 1), 2) is None
    assert summarize_use([], Window(100.0, 103.0, 100.0, 1), 2) is None


def test_counters_begin_anew_with_a_restart() -> None:
    uses = [*STEADY[:5], *(look(100.0 + s, 0.5 * (s - 4), NEW) for s in range(5, 11))]
    resources = summarize_use(uses, Window(100.0, 110.0, 100.0, None), 2)
    assert resources is not None
    assert resources.restarts == 1
    assert resources.cpu_s == pytest.approx(5.0)


def test_a_process_that_takes_its_time_along_is_no_negative_use() -> None:
    uses = [look(100.0, 50.0), look(101.0, 40.0), look(102.0, 41.0)]
    resources = summarize_use(uses, Window(100.0, 102.0, 100.0, None), 2)
    assert resources is not None
    assert resources.cpu_s == pytest.approx(1.0)


def test_bytes_that_can_not_be_seen_are_not_known() -> None:
    uses = [*STEADY[:-1], replace(STEADY[-1], roots={OLD: Counters(55.0, None, None)})]
    resources = summarize_use(uses, Window(100.0, 110.0, 100.0, None), 2)
    assert resources is not None
    assert resources.disk_written_bytes is None
    assert resources.cpu_s == pytest.approx(5.0)


def test_one_of_several_nodes_restarts() -> None:
    """It is known again some seconds after its start, by where it listens."""
    nodes = [look(100.0 + s, 50 + 0.5 * s, p11=70 + 0.2 * s) for s in range(4)]
    nodes += [look(100.0 + s, 50 + 0.5 * s) for s in range(4, 8)]
    # Since 104.5 it has used 1.5 CPUs to start.
    late: dict[Root, Counters] = {(12, 104.5): Counters(1.5 * 3.5, 0, 0)}
    last = look(108.0, 54.0)
    nodes += [replace(last, roots={**last.roots, **late})]
    resources = summarize_use(nodes, Window(100.0, 108.0, 100.0, None), 2)
    assert resources is not None
    assert resources.restarts == 1
    assert max(cpus for _, cpus, _ in resources.timeline) == pytest.approx(2.0)
    # The others' use goes on while a node is away, and all that it takes to start is counted.
    assert resources.cpu_s == pytest.approx(8 * 0.5 + 3 * 0.2 + 3.5 * 1.5)
    assert [cpus for second, cpus, _ in resources.timeline if second >= 5] == [
        pytest.approx(2.0)
    ] * 3


def test_a_server_that_is_away_uses_nothing() -> None:
    away = [replace(look(float(at), 0.0), roots={}, memory_bytes=0) for at in (103, 104)]
    uses = [
        *STEADY[:3],
        *away,
        *(look(100.0 + s, 0.5 * (s - 4.5), (20, 104.5)) for s in range(5, 9)),
    ]
    resources = summarize_use(uses, Window(100.0, 108.0, 100.0, None), 2)
    assert resources is not None
    assert resources.restarts == 1
    assert [cpus for _, cpus, _ in resources.timeline] == [0.5, 0.5, 0.0, 0.0, 0.25, 0.5, 0.5, 0.5]
    assert resources.names == ["postgres"]


def test_what_is_used_now_is_what_was_used_last() -> None:
    assert count_cpus(STEADY) == pytest.approx(0.5)
    assert count_cpus([look(100.0, 50.0), look(102.0, 55.0)]) == pytest.approx(2.5)
    assert count_cpus(STEADY[:1]) is None
    # Between its end and its next start there is no server.
    assert count_cpus([STEADY[0], replace(STEADY[1], roots={})]) is None
