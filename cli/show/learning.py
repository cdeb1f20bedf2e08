"""What was learnt from a recording: recorded and generated events side by side, as a table and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan

from simulator.units import format_digits

from ..plan.learning.clock import Clock
from ..plan.learning.comparing import Comparison, Line
from ..plan.learning.describing import Learnt, show_exact_ms
from ..plan.learning.nearness import LAGS, PERCENTS, Portrait
from ..plan.learning.signals import show_ms, show_share
from .drawing import place_figure, render_page
from .tables import Table
from .templates import Chart, draw_lines_over_time
from .vega import Row

_HEADERS = [
    "Column", "Events", "Signal", *(f"p{percent:g}" for percent in PERCENTS),
    *(f"r{lag}" for lag in LAGS), "Repeats", "zstd B",
]  # fmt: skip
ABOUT = (
    f"p: percentiles. r: correlation of values {LAGS[0]}, {LAGS[1]} and {LAGS[2]} events apart. Repeats:"
    " values equal to the device's previous one. zstd B: bytes per value, compressed by column."
)
"""The meaning of the table's columns."""
_MOST_DRAWN, _PANEL_HEIGHT = 12, 110


def tabulate_comparison(comparison: Comparison) -> tuple[Table, Table]:
    """A line for each column, recorded and generated; and one for the times of events."""
    rows = [
        [pair.name, which, kind, *_list_cells(portrait)]
        for pair in comparison.pairs
        for which, kind, portrait in (
            ("recorded", "", pair.recorded),
            ("made", pair.kind, pair.made),
        )
    ]
    clocks = [
        [which, *_list_times(clock)]
        for which, clock in (("recorded", comparison.recorded), ("made", comparison.made))
    ]
    headers = ["Times", "Interval", "Jitter", "Late", "By", "Gaps"]
    return Table(_HEADERS, rows, left=_HEADERS[:3]), Table(headers, clocks, left=headers[:1])


def _list_cells(portrait: Portrait) -> Iterator[str]:
    shown = portrait.percentiles or [float("nan")] * len(PERCENTS)
    yield from ("-" if isnan(value) else format_digits(value) for value in shown)
    yield from ("-" if isnan(alike) else f"{alike:.2f}" for alike in portrait.autocorrelation)
    yield show_share(portrait.repeats)
    yield f"{portrait.zstd_bytes:.2f}"


def _list_times(clock: Clock) -> Iterator[str]:
    yield show_exact_ms(clock.interval_ms)
    yield f"{clock.jitter_ms} ms"
    late = clock.late
    yield show_share(late.share) if late else "none"
    mean_ms = None if late is None else late.mean_ms or late.most_ms / 2
    yield "-" if mean_ms is None else f"{show_ms(mean_ms)} on average"
    yield f"{show_share(clock.gap_share)} of the time"


def make_learning_page(learnt: Learnt, comparison: Comparison) -> str:
    """The page: the table, and the values of a recorded and a generated device in one plot."""
    shown = list(comparison.lines.items())[:_MOST_DRAWN]
    panels = {
        name: [*_list_points("recorded", recorded), *_list_points("made", made)]
        for name, (recorded, made) in shown
    }
    figure = None
    if panels:
        note = "Values of a recorded device and of a generated one, from the first event."
        if len(shown) < len(comparison.lines):
            note += f" The first {len(shown)} of {len(comparison.lines)} columns of numbers."
        spec = draw_lines_over_time("Seconds since the first event", panels, _PANEL_HEIGHT)
        figure = place_figure(Chart("learnt", "Recorded and made", note, spec))
    return render_page(
        "learnt.html",
        title=f"Workload {learnt.definition.name}",
        head=learnt.head,
        tables=tabulate_comparison(comparison),
        about=ABOUT,
        figure=figure,
    )


def _list_points(series: str, line: Line) -> Sequence[Row]:
    return [
        {"series": series, "x": second, "value": value}
        for second, value in zip(line.seconds.tolist(), line.values.tolist(), strict=True)
    ]
