"""Figures hold what is stored, say their units, and can be told apart by everybody."""

from __future__ import annotations

import itertools
import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.commands.results import KINDS as OFFERED
from cli.commands.results import THEMES as OFFERED_THEMES
from cli.results.answers import TunedSetting
from cli.results.model import Result
from cli.results.naming import NamedResult
from cli.results.store import read_result
from cli.show import drawing
from cli.show.charts import KINDS, MOST_BARS, draw, draw_all, draw_answer
from cli.show.drawing import NARROW_PX, draw_narrow, embed, make_standalone_svg, to_png, to_svg
from cli.show.notes import list_notes
from cli.show.report import add_title, write_plot
from cli.show.runs import PANELS
from cli.show.templates import Chart
from cli.show.vega import (
    DARK,
    GRID,
    INK,
    MOST_LOG_TICKS,
    MUTED,
    PAPER,
    PHASES,
    SERIES,
    SHAPES,
    WIDTH,
    list_log_ticks,
)
from cli.system.errors import ConfigError
from simulator.contract import Allocation, LatencyMs, MinuteLatency, Resources, Storage
from simulator.histograms import COARSE, Histogram, LatencyRecorder

from ..made import (
    STORED,
    asked_by_the_clock,
    capacity,
    client,
    compare_in_turns,
    disturbed,
    inserts,
    open_loop,
    queries,
    steps,
    stored,
    tuned,
)

SVG = "{http://www.w3.org/2000/svg}"


def named(*results: Result) -> list[NamedResult]:
    return [NamedResult(f"name {number}", result) for number, result in enumerate(results)]


def drawn(kind: str, *results: Result) -> Chart:
    figure = draw(kind, named(*results))
    assert figure is not None
    return figure


def rows(figure: Chart) -> list[dict[str, Any]]:
    """The data of a figure's panels."""
    panels = figure.spec.get("vconcat", [figure.spec])
    return [row for panel in panels for row in panel["data"]["values"]]


def rows_of(figure: Chart, title: str) -> list[dict[str, Any]]:
    """The data of the panel with this vertical axis; nothing if there is none."""
    return [
        row
        for spec in figure.spec.get("vconcat", [figure.spec])
        if any(title == layer["encoding"].get("y", {}).get("title") for layer in spec["layer"])
        for row in spec["data"]["values"]
    ]


def dots(figure: Chart) -> list[dict[str, Any]]:
    """The single measurements in a figure."""
    return [
        row
        for spec in figure.spec.get("vconcat", [figure.spec])
        for layer in spec["layer"]
        if layer["mark"]["type"] == "point"
        for row in layer.get("data", {}).get("values", [])
    ]


def marks(svg: str) -> list[str]:
    """The exact figures of all marks, as a page shows them on hover."""
    return [
        mark.get("aria-label", "")
        for mark in ET.fromstring(svg).iter()
        if mark.get("aria-roledescription") in ("point", "bar", "rule mark", "rect mark")
    ]


SWEEP = inserts({1: [100.0, 110.0], 4: [300.0, 330.0, 360.0]})
OTHER = inserts({1: [50.0, 51.0], 2: [60.0]}, "beta")
LEVELS = steps({0: 200.0, 5000: 150.5})
ASKED = queries({"count": [0.5, 0.75], "newest": [40.0]})


def grown(target: str = "alpha") -> Result:
    """Steps of 5,000 events, each of which takes less than the one before."""
    result = steps({0: 200.0, 5000: 150.5, 10_000: 120.0}, target)
    pages = Allocation(unit_bytes=8192, cause="files grow by pages")
    for group_run, size in zip(result.writers, (500_000, 900_000, 1_200_000), strict=True):
        events = (group_run.run.fill_level or 0) + 5000
        group_run.group.storage = Storage(
            total_bytes=size, index_bytes=size // 4, events=events, allocation=pages
        )
    return result


TUNED = tuned(
    [
        TunedSetting(name="batch", values=[10, 1000], default=10),
        TunedSetting(name="copy_format", option=True, values=["text", "binary"], default="binary"),
    ],
    {0: [100.0], 1: [110.0], 2: [1_500.0]},
    {2: [1_600.0], 1: [90.0]},
)

OF_EACH_KIND = {
    "workers": (SWEEP, OTHER),
    "fill-level": (LEVELS, steps({0: 90.0}, "beta")),
    "storage": (grown(), grown("beta")),
    "queries": (ASKED, queries({"count": [0.25]}, "beta")),
    "rate": (capacity(), capacity(at=9_000.0)),
    "tuning": (TUNED,),
    "clients": (compare_in_turns(), compare_in_turns()),
    "client-cpu": (compare_in_turns(), compare_in_turns()),
    "time": (SWEEP, OTHER),
    "latency": (SWEEP, OTHER),
    "query-latency": (asked_by_the_clock(), asked_by_the_clock("beta")),
    "client": (SWEEP, OTHER),
    "phases": (SWEEP, ASKED),
}


