"""What was asked of a run and not given: windows longer than the data, lateness longer than the run."""

from __future__ import annotations

import pytest

from simulator.collector.report import find_lateness, find_long_windows
from simulator.contract import DataSet, LongWindows, StoredPart
from simulator.testing.events import Sundry
from simulator.workloads import load_workload
from simulator.workloads.drawing import Stored
from simulator.workloads.numbering import WithHistory, add_history
from simulator.workloads.queries import Aggregate, At, Function, Query, Window
from simulator.workloads.temperature import Temperature


def ask(name: str, span: str, at: At = At.DRAWN) -> Query:
    window = Window.model_validate({"span": span, "at": at})
    return Query(name=name, window=window, compute=(Aggregate(function=Function.COUNT),))


@pytest.mark.parametrize("at", At)
def test_windows_that_are_longer_than_the_data_are_named(at: At) -> None:
    workload = Temperature(device_spread=2)
    interval_s = workload.device_interval_ms / 1000
    stored = Stored(workload, [StoredPart(0, 0, 160)])
    whole_s = 80 * interval_s
    queries = [ask("week", "7d", at), ask("all", f"{whole_s:g}s", at), None]
    windows = find_long_windows(queries, stored)
    first, end = stored.span_ms
    assert windows == LongWindows(stored_ms=end - first, queries={"week": 7 * 86_400_000})
    assert find_long_windows(queries[1:], stored) is None


@pytest.mark.parametrize(("span", "named"), [("1d", False), ("25h", True)])
def test_a_history_covers_windows_of_its_length(span: str, named: bool) -> None:
    data = DataSet(workload="machines", prefill_span_s=86_400, prefill_every_s=300)
    workload = add_history(load_workload("machines")(3), data)
    assert isinstance(workload, WithHistory)
    stored = Stored(workload, [StoredPart(0, 0, workload.count_history(0))])
    assert (find_long_windows([ask("day", span)], stored) is not None) is named


def test_a_run_that_is_too_short_for_its_late_events_says_how_many_came() -> None:
    late = load_workload("machines")(3, late=0.02)
    short = find_lateness(late, [StoredPart(0, 0, 10_000), StoredPart(1, 0, 10_000)])
    assert short is not None
    assert short.asked == 0.02
    assert short.came == pytest.approx(0.0056, abs=0.002)
    # What another run has sent before doesn't count.
    assert find_lateness(late, [StoredPart(0, 200_000, 10_000)]) is None
    # A worker may have come too late to send any.
    alone = find_lateness(late, [StoredPart(0, 0, 10_000)])
    assert find_lateness(late, [StoredPart(0, 0, 10_000), StoredPart(1, 0, 0)]) == alone is not None
    assert find_lateness(late, [StoredPart(0, 0, 250_000)]) is None
    assert find_lateness(late, [StoredPart(0, 0, 10**9)]) is None
    assert find_lateness(Sundry(3, late=0.0), [StoredPart(0, 0, 60)]) is None
    assert find_lateness(Temperature(), [StoredPart(0, 0, 60)]) is None
