"""What the figures of a campaign show."""

from __future__ import annotations

from typing import Any

import pytest

from cli.results.matrix import Measured
from cli.results.model import Result
from cli.show.campaign_charts import draw_campaign
from cli.show.drawing import to_svg
from cli.show.templates import Chart
from simulator.contract import Storage

from ...made import capacity, inserts, open_loop, queries, steps


def rows(figure: Chart | None, panel: int | None = None) -> list[dict[str, Any]]:
    assert figure is not None
    spec = figure.spec if panel is None else figure.spec["vconcat"][panel]
    values: list[dict[str, Any]] = spec["data"]["values"]
    return values


def draw(
    kind: str,
    measured: Measured,
    step: str = "step",
    required_per_s: float | None = None,
    **more: Measured,
) -> Chart | None:
    """The chart of this kind of a campaign of one step, or of several; None if it has none."""
    first, single = draw_campaign({step: measured, **more}, required_per_s)
    own = [chart for chart in (*first, *single) if chart.kind.partition("-")[2] == kind]
    return own[0] if own else None


def dots(figure: Chart | None) -> list[dict[str, Any]]:
    """The single measurements in a chart of lines."""
    assert figure is not None
    return [
        row
        for spec in figure.spec.get("vconcat", [figure.spec])
        for layer in spec["layer"]
        if layer["mark"]["type"] == "point"
        for row in layer.get("data", {}).get("values", [])
    ]


def test_a_capacity_has_the_interval_of_all_repetitions_and_the_limit() -> None:
    measured = {
        "a": [capacity(40_000.0), capacity(44_000.0)],
        "b": [capacity(20_000.0)],
        "c": [],
    }
    figure = draw("capacity", measured, "search", required_per_s=30_000.0)
    assert figure is not None
    assert figure.title == "search: capacity within p99=100ms"
    assert "Dashed: the required 30,000 events/s." in figure.note
    (first, second) = rows(figure)
    answers = [result.capacity for result in measured["a"]]
    held = [answer.events_per_s for answer in answers if answer and answer.events_per_s]
    above = [answer.above_per_s for answer in answers if answer and answer.above_per_s]
    assert (first["name"], second["name"]) == ("a", "b")
    assert first["value"] == pytest.approx((held[0] * held[1]) ** 0.5)
    assert (first["low"], first["high"]) == (min(held), max(above))
    assert "required" in to_svg(figure.spec)


def test_a_search_that_found_nothing_is_named() -> None:
    none = capacity(40_000.0)
    assert none.capacity is not None
    none.capacity.events_per_s = None
    figure = draw("capacity", {"a": [capacity(40_000.0)], "b": [none]})
    assert figure is not None and "No rate held: b." in figure.note
    assert [row["name"] for row in rows(figure)] == ["a"]
    assert draw("capacity", {"a": [inserts({1: [1.0]})]}) is None


def test_response_times_over_the_rate_are_of_the_limits_percentile() -> None:
    results = [capacity(40_000.0, ["p99_9=300ms"]), capacity(44_000.0, ["p99_9=300ms"])]
    figure = draw("responses-over-rate", {"a": results})
    assert figure is not None
    assert "p99.9" in dots(figure)[0]["text"]
    offered = {
        step.rate_per_s
        for result in results
        if result.capacity
        for step in result.capacity.steps
        if step.rate_per_s
    }
    joined = [row["x"] for row in rows(figure)]
    assert {row["x"] for row in dots(figure)} <= offered
    assert 1 < len(joined) < len(offered)
    assert joined == sorted(joined)
    assert "p99_9=300ms" in to_svg(figure.spec)


def test_levels_are_means_over_the_repetitions() -> None:
    measured = {"a": [steps({0: 200.0, 500: 100.0}), steps({0: 300.0, 510: 200.0})]}
    figure = draw("levels", measured)
    points = [(row["x"], round(row["value"], 1)) for row in rows(figure, 0)]
    assert points == [(0, 244.9), (505, 141.4)]
    assert {row["value"] for row in dots(figure)} >= {200, 300, 100}
    assert [row["value"] for row in rows(figure, 1)] == [3.0, 3.0]
    assert draw("levels", {"a": [inserts({1: [1.0]})]}) is None


def _store(result: Result, *sizes: int) -> Result:
    for number, (group_run, size) in enumerate(zip(result.writers, sizes, strict=True), 1):
        group_run.group.storage = Storage(total_bytes=size, events=1000 * number)
    return result


def test_disk_is_over_the_events_that_are_stored() -> None:
    measured = {
        "a": [_store(steps({0: 1.0, 9: 1.0}), 100, 300), _store(steps({0: 1.0, 9: 1.0}), 200, 300)]
    }
    figure = draw("storage", measured, "growth", insert={"a": [inserts({1: [1.0]})]})
    points = [(row["x"], round(row["value"], 1)) for row in rows(figure)]
    assert points == [(1000, 141.4), (2000, 300)]
    assert draw("storage", {"a": [inserts({1: [1.0]})]}) is None


def test_disk_is_of_the_step_with_the_widest_range_of_levels() -> None:
    near, far = _store(inserts({1: [1.0, 2.0]}), 10, 20), _store(inserts({1: [1.0] * 3}), 1, 2, 3)
    figure = draw("storage", {"a": [near]}, "load", disk={"a": [far]})
    assert figure is not None and figure.title == "disk: disk over fill level"
    growing = _store(steps({0: 1.0, 9: 1.0}), 100, 300)
    figure = draw("storage", {"a": [far]}, "disk", growth={"a": [growing]})
    assert figure is not None and figure.title == "growth: disk over fill level"


def _ask(level: int, took_s: float) -> Result:
    result = queries({"count": [took_s, took_s]})
    result.runs[0].fill_level = level
    return result


def test_query_times_are_over_the_fill_level_if_there_are_several() -> None:
    early = {"a": [_ask(1000, 1.0), _ask(1010, 3.0)]}
    late = {"a": [_ask(50_000, 9.0)]}
    points = rows(draw("query-levels", early, "early", late=late))
    assert [(row["x"], round(row["value"])) for row in points] == [(1005, 1732), (50_000, 9000)]
    assert draw("query-levels", early) is None


def test_times_have_a_point_for_each_candidate_and_query() -> None:
    measured = {
        name: [queries({"x": [t, t], "y": [2 * t, 2 * t]}), queries({"x": [3 * t], "y": [t]})]
        for name, t in (("a", 1.0), ("b", 3.0))
    }
    points = rows(draw("queries", measured))
    assert [(row["at"], row["series"], round(row["value"])) for row in points] == [
        ("x", "a", 1732), ("y", "a", 1414), ("x", "b", 5196), ("y", "b", 4243),
    ]  # fmt: skip
    assert (points[0]["low"], points[0]["high"]) == pytest.approx((1000, 3000))
    assert draw("responses", measured) is None


def test_where_a_rate_was_given_times_are_drawn_and_no_rates() -> None:
    measured = {name: [open_loop({2: [900.0, 901.0]}, 900.0)] * 2 for name in "ab"}
    assert draw("rates", measured) is None
    figure = draw("responses", measured)
    assert {row["at"] for row in rows(figure)} == {
        "2 workers, response p50", "2 workers, response p99",
    }  # fmt: skip