def test_all_kinds_are_offered_and_tested() -> None:
    assert tuple(KINDS) == OFFERED == tuple(OF_EACH_KIND)
    assert drawing.THEMES == OFFERED_THEMES


# --- what they hold -------------------------------------------------------------------------------


def test_throughput_by_workers_is_the_summary() -> None:
    points = {(row["series"], row["x"]): row for row in rows(drawn("workers", SWEEP, OTHER))}
    assert list(points) == [("name 0", 1), ("name 0", 4), ("name 1", 1), ("name 1", 2)]
    for entry in SWEEP.insert_summary:
        row = points["name 0", entry.workers]
        assert (row["value"], (row["low"], row["high"])) == (entry.avg, entry.ci95)
    # A single run has no interval.
    assert points["name 1", 2]["low"] == points["name 1", 2]["high"] == 60.0


def test_fill_levels_are_the_summary() -> None:
    points = [(row["x"], row["value"]) for row in rows(drawn("fill-level", LEVELS))]
    assert points == [(0, 200.0), (5000, 150.5)]


def test_what_is_on_disk_by_fill_level() -> None:
    result = grown()
    by_panel = [
        [(row["x"], row["value"]) for row in panel["data"]["values"]]
        for panel in drawn("storage", result).spec["vconcat"]
    ]
    assert by_panel == [
        [(5000, 500_000), (10_000, 900_000), (15_000, 1_200_000)],
        [(5000, 125_000), (10_000, 225_000), (15_000, 300_000)],
        [(10_000, 80.0), (15_000, 60.0)],
    ]
    # Indexes of which nothing is told have no panel, runs of which nothing is told no points.
    for group_run in result.writers:
        assert group_run.group.storage is not None
        group_run.group.storage.index_bytes = None
    result.writers[1].group.storage = Storage(reason="it doesn't tell")
    assert [row["x"] for row in rows(drawn("storage", result))] == [5000, 15_000]
    assert draw("storage", named(LEVELS, SWEEP)) is None


def test_throughput_over_time_shows_a_second_without_an_answer() -> None:
    """It is not in the timeline, but that is just what one wants to see."""
    figure = drawn("time", inserts({4: [300.0]}))
    by_part = {
        part: [(row["x"], row["value"]) for row in rows_of(figure, PANELS[part])]
        for part in ("all", "slowest")
    }
    assert by_part["all"] == [(0, 300), (1, 150), (2, 0), (3, 7)]
    assert by_part["slowest"] == [(0, 11), (1, 0), (2, 0), (3, 3)]
    assert "worker 3" in rows(figure)[-1]["text"]


def test_over_time_an_open_loop_shows_its_backlog_and_where_its_warm_up_ended() -> None:
    figure = drawn("time", open_loop({1: [1000.0]}))
    waiting = [(row["x"], row["value"]) for row in rows_of(figure, PANELS["backlog"])]
    assert waiting == [(0, 10), (1, 50), (2, 5)]
    panels = figure.spec["vconcat"]
    assert len(panels) == 3
    for panel in panels:
        assert [layer["data"]["values"] for layer in panel["layer"] if "data" in layer] == [
            [{"limit": 1.0}]
        ]
    assert "before the dashed line is warm-up" in " ".join(figure.remarks)
    assert "response time" in drawn("latency", open_loop({1: [1000.0]})).note
    assert "response time" not in drawn("latency", inserts({1: [1000.0]})).note


def keep_minutes(result: Result, latencies_ms: Sequence[float]) -> None:
    """As if each of 200 requests of a minute had taken so long."""
    result.writers[0].group.minutes = [
        MinuteLatency(
            begins_s=60 * number,
            requests=200,
            histogram=Histogram.of([latency_ms / 1000] * 200, COARSE),
        )
        for number, latency_ms in enumerate(latencies_ms)
    ]


def test_p99_over_time_is_that_of_each_minute() -> None:
    result = inserts({1: [300.0]})
    keep_minutes(result, [2.0, 50.0])
    figure = drawn("time", result)
    points = rows_of(figure, PANELS["p99"])
    assert [row["x"] for row in points] == [0, 60]
    assert [row["value"] for row in points] == pytest.approx([2.0, 50.0], rel=0.03)
    assert "seconds 60 to 119: p99" in points[1]["text"]
    assert "answered in each minute" in " ".join(figure.remarks)
    assert "answered in each minute" not in " ".join(drawn("time", inserts({1: [300.0]})).remarks)


def test_p99_of_a_day_is_drawn_for_several_minutes_together() -> None:
    """Of all their requests: no mean and no maximum of their percentiles."""
    result = inserts({1: [300.0]})
    keep_minutes(result, [2.0] * 1439 + [50.0])
    slow = result.writers[0].group.minutes[0]
    # Two of 802 requests, so not one of a hundred.
    rare = Histogram.of([0.05] * 2 + [0.002] * 200, COARSE)
    result.writers[0].group.minutes[0] = slow.model_copy(update={"histogram": rare})
    points = rows_of(drawn("time", result), PANELS["p99"])
    assert len(points) == 288
    assert points[0]["value"] == pytest.approx(2.0, rel=0.03)
    assert points[-1]["value"] == pytest.approx(50.0, rel=0.03)
    assert "1,000 requests" in points[-1]["text"]


