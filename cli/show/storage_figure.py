"""What events take on disk, as more and more of them are stored."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.growth import measure_growth
from .figure import Figure, Named
from .vega import HEIGHT, Row, draw_lines, draw_points, make_axis, make_spec

_PARTS = {
    "all": "On disk: bytes/event",
    "indexes": "Indexes: bytes/event",
    "growth": "Added: bytes/event",
}


def draw_storage(results: Sequence[Named]) -> Figure | None:
    """Bytes per event after each step: of all events, of their indexes, and of those of the step alone."""
    rows = [row for named in results if named.result.by_fill_level for row in _make_rows(named)]
    if not rows:
        return None
    panels = []
    for part, title in _PARTS.items():
        own = [row for row in rows if row["part"] == part]
        if own:
            x = make_axis("events", "Events in the database", axis={"format": "~s"})
            y = make_axis("bytes", title)
            marks = [draw_lines(x, y, rows), draw_points(x, y, rows)]
            panels.append(make_spec(own, marks, HEIGHT if part == "all" else HEIGHT // 2))
    return Figure(
        "storage",
        "Disk by fill level",
        "What the tables take on disk after each step, all copies counted, ÷ the events in them. The last"
        " panel has what a step added, ÷ its own events: it may fall below 0 where a database has merged or"
        " compressed what was there.",
        {"vconcat": panels},
    )


def _make_rows(named: Named) -> list[Row]:
    runs = named.result.insert_runs
    rows = []
    for run, growth in zip(runs, measure_growth(runs), strict=True):
        stored = run.storage
        if stored is None or not stored.events:
            continue
        sizes = (stored.bytes_per_event, stored.index_bytes_per_event, growth)
        for (part, title), size in zip(_PARTS.items(), sizes, strict=True):
            if size is not None:
                what = title.partition(":")[0]
                text = f"{named.name}\n{stored.events:,} events: {what} {size:,.1f} bytes/event"
                rows.append(
                    {
                        "series": named.name, "part": part, "events": stored.events, "bytes": size,
                        "text": text,
                    }
                )  # fmt: skip
    return rows
