"""How long nothing was acknowledged after a mark, and when the rate was back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from cli.results.faults import describe_outages, find_outages
from cli.results.model import GroupRun
from simulator.contract import (
    CatchUp,
    GroupResult,
    LatencyMs,
    Lookup,
    Mark,
    Role,
    RunResult,
    Verification,
)

RESTART = Mark(at_s=20.4, ended_s=21.0, action="20s restart-server")


def make_run(
    rates: Sequence[int],
    gaps: Sequence[tuple[float, float]] = (),
    marks: Sequence[Mark] = (RESTART,),
    stored: int | None = 100,
    window_s: float | None = None,
) -> GroupRun:
    group = GroupResult(
        role=Role.WRITE, workers=1, window_s=window_s, gaps=list(gaps),
        timeline=[(second, rate) for second, rate in enumerate(rates) if rate],
        verification=Verification(expected=100, stored=stored, ok=stored == 100),
    )  # fmt: skip
    run = RunResult(fill_level=0, marks=list(marks), groups=[group])
    group.outages = find_outages(run)
    return look_up(GroupRun(run, group), 0, 0)


def look_up(group_run: GroupRun, missing: int, doubled: int) -> GroupRun:
    return add_lookup(group_run, Lookup(events=100, missing=missing, doubled=doubled))


def add_lookup(group_run: GroupRun, lookup: Lookup) -> GroupRun:
    return GroupRun(group_run.run, group_run.group.model_copy(update={"lookup": lookup}))


def test_an_outage_and_the_way_back() -> None:
    rates = [100] * 20 + [40] + [0] * 6 + [50, 70, *[96] * 12]
    run = make_run(rates, [(3.0, 4.0), (20.6, 27.3)])
    [outage] = run.group.outages
    assert outage.gap_began_s == 20.6
    assert outage.gap_s == pytest.approx(6.7)
    assert outage.recovered_after_s == pytest.approx(28 - 20.4)
    [text] = describe_outages(run)
    assert text == (
        "After restart-server at 20.4 s nothing was acknowledged for 6.7 s; the rate recovered after 7.6 s;"
        " nothing was lost or stored twice."
    )


def test_a_gap_that_began_before_counts_from_the_mark() -> None:
    [outage] = make_run([100] * 40, [(19.9, 21.4)]).group.outages
    assert outage.gap_began_s == 20.4
    assert outage.gap_s == pytest.approx(1.0)
    assert outage.recovered_after_s == pytest.approx(1.0)


def test_without_a_mark_there_is_no_outage() -> None:
    assert make_run([100] * 20, [(3.0, 4.0)], marks=[]).group.outages == []


def test_an_outage_long_after_a_mark_is_not_put_down_to_it() -> None:
    run = make_run([100] * 200, [(150.0, 154.0), (190.0, 191.0)])
    assert [outage.gap_s for outage in run.group.outages] == [0.0]
    [text] = describe_outages(run)
    assert text == (
        "After restart-server at 20.4 s events were acknowledged throughout; an outage of 4.0 s that began"
        " 129.6 s after it is not attributed to it; nothing was lost or stored twice."
    )


def test_single_low_seconds_are_chance() -> None:
    rates = [100] * 20 + [100, 80, 100, 100, 85, *[100] * 20]
    [outage] = make_run(rates).group.outages
    assert (outage.gap_s, outage.recovered_after_s) == (0.0, 0.0)


def test_a_rate_that_fell_without_a_gap() -> None:
    rates = [100] * 20 + [100] + [30] * 8 + [100] * 10
    [outage] = make_run(rates).group.outages
    assert outage.recovered_after_s == pytest.approx(28 - 20.4)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (make_run([100] * 20 + [30] * 20, [(20.5, 22.0)]), "did not return to 90 %"),
        (
            make_run([100] * 21 + [0] * 6 + [100], [(20.5, 27.2)], window_s=24.0),
            "for 6.7 s; the run ended before the rate recovered;",
        ),
        (
            make_run([100] * 21, [(20.5, 24.0)], window_s=24.0),
            "for 3.5 s; the rate did not return to 90 %",
        ),
        (
            make_run([100] * 21 + [20, 20], window_s=23.0),
            "throughout; too little of the run was left to see whether the rate recovered;",
        ),
        (
            make_run([100] * 21 + [0, 0, 60, 60], [(20.5, 23.2)], window_s=25.0),
            "for 2.7 s; too little of the run was left to see whether",
        ),
        (
            make_run([100] * 21 + [30] * 4, window_s=25.0),
            "throughout; the rate did not return to 90 %",
        ),
        (
            make_run([100] * 40, marks=[RESTART.model_copy(update={"at_s": 0.4})]),
            "throughout; too early in the run to know the rate before it; nothing",
        ),
        (make_run([100] * 40, stored=97), "3 events are missing"),
        (make_run([100] * 40, stored=103), "3 events are stored twice"),
        (
            look_up(make_run([100] * 40), 2, 2),
            "; 2 events are missing and 2 events are stored twice.",
        ),
        (look_up(make_run([100] * 40), 0, 1), "; 1 event is stored twice."),
        (
            add_lookup(make_run([100] * 40), Lookup(events=9, missing=3, incomplete=2, doubled=0)),
            "; 3 events are missing (2 of them in part).",
        ),
        (look_up(make_run([100] * 40), 0, 0), "nothing was lost"),
        (
            add_lookup(make_run([100] * 40), Lookup(reason="no such table")),
            "but they were not looked up one by one (no such table), so a lost event and a duplicate",
        ),
        (
            add_lookup(make_run([100] * 40), Lookup(events=1, missing=0, doubled=0, per_group=7)),
            "; nothing was lost or stored twice, as counted in groups of 7 events of a device.",
        ),
        (
            make_run([100] * 40, [(24.0, 26.0)]),
            "nothing was acknowledged for 2.0 s, starting 3.6 s after it; the rate recovered",
        ),
        (make_run([100] * 40, stored=None), "events lost: unknown"),
        (
            make_run([100] * 40, marks=[RESTART.model_copy(update={"ok": False, "said": "no"})]),
            "at 20.4 s, which failed, ",
        ),
    ],
)
def test_what_is_said_of_it(run: GroupRun, words: str) -> None:
    [text] = describe_outages(run)
    assert words in text


def test_of_a_long_command_its_beginning_is_told() -> None:
    mark = RESTART.model_copy(
        update={"action": "20s run for node in a b c;\n do restart" + " x" * 40}
    )
    [text] = describe_outages(make_run([100] * 40, marks=[mark]))
    assert text.startswith(
        "After run for node in a b c; do restart x x x x x x x x x x x x x… at 20.4 s "
    )


def test_each_mark_has_the_time_to_the_next() -> None:
    marks: list[Any] = [RESTART, Mark(at_s=30.0, action="30s kill-server")]
    run = make_run([100] * 60, [(20.5, 22.0), (30.2, 34.0)], marks)
    assert [outage.gap_s for outage in run.group.outages] == [
        pytest.approx(1.5),
        pytest.approx(3.8),
    ]


def make_marks(*times: float, failed: float | None = None) -> list[Mark]:
    return [Mark(at_s=at, action=f"{at:g}s run number-{at:g}", ok=at != failed) for at in times]


@pytest.mark.parametrize(
    ("marks", "gap", "cause"),
    [
        (make_marks(10, 15), (15.2, 20), 1),
        (
            make_marks(10, 15),
            (14.98, 20),
            1,
        ),  # the last request before it was answered right before
        (make_marks(10, 15), (12, 20), 0),  # pods take their time to end
        (make_marks(10, 15, failed=15), (15.2, 20), 0),
        (make_marks(10, failed=10), (10.2, 20), 0),
        (make_marks(15, 17), (14.1, 20), 0),  # hardly anything was acknowledged
        (make_marks(10, 10.3, 15), (10.1, 20), 0),
    ],
)
def test_a_gap_is_put_down_to_the_last_mark_before_it(
    marks: Sequence[Mark], gap: tuple[float, float], cause: int
) -> None:
    run = make_run([100] * 10 + [0] * 10 + [100] * 10, [gap], marks)
    for place, outage in enumerate(run.group.outages):
        assert outage.shared_with == (None if place == cause or not outage.gap_s else cause)
    assert run.group.outages[cause].gap_s == pytest.approx(gap[1] - max(gap[0], marks[cause].at_s))


def test_marks_that_share_a_gap_say_so_and_have_the_same_rate_before() -> None:
    rates = [100] * 20 + [10] + [0] * 6 + [5] + [100] * 20
    run = make_run(rates, [(20.4, 27.6)], make_marks(20, 24.0, 24.2))
    assert [outage.recovered_after_s for outage in run.group.outages] == [
        pytest.approx(27.6 - at) for at in (20, 24, 24.2)
    ]
    first, second, third = describe_outages(run)
    assert "shared" not in first
    for text in (second, third):
        assert "(shared with run number-20 at 20.0 s)" in text


def test_another_mark_right_after_says_nothing_of_the_rate() -> None:
    run = make_run([100] * 40, marks=make_marks(20, 20.5))
    assert [outage.recovered_after_s for outage in run.group.outages] == [0.0, 0.0]


PAUSE = Mark(at_s=10.0, ended_s=15.0, action="10s pause-fleet 5s")


def catch_up(after_s: float | None, p99: float | None = 900.0) -> GroupRun:
    """The fleet was cut off for 5 s, and 500 events were held back."""
    group_run = make_run([100] * 10 + [0] * 5 + [600] + [100] * 10, [(9.99, 15.1)], marks=[PAUSE])
    latency = LatencyMs(p50=500.0, p90=800.0, p99=p99, max=901.0)
    group_run.group.catch_ups = [
        CatchUp(
            begins_s=10.0, ends_s=15.0, held=500, after_s=after_s, lateness_s=5.4, burst_ms=latency,
            later_ms=None if after_s is None else LatencyMs(p50=1.0, p90=2.0, p99=3.14, max=4.0),
        )
    ]  # fmt: skip
    return group_run


def test_after_a_fleet_was_cut_off_its_events_are_worked_off() -> None:
    [text] = describe_outages(catch_up(after_s=0.912))
    assert text == (
        "After pause-fleet 5s at 10.0 s 500 events that had been held back arrived at once; the"
        " backlog was cleared after 0.912 s, meanwhile p99 was 900 ms, afterwards p99 was 3.14 ms; the"
        " latest was stored 5.4 s after it was due; nothing was lost or stored twice."
    )
    [text] = describe_outages(catch_up(after_s=None, p99=None))
    assert text == (
        "After pause-fleet 5s at 10.0 s 500 events that had been held back arrived at once; the backlog was"
        " not cleared before the run ended, or the fleet was cut off again; the latest was stored 5.4 s after"
        " it was due; nothing was lost or stored twice."
    )


def test_what_else_is_done_meanwhile_has_its_own_sentence() -> None:
    group_run = catch_up(after_s=0.5)
    group_run.run.marks.append(Mark(at_s=12.0, ended_s=12.5, action="12s kill-server"))
    group_run.group.outages = find_outages(group_run.run)
    first, second = describe_outages(group_run)
    assert first.startswith("After pause-fleet 5s at 10.0 s 500 events that had been held back")
    assert second.startswith("After kill-server at 12.0 s nothing was acknowledged for 3.1 s")
    assert "(shared with pause-fleet 5s at 10.0 s)" in second
