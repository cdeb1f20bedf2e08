"""What two fill levels say of what is stored in the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cli.results.decision import MOST_TIMES, Cell, Requirement, Sample, Scale, Status, Unit, decide
from cli.results.scaling import (
    Growth,
    extend,
    find_growth,
    format_least,
    format_share,
    is_flat,
    limit_cell,
)

ROW = Requirement(key="queries.q.p99", heading="q p99", unit=Unit.MS, bound=1000)
KEPT = 3_888_000_000
"""5,000 devices, an event every 10 s, for 90 days."""
ENOUGH = KEPT // MOST_TIMES


def _extend(
    times: Sequence[tuple[float, float]],
    low: int = ENOUGH // 10,
    high: int = ENOUGH,
    kept: int = KEPT,
    row: Requirement = ROW,
) -> Cell:
    """The cell of a query with these times at the two levels, one pair for each repetition."""
    samples = [
        Sample(repetition=number, keeps=row.find_headroom(after) >= 1, value=after)
        for number, (_, after) in enumerate(times, 1)
    ]
    growths = [
        growth
        for number, (before, after) in enumerate(times, 1)
        if (growth := find_growth(number, (low, before), (high, after)))
    ]
    return extend(row, decide(row, samples), Scale(events=high, kept=kept), growths)


def test_a_power_of_the_events_is_found_and_goes_on() -> None:
    growth = find_growth(1, (1_000_000, 20.0), (10_000_000, 80.0))
    assert growth is not None
    assert growth.exponent == pytest.approx(0.602, abs=1e-3)
    assert growth.predict(100_000_000) == pytest.approx(320)


@pytest.mark.parametrize(
    ("low", "high"),
    [((1000, None), (9000, 5.0)), ((1000, 5.0), (1900, 5.0)), ((0, 5.0), (1900, 5.0))],
)
def test_without_two_levels_there_is_no_growth(
    low: tuple[int, float | None], high: tuple[int, float | None]
) -> None:
    assert find_growth(1, low, high) is None


@pytest.mark.parametrize("level", [100_000, 1_000_000, 10_000_000, ENOUGH])
def test_a_full_scan_is_never_met(level: int) -> None:
    """10 ns an event, whatever of it is measured: 39 s in the end, where a second is allowed."""
    times = [(level / 10 * 1e-5 * noise, level * 1e-5 * noise) for noise in (0.98, 1.0, 1.03)]
    cell = _extend(times, level // 10, level)
    assert cell.status is not Status.MET
    if level >= 10_000_000:
        # What it takes on thirty times as many is too long already.
        assert (cell.status, (cell.headroom or 1) < 1) == (Status.MISSED, True)
    else:
        assert "a history of 130M events would decide" in (cell.reason or "")


def test_what_stays_flat_is_met_and_called_so() -> None:
    cell = _extend([(5.0, 5.01), (5.03, 5.0), (4.98, 4.99)])
    assert (cell.status, cell.reason) == (Status.MET, None)
    assert cell.scale is not None
    assert is_flat(cell.scale)
    assert cell.scale.extrapolated_to == pytest.approx(KEPT, rel=1e-6)


def test_noise_is_not_called_flat() -> None:
    cell = _extend([(5.0, 6.0), (6.0, 5.0), (5.0, 5.0)])
    assert cell.status is Status.MET  # far from the limit
    assert cell.scale is not None
    assert cell.scale.exponent is not None
    assert cell.scale.exponent.low < 0 < cell.scale.exponent.high
    assert not is_flat(cell.scale)


def test_a_limit_within_the_interval_is_undecided() -> None:
    cell = _extend([(80.0, 300.0), (100.0, 250.0), (90.0, 280.0)])
    assert cell.status is Status.UNDECIDED
    assert cell.scale is not None
    assert cell.scale.extrapolated is not None
    assert cell.scale.extrapolated.low < 1000 < cell.scale.extrapolated.high
    assert "on 3.89G events" in (cell.reason or "")
    # The headroom is that of what follows.
    assert cell.headroom == pytest.approx(1000 / cell.scale.extrapolated.mean)


def test_beyond_thirty_times_nothing_is_met() -> None:
    assert _extend([(5.0, 5.0), (5.0, 5.01)]).status is Status.MET
    cell = _extend([(5.0, 5.0), (5.0, 5.01)], low=1_000_000, high=10_000_000)
    assert cell.status is Status.UNDECIDED
    assert cell.headroom == pytest.approx(199, rel=0.02)
    assert cell.reason == (
        "on 10M of 3.89G events, and figures are extrapolated 30 × at most: a history of 130M events"
        " would decide"
    )


def test_what_an_idle_machine_would_not_decide_is_not_put_down_to_others() -> None:
    samples = [
        Sample(repetition=number, keeps=True, value=5.0, busy="other programs used 90% of the CPU")
        for number in (1, 2)
    ]
    growths = [Growth(number, 1_000_000, 5.0, 10_000_000, 5.0) for number in (1, 2)]
    cell = extend(ROW, decide(ROW, samples), Scale(events=10_000_000, kept=KEPT), growths)
    assert cell.status is Status.UNDECIDED
    assert "a history of 130M events would decide" in (cell.reason or "")
    assert "idle machine" not in (cell.reason or "")


def test_what_is_stored_in_the_end_was_measured_needs_no_second_level() -> None:
    cell = _extend([(0.0, 5.0), (0.0, 5.0)], high=KEPT)
    assert cell.status is Status.MET
    assert cell.scale is not None
    assert (cell.scale.extrapolated, format_share(cell.scale.share)) == (None, "all")


def test_one_level_or_one_repetition_decides_nothing_but_a_miss() -> None:
    one_level = _extend([(0.0, 5.0), (0.0, 5.0)])
    assert one_level.status is Status.UNDECIDED
    assert "measured at one fill level" in (one_level.reason or "")
    assert _extend([(0.0, 1500.0), (0.0, 1510.0)]).status is Status.MISSED
    assert _extend([(5.0, 5.0)]).status is Status.UNDECIDED


def test_what_becomes_less_with_the_events_is_worse_when_it_is_less() -> None:
    row = Requirement(
        key="events_per_s", heading="load", unit=Unit.EVENTS_PER_S, bound=1000, at_least=True
    )
    falling = [(20_000.0, 10_000.0), (20_100.0, 10_000.0)]
    assert _extend(falling, row=row).status is Status.MET  # to 3,600
    cell = _extend([(20_000.0, 2_000.0), (20_100.0, 2_000.0)], row=row)
    assert cell.status is Status.MISSED
    assert cell.headroom == pytest.approx(0.066, rel=0.05)


@pytest.mark.parametrize(
    ("total", "events", "status"),
    [(1e12, ENOUGH, Status.MET), (3e12, ENOUGH, Status.MISSED), (1e12, 10**6, Status.UNDECIDED),
     # A hundredth of it is too much already.
     (300e12, 10**6, Status.MISSED), (3e12, 10**6, Status.UNDECIDED)],
)  # fmt: skip
def test_a_disk_is_not_told_from_too_few_events(total: float, events: int, status: Status) -> None:
    row = Requirement(key="disk", heading="disk", unit=Unit.BYTES, bound=2e12)
    samples = [
        Sample(repetition=number, keeps=total <= 2e12, value=total * (1 + number / 1000))
        for number in (1, 2)
    ]
    cell = limit_cell(row, decide(row, samples), Scale(events=events, kept=KEPT))
    assert cell.status is status


def test_shares_are_short() -> None:
    shares = (0.0321, 3e-5, 1.2, 0.5)
    assert [format_share(share) for share in shares] == ["3.21%", "0.003%", "all", "50%"]


def test_what_would_decide_is_rounded_up() -> None:
    assert [format_least(30 * 103_680_001), format_least(50)] == ["104M", "2"]