@pytest.mark.parametrize(("end_s", "last"), [(3.5, 2), (3.99, 3), (20.0, 3)])
def test_a_last_second_that_is_not_whole_is_cut(end_s: float, last: int) -> None:
    """It would look like a drop."""
    result = inserts({1: [300.0]})
    result.writers[0].group.per_worker[0].end_s = end_s
    seconds = [row["x"] for row in rows(drawn("time", result))]
    # Of the slowest worker, too; a second without events before it stays.
    assert max(seconds) == (last if last == 3 else 1)


def test_a_long_run_is_drawn_in_steps() -> None:
    result = inserts({1: [10.0]})
    group = result.writers[0].group
    group.timeline = [(second, second) for second in range(700)]
    group.slowest_worker = None
    points = rows(drawn("time", result))
    assert len(points) == 234
    # Steps of three seconds, the last one of a single second.
    assert [(row["x"], row["value"]) for row in points[:2]] == [(0, 1.0), (3, 4.0)]
    assert (points[-1]["x"], points[-1]["value"]) == (699, 699.0)
    assert points[1]["text"].endswith("seconds 3 to 5: 12 events")
    assert points[-1]["text"].endswith("second 699: 699 events")


def test_throughput_over_time_is_that_of_the_slowest_valid_run() -> None:
    result = inserts({4: [300.0, 200.0, 100.0]})
    result.writers[2].group.invalid_reasons = ["lost"]
    assert {row["series"] for row in rows(drawn("time", result))} == {"4 workers, run 2"}


def test_beside_others_a_result_shows_its_best_worker_count() -> None:
    points = rows(drawn("time", SWEEP, OTHER))
    assert list(dict.fromkeys(row["series"] for row in points)) == [
        "name 0, 4 workers, run 1",
        "name 1, 2 workers, run 1",
    ]


def test_latencies_are_of_the_run_with_the_highest_p99() -> None:
    points = rows(drawn("latency", inserts({4: [10.0, 11.0]})))
    assert [(row["percentile"], row["value"]) for row in points] == [
        ("p50", 1.5), ("p90", 2.5), ("p99", 5.0), ("p99.9", 40.25), ("max", 500.125),
    ]  # fmt: skip
    assert points[0]["series"] == "4 workers, run 2"
    assert points[3]["text"] == "4 workers, run 2\np99.9: 40.2 ms"


def test_a_percentile_that_no_step_knows_has_no_panel() -> None:
    """Of two searches with steps so short that p99.9 isn't known."""
    searches = [capacity(), capacity(at=9_000.0)]
    for run in (run for search in searches for run in search.runs):
        latency = run.groups[0].latency_ms
        assert latency is not None
        run.groups[0].latency_ms = latency.model_copy(update={"p99_9": None})
    panels = len(drawn("rate", capacity(), capacity(at=9_000.0)).spec["vconcat"])
    assert len(drawn("rate", *searches).spec["vconcat"]) == panels - 1


def test_the_times_of_a_search_have_the_digits_that_a_histogram_knows() -> None:
    texts = {row["text"].splitlines()[-1] for row in rows(drawn("rate", capacity(at=70_001.0)))}
    times = [text.split()[-2] for text in texts if text.startswith("response time ")]
    assert times and all(len(re.sub(r"^0\.0*|[.,]", "", time)) <= 3 for time in times)


def test_latencies_with_a_histogram_are_a_curve() -> None:
    """Each share of the requests beside what it doesn't exceed, up to the slowest."""
    recorder = LatencyRecorder()
    for number in range(1, 1001):
        recorder.record(number / 1000)
    histogram = recorder.finish()
    result = inserts({1: [10.0]})
    group = result.writers[0].group
    group.histogram, group.latency_ms = histogram, LatencyMs.of(histogram)
    figure = drawn("latency", result)
    line, _ = figure.spec["layer"]
    curve = [(row["rank"], row["value"]) for row in line["data"]["values"]]
    assert curve[0] == (1.0, pytest.approx(1, rel=0.01))
    assert curve[-1] == (1000.0, pytest.approx(1000, rel=0.01))
    assert [ms for rank, ms in curve if rank == pytest.approx(2)] == [pytest.approx(500, rel=0.01)]
    assert [ms for _, ms in curve] == sorted(ms for _, ms in curve)
    marked = [(row["percentile"], round(row["rank"])) for row in rows(figure)]
    assert marked == [("p50", 2), ("p90", 10), ("p99", 100), ("p99.9", 1000), ("max", 1000)]
    labels = re.findall(r"<text[^>]*>([^<]+)</text>", to_svg(figure.spec))
    assert labels[:5] == ["0", "50", "90", "99", "99.9"]
    # One run without it, and there is no curve.
    other = drawn("latency", result, OTHER)
    assert all("data" not in layer for layer in other.spec["layer"])


