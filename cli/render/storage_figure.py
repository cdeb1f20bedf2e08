"""What tables take on disk, as more and more events are stored."""

from __future__ import annotations

from collections.abc import Sequence

from ..results.growth import list_event_sizes
from .figure import Figure, NamedResult
from .vega import HEIGHT, Row, draw_lines, draw_points, make_axis, make_spec

_PARTS = {
    "all": "On disk: bytes",
    "indexes": "Indexes: bytes",
    "growth": "Added: bytes/event",
}


def draw_storage(results: Sequence[NamedResult]) -> Figure | None:
    """Bytes after each step, of all and of indexes, and what an event of the step has added."""
    rows = [row for named in results if named.result.by_fill_level for row in _make_rows(named)]
    if not rows:
        return None
    panels = []
    for part, title in _PARTS.items():
        own = [row for row in rows if row["part"] == part]
        if own:
            x = make_axis("events", "Events in the database", axis={"format": "~s"})
            y = make_axis("bytes", title, axis={"format": "~s"})
            marks = [draw_lines(x, y, rows), draw_points(x, y, rows)]
            panels.append(make_spec(own, marks, HEIGHT if part == "all" else HEIGHT // 2))
    return Figure(
        "storage",
        "Disk by fill level",
        "What the tables take on disk after each step, all copies counted, with what is allocated ahead of"
        " events. The last panel has what a step added, ÷ its own events, where that is many times what the"
        " database allocates at a time.",
        {"vconcat": panels},
    )


def _make_rows(named: NamedResult) -> list[Row]:
    writers = named.result.writers
    rows = []
    for one, weight in zip(writers, list_event_sizes(writers), strict=True):
        stored = one.group.storage
        if stored is None or not stored.events:
            continue
        sizes = (stored.total_bytes, stored.index_bytes, weight.bytes_per_event)
        for (part, title), size in zip(_PARTS.items(), sizes, strict=True):
            if size is not None:
                what, _, unit = title.partition(":")
                text = f"{named.name}\n{stored.events:,} events: {what} {size:,.10g}{unit}"
                rows.append(
                    {
                        "series": named.name, "part": part, "events": stored.events, "bytes": size,
                        "text": text,
                    }
                )  # fmt: skip
    return rows