def test_latencies_of_readers_are_a_curve_for_each_query() -> None:
    figure = drawn("query-latency", asked_by_the_clock())
    line, _ = figure.spec["layer"]
    ends = {row["series"]: row["value"] for row in line["data"]["values"]}
    # Those of both runs together, the slowest query first.
    assert list(ends) == ["slow", "fast"]
    assert ends["slow"] == pytest.approx(2000, rel=0.01)
    assert ends["fast"] == pytest.approx(20, rel=0.01)
    beside = drawn("query-latency", asked_by_the_clock(), asked_by_the_clock("beta"))
    assert {row["series"] for row in rows(beside)} == {
        "slow, name 0", "fast, name 0", "slow, name 1", "fast, name 1",
    }  # fmt: skip


def test_a_narrow_figure_has_all_of_it_in_less_width() -> None:
    name = "timescaledb-kubernetes batch=10000 copy_format=binary"
    answer = draw_answer(
        [NamedResult(f"{name} {n}", inserts({4: [9e6, 9.1e6 + n]})) for n in range(3)]
    )
    assert answer is not None
    heat = drawn("tuning", TUNED)
    for figure in (answer, heat, *(drawn(kind, *of) for kind, of in OF_EACH_KIND.items())):
        wide, narrow = to_svg(figure.spec), draw_narrow(figure.spec)
        assert float(drawing.find_size(narrow)[0]) <= NARROW_PX, figure.kind
        # Every mark is there; of names only their lines differ.
        assert sorted(" ".join(mark.split()) for mark in marks(narrow)) == sorted(
            " ".join(mark.split()) for mark in marks(wide)
        ), figure.kind


def test_a_narrow_figure_breaks_no_word_of_a_name() -> None:
    names = ("alpha copy_format=binary", "beta")
    figure = draw_answer([NamedResult(name, inserts({4: [100.0]})) for name in names])
    assert figure is not None
    assert "copy_format=binary<" in draw_narrow(figure.spec)


@pytest.mark.parametrize("kind", ["time", "latency", "query-latency"])
def test_a_narrow_figure_cuts_no_name_in_its_legend(kind: str) -> None:
    label = "timescaledb-kubernetes batch=10000 copy_format=binary"
    results = (NamedResult(f"{label} {n}", result) for n, result in enumerate(OF_EACH_KIND[kind]))
    figure = draw(kind, list(results))
    assert figure is not None
    narrow = draw_narrow(figure.spec)
    assert f"{label} 1" in narrow
    assert "…" not in narrow


def bars(figure: Chart) -> tuple[list[tuple[str, float]], dict[str, list[float]]]:
    """(bar, value) from top to bottom, and the dots of each."""
    dots: dict[str, list[float]] = {}
    for layer in figure.spec["layer"]:
        for row in layer.get("data", {}).get("values", []):
            dots.setdefault(row["name"], []).append(row["sample"])
    return [(row["name"], row["value"]) for row in rows(figure)], dots


def test_the_answer_is_the_best_of_each_with_its_runs() -> None:
    figure = draw_answer(named(OTHER, ASKED, SWEEP))
    assert figure is not None
    shown, dots = bars(figure)
    assert shown == [("name 2, 4 workers", 330.0), ("name 0, 2 workers", 60.0)]
    # A single run is the bar itself.
    assert dots == {"name 2, 4 workers": [300.0, 330.0, 360.0]}
    ends = [(row["low"], row["high"]) for row in rows(figure)]
    assert ends == [SWEEP.insert_summary[1].ci95, (60.0, 60.0)]
    assert "95 % interval" in figure.note
    assert "dot" in figure.note


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ((SWEEP,), [("1 worker", 105.0), ("4 workers", 330.0)]),
        ((LEVELS,), [("level 0", 200.0), ("level 5,000", 150.5)]),
        ((ASKED,), [("count", 625.0), ("newest", 40_000.0)]),
        ((ASKED, ASKED), [("count, name 0", 625.0), ("count, name 1", 625.0),
                          ("newest, name 0", 40_000.0), ("newest, name 1", 40_000.0)]),
        ((SWEEP, capacity()), [("name 1", pytest.approx(50_000, rel=0.1))]),
    ],
)  # fmt: skip
def test_the_answer_of_each_kind(results: Sequence[Result], expected: list[Any]) -> None:
    figure = draw_answer(named(*results))
    assert figure is not None
    assert bars(figure)[0] == expected


def test_the_answer_fits_a_screen() -> None:
    figure = draw_answer(named(*[inserts({1: [n + 1.0, n + 2.0]}) for n in range(30)]))
    assert figure is not None
    assert len(rows(figure)) == MOST_BARS
    assert rows(figure)[0]["value"] == 30.5
    assert f"{30 - MOST_BARS} more are in the tables" in figure.note
    assert draw_answer(named(inserts({}, options={"workers": [1]}))) is None


def test_a_bars_label_is_beside_it_in_as_many_lines_as_it_takes() -> None:
    names = ("short", "a name of many words " * 4, "another")
    figure = draw_answer(
        [NamedResult(name, inserts({1: [9.0 - place]})) for place, name in enumerate(names)]
    )
    assert figure is not None
    root = ET.fromstring(to_svg(figure.spec))
    (labels,) = [group for group in root.iter(f"{SVG}g") if "role-axis-label" in
                 group.get("class", "") and "short" in "".join(group.itertext())]  # fmt: skip
    middles = []
    for label in labels.iter(f"{SVG}text"):
        further = len(label.findall(f"{SVG}tspan")) - 1
        first = float(re.findall(r"[\d.]+", label.get("transform", ""))[1])
        middles.append(first + max(0, further) * 15 / 2)
    step = figure.spec["height"] / 3
    assert [b - a for a, b in itertools.pairwise(middles)] == pytest.approx([step, step], abs=3)


def test_one_worker_count_has_bars() -> None:
    figure = drawn("workers", inserts({4: [50.0, 51.0]}), inserts({4: [60.0, 62.0]}))
    assert bars(figure)[0] == [("name 1", 61.0), ("name 0", 50.5)]
    assert not [layer for layer in figure.spec["layer"] if layer["mark"]["type"] == "line"]


@pytest.mark.parametrize(("most", "scale"), [(50.0, "linear"), (51.0, "log")])
def test_rates_far_apart_have_a_logarithmic_axis(most: float, scale: str) -> None:
    """As bars, as lines and over fill levels, with a note."""
    for figure in (
        drawn("workers", inserts({1: [1.0]}), inserts({1: [most]})),
        drawn("workers", inserts({1: [1.0], 2: [most]})),
        drawn("fill-level", steps({0: most, 5: 1.0})),
    ):
        scales = [
            axis["scale"].get("type", "linear")
            for channels in encodings(figure.spec)
            for axis in (channels["x"], channels["y"])
            if axis.get("title") == "Inserts/s"
        ]
        assert set(scales) == {scale}
        assert ("logarithmic" in figure.note) is (scale == "log")
        assert marks(to_svg(figure.spec))


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([9.0, 700.0], [10, 20, 50, 100, 200, 500]),
        ([0.3, 40.0], [0.5, 1, 2, 5, 10, 20]),
        ([3.0, 70_000.0], [1, 10, 100, 1000, 10_000, 100_000]),
        ([1.0, 1e9], [1, 100, 10_000, 1e6, 1e8]),
    ],
)
def test_a_logarithmic_axis_has_few_round_ticks(values: list[float], ticks: list[float]) -> None:
    assert list_log_ticks(values) == pytest.approx(ticks)


def test_response_times_far_apart_have_few_grid_lines() -> None:
    """The renderer's own are nine for each power of ten, of which few have a label."""
    svg = to_svg(drawn("rate", capacity(at=9_000.0)).spec)
    grids = re.findall(r'class="mark-rule role-axis-grid"[^>]*>(.*?)</g>', svg)
    labels = re.findall(r'class="mark-text role-axis-label"[^>]*>(.*?)</g>', svg)
    assert 3 <= grids[1].count("<line") <= MOST_LOG_TICKS
    assert labels[1].count("<text") == grids[1].count("<line")


def test_query_times_are_the_summary() -> None:
    points = [
        (row["at"], row["low"], row["value"], row["high"]) for row in rows(drawn("queries", ASKED))
    ]
    assert points == [("count", 500.0, 625.0, 750.0), ("newest", 40_000.0, 40_000.0, 40_000.0)]


def test_query_times_are_told_in_ms_with_three_digits() -> None:
    result = queries({"a": [0.000123456, 0.000234567]}, cold=0.0012345)
    (row,) = rows(drawn("queries", result))
    assert row["text"].splitlines()[1:] == [
        "a: mean 0.179 ms", "0.123 to 0.235 ms in 2 executions", "the first time 1.23 ms",
    ]  # fmt: skip
    answer = draw_answer([NamedResult("name", result)])
    assert answer is not None
    assert [row["said"] for row in rows(answer)] == ["0.179 ms"]


AFTER_FIRST = "the executions after each worker's first"
ONLY_FIRST = "the first executions of queries that ran only once"


@pytest.mark.parametrize(
    ("results", "counted"),
    [
        ([queries({"a": [0.5]})], AFTER_FIRST),
        ([queries({"a": []})], ONLY_FIRST),
        ([queries({"a": [0.5], "b": []})], f"{AFTER_FIRST}, or {ONLY_FIRST}"),
        ([queries({"a": []}), queries({"a": [0.5]})], f"{AFTER_FIRST}, or {ONLY_FIRST}"),
    ],
)
def test_query_times_say_which_executions_count(results: list[Result], counted: str) -> None:
    """As the notes do: of a query that ran only once, the first ones."""
    figure = drawn("queries", *results)
    assert figure.note.startswith(f"Mean of {counted}, and the range")
    notes = [note for result in results for note in list_notes(result, terminal=False)]
    assert (ONLY_FIRST in figure.note) is any("ran only once" in note for note in notes)
    for row in rows(figure):
        # A first execution isn't told of twice.
        assert ("the first time" in row["text"]) is (row["value"] != 8_000.0)


@pytest.mark.parametrize(("longest", "scale"), [(2.0, "linear"), (25.0, "linear"), (25.5, "log")])
def test_query_times_far_apart_have_a_logarithmic_axis(longest: float, scale: str) -> None:
    figure = drawn("queries", queries({"a": [0.5], "b": [longest]}))
    scale_type = figure.spec["layer"][0]["encoding"]["x"]["scale"].get("type", "linear")
    assert scale_type == scale
    assert ("logarithmic" in figure.note) is (scale == "log")


def test_the_clients_share_is_that_of_the_busiest_run() -> None:
    result = inserts({4: [10.0, 11.0]})
    result.writers[0].group.client = client(0.9, bound=True)
    figure = drawn("client", result)
    (row,) = rows(figure)
    assert row["value"] == pytest.approx(90.0)
    assert figure.remarks == ["4 workers, run 1: client-bound: much to do."]


def test_phases_are_those_of_each_run() -> None:
    points = [
        (row["row"], row["series"], row["end"] - row["begin"])
        for row in rows(drawn("phases", SWEEP))
    ]
    assert len(points) == 5 * 6
    assert ("1 worker, run 1", "clean up", 1.5) in points
    query_points = rows(drawn("phases", ASKED))
    assert {row["row"] for row in query_points} == {"all queries"}


def test_many_runs_are_shown_by_the_first_of_each_worker_count() -> None:
    result = inserts({workers: [10.0] * 10 for workers in (1, 2, 4, 8)})
    assert list(dict.fromkeys(row["row"] for row in rows(drawn("phases", result)))) == [
        "1 worker, run 1", "2 workers, run 1", "4 workers, run 1", "8 workers, run 1",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_data_no_figure(kind: str) -> None:
    empty = inserts({}, options={"workers": [1]})
    assert draw(kind, named(empty)) is None
    assert draw(kind, []) is None


@pytest.mark.parametrize("name", ["insert", "steps", "query"])
def test_every_stored_result_can_be_drawn(name: str) -> None:
    figures = draw_all(named(read_result(STORED / f"{name}.json")))
    assert figures
    for figure in figures:
        assert marks(to_svg(figure.spec))


# --- how they look --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_mark_carries_its_figures(kind: str) -> None:
    figure = drawn(kind, *OF_EACH_KIND[kind])
    texts = marks(to_svg(figure.spec))
    assert set(texts) == {row["text"] for row in rows(figure) + dots(figure)}


def test_marks_are_where_their_figures_are() -> None:
    """Heights on the page are those of the stored rates, from zero."""
    figure = drawn("workers", SWEEP, OTHER)
    height = figure.spec["height"]
    points = [
        mark
        for mark in ET.fromstring(to_svg(figure.spec)).iter()
        if mark.get("aria-roledescription") == "point"
    ]
    places = [re.findall(r"[\d.]+", point.get("transform", ""))[:2] for point in points]
    rates = {row["text"]: row["value"] for row in rows(figure)}
    drawn_rates = [rates[point.get("aria-label", "")] for point in points]
    heights = [height - float(y) for _, y in places]
    scale = heights[0] / drawn_rates[0]
    assert heights == pytest.approx([rate * scale for rate in drawn_rates], abs=0.01)
    counts = {row["text"]: row["x"] for row in rows(figure)}
    across = [(counts[point.get("aria-label", "")], float(x)) for point, (x, _) in
              zip(points, places, strict=True)]  # fmt: skip
    assert [count for count, _ in sorted(across, key=lambda pair: pair[1])] == [1, 1, 2, 4]


def encodings(spec: object) -> Iterator[dict[str, Any]]:
    if isinstance(spec, dict):
        if "encoding" in spec:
            yield spec["encoding"]
        for inner in spec.values():
            yield from encodings(inner)
    elif isinstance(spec, list):
        for inner in spec:
            yield from encodings(inner)


UNITS = ("Inserts/s", "events/s", "bytes", "Events", "Seconds", " ms", "%", "µs of CPU")


@pytest.mark.parametrize("kind", KINDS)
def test_every_axis_says_what_it_shows(kind: str) -> None:
    axes = [
        channels[axis]
        for channels in encodings(drawn(kind, *OF_EACH_KIND[kind]).spec)
        for axis in ("x", "y")
        if axis in channels and "limit" not in channels[axis]["field"]
    ]
    assert axes
    for axis in axes:
        # The names beside bars say what they are.
        assert axis["title"] or axis["field"] == "name"
        if axis["type"] == "quantitative" and axis["title"] != "Number of workers":
            assert any(unit in axis["title"] for unit in UNITS), axis["title"]


def test_one_series_needs_no_legend_and_several_have_one() -> None:
    assert "role-legend" not in to_svg(drawn("workers", SWEEP).spec)
    svg = to_svg(drawn("workers", SWEEP, OTHER).spec)
    # One for colour and shape together.
    assert svg.count('aria-roledescription="legend"') == 1
    assert ">name 0<" in svg
    assert ">name 1<" in svg


def test_many_series_stay_different() -> None:
    """By colour and shape, when there are more of them than colours; and each has a panel of its own, with
    what is of no series in all of them."""
    figure = drawn("workers", *[inserts({1: [n + 1.0], 2: [n + 2.0]}) for n in range(20)])
    assert len(figure.spec["facet"]["sort"]) == 20
    svg = to_svg(figure.spec)
    assert all(f">name {number}<" in svg for number in range(20))
    assert svg.count("mark-symbol role-mark child_layer_1_marks") == 20
    layers = figure.spec["spec"]["layer"]
    (points,) = [layer for layer in layers if layer["mark"]["type"] == "point"]
    scales = [points["encoding"][channel]["scale"]["range"] for channel in ("stroke", "shape")]
    assert len(set(zip(*scales, strict=True))) == 20


def test_names_are_escaped() -> None:
    result = inserts({1: [5.0]}, '<script>alert("x")</script>&')
    figure = draw("workers", [NamedResult(result.target, result), *named(OTHER)])
    assert figure is not None
    svg = make_standalone_svg(add_title(figure, "<b>&")[0], "auto")
    assert "<script" not in svg
    assert "<b>" not in svg
    ET.fromstring(svg)


# --- colours --------------------------------------------------------------------------------------

# Machado, Oliveira & Fernandes, A physiologically-based model for simulation of color vision
# deficiency (2009), severity 1.0, on linear RGB.
SIGHT = {
    "all three": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip
_TO_XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
                    [0.0193339, 0.1191920, 0.9503041]])  # fmt: skip

Colour = np.ndarray[Any, Any]


def linear(colour: str) -> Colour:
    values = np.array([int(colour[n : n + 2], 16) for n in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(colour: Colour) -> Colour:
    """CIE L*a*b*, in which equal distances are about equally visible."""
    xyz = _TO_XYZ @ np.clip(colour, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(first: str, second: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    low, high = sorted(float(linear(colour) @ _TO_XYZ[1]) for colour in (first, second))
    return (high + 0.05) / (low + 0.05)


def on_dark(colours: Sequence[str]) -> list[str]:
    return [DARK[colour] for colour in colours]


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("colours", [list(SERIES), on_dark(SERIES)], ids=["light", "dark"])
def test_series_can_be_told_apart(sight: str, colours: Sequence[str]) -> None:
    for first, second in itertools.combinations(colours, 2):
        seen = [lab(SIGHT[sight] @ linear(colour)) for colour in (first, second)]
        # 2.3 is just noticeable.
        assert np.linalg.norm(seen[0] - seen[1]) > 9, (first, second)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everything_stands_out_from_the_paper(dark: bool) -> None:
    def of(colour: str) -> str:
        return DARK[colour] if dark else colour

    assert contrast(of(INK), of(PAPER)) >= 7
    assert contrast(of(MUTED), of(PAPER)) >= 4.5
    for colour in SERIES:
        assert contrast(of(colour), of(PAPER)) >= 3, colour


def test_every_colour_has_one_for_the_dark() -> None:
    assert set(DARK) == {*SERIES, *PHASES.values(), INK, MUTED, GRID, PAPER}
    assert len(set(SHAPES)) == len(SERIES) == len(SHAPES)
    for kind, results in OF_EACH_KIND.items():
        figure = drawn(kind, *results)
        svg = make_standalone_svg(add_title(figure, "Title")[0], "light")
        used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]+|[a-z]+)"', svg)) - {"none"}
        # What is never seen keeps its default.
        assert used - {"transparent", "black"} <= set(DARK), kind


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("theme", drawing.THEMES)
def test_an_svg_stands_alone(theme: str) -> None:
    spec, _ = add_title(drawn("workers", SWEEP), "A title", ["A remark."])
    svg = make_standalone_svg(spec, theme)
    root = ET.fromstring(svg)
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "A title" in texts
    assert any("A remark." in "".join(element.itertext()) for element in root.iter(f"{SVG}text"))
    assert re.findall(r'https?://[^" ]+', svg) == [
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    ]
    assert ("prefers-color-scheme: dark" in svg) is (theme == "auto")
    paper = next(root.iter(f"{SVG}rect")).get("fill")
    assert paper == (DARK[PAPER] if theme == "dark" else PAPER)


def test_no_figure_is_cut_off_by_a_long_name() -> None:
    """The legend is above, so the plot keeps its width."""
    long = inserts({1: [5.0]}, "x" * 60)
    svg = to_svg(drawn("workers", long, OTHER).spec)
    width = float(ET.fromstring(svg).get("width", 0))
    assert WIDTH < width < WIDTH * 1.25


def size(png: bytes) -> tuple[int, int]:
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_a_png_is_twice_the_svg() -> None:
    spec, _ = add_title(drawn("workers", SWEEP), "Title")
    root = ET.fromstring(make_standalone_svg(spec, "light"))
    expected = tuple(round(2 * float(root.get(side, 0))) for side in ("width", "height"))
    assert size(to_png(spec, "light")) == pytest.approx(expected, abs=2)
    assert to_png(spec, "dark") != to_png(spec, "light") == to_png(spec, "auto")


def test_figures_on_one_page_do_not_share_ids() -> None:
    svg = '<svg width="1" height="2" viewBox="0"><g id="a" clip-path="url(#a)"/></svg>'
    assert embed(svg, "x") == (
        '<svg style="max-width:1px;min-width:0.8px" viewBox="0"><g id="x-a" clip-path="url(#x-a)"/></svg>'
    )


def test_the_kind_is_chosen_by_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for result, name in ((SWEEP, "workers"), (LEVELS, "fill-level"), (ASKED, "queries")):
        path, _ = write_plot([stored(result)], None, None, None, "auto")
        assert path == Path(f"{name}.svg")
        ET.fromstring(Path(f"{name}.svg").read_text())


def test_a_source_is_named_in_the_picture(tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    first, second = (steps({0: 1.0}, name, source="read off") for name in ("a", "b"))
    write_plot([stored(first), stored(second)], None, file, None, "auto")
    shown = " ".join(ET.fromstring(file.read_text()).itertext())
    assert shown.count("Not measured by this tool: read off.") == 1


@pytest.mark.parametrize(
    ("result", "kind", "name", "reason"),
    [
        (ASKED, "workers", "a.svg", "no data for --kind workers; they have for queries, phases"),
        (inserts({}, options={"workers": [1]}), None, "a.svg", "no figure to draw"),
        (SWEEP, None, "a.gif", r"ends in \.svg or \.png"),
    ],
)
def test_what_can_not_be_drawn(
    tmp_path: Path, result: Result, kind: str | None, name: str, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        write_plot([stored(result)], kind, tmp_path / name, None, "auto")
    assert list(tmp_path.iterdir()) == []


def test_the_database_cpu_is_beside_the_rate_over_time() -> None:
    used = Resources(cpu_s=2.0, timeline=[(0, 0.5, 10_000_000), (1, 1.5, 20_000_000)])
    result = inserts({1: [100.0]})
    result.runs[0].resources = used
    figure = drawn("time", result)
    shown = rows_of(figure, PANELS["database"])
    assert [(row["x"], row["value"]) for row in shown] == [(0, 0.5), (1, 1.5)]
    assert "1.50 CPUs, 20 MB of memory" in shown[1]["text"]
    assert "database's CPU" in " ".join(figure.remarks)


def test_marks_and_the_gaps_after_them_are_drawn_in_each_panel_and_told() -> None:
    figure = drawn("time", disturbed((10.0, 5.0), (12.0, 0), (30.0, 0)))
    panels = [
        [row for layer in panel["layer"] for row in layer.get("data", {}).get("values", [])]
        for panel in figure.spec["vconcat"]
    ]
    area = {"begin": 10.1, "end": 15.0, "text": "nothing was acknowledged for 4.9 s"}
    times = list(enumerate((10.0, 12.0, 30.0), 1))
    lines = [{"mark": at, "text": f"{at:g}s run number-{number}"} for number, at in times]
    labels = [{"mark": at, "text": f"run number-{number}"} for number, at in times]
    # The second mark shares the first one's gap, which is drawn once.
    assert panels == [[area, *lines, *labels], [area, *lines]]
    assert "grey is the longest time after it" in " ".join(figure.remarks)
    assert (
        "After run number-2 at 12.0 s nothing was acknowledged for 3.0 s (shared with"
        in figure.remarks[1]
    )
    svg = to_svg(figure.spec)
    assert svg.count('aria-label="nothing was acknowledged for 4.9 s"') == 2
    assert ">run number-3<" in svg


def test_a_tuning_shows_the_best_of_each_pair() -> None:
    by_pair = {(row["x"], row["y"]): row for row in rows(drawn("tuning", TUNED))}
    # Of a pair without a figure there is no cell.
    assert {place: row["value"] for place, row in by_pair.items()} == {
        ("10", "text"): 100.0, ("10", "binary"): 110.0, ("1000", "text"): 1600.0,
    }  # fmt: skip
    assert by_pair["1000", "text"]["label"] == "1.6k"
    assert by_pair["1000", "text"]["text"] == "batch=1000, copy_format=text\n1,600"


def test_the_answer_of_tunings_is_what_their_best_settings_reach() -> None:
    over = [TunedSetting(name="batch", values=[10, 1000], default=10)]
    first = tuned(over, {0: [90.0], 1: [900.0]}, {1: [1_000.0, 1_010.0, 990.0], 0: [100.0]})
    alone = draw_answer(named(first))
    assert alone is not None
    values, dots = bars(alone)
    assert [name for name, _ in values] == ["batch=1000", "batch=10"]
    assert values[0][1] == pytest.approx(1_000) and dots == {
        "batch=1000": [1_000.0, 1_010.0, 990.0]
    }
    second = tuned(over, {0: [90.0], 1: [900.0]}, {0: [2_000.0], 1: [100.0]})
    beside = draw_answer(named(first, second))
    assert beside is not None
    assert [name for name, _ in bars(beside)[0]] == ["name 1, batch=10", "name 0, batch=1000"]
