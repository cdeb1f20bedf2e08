"""Where in a result something was measured or found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A worker count, fill level or query of a result, or one run of it."""

    workers: int | None = None
    level: int | None = None
    """Events that were in the database before."""
    query: str | None = None
    run: int | None = None

    def __str__(self) -> str:
        """`4 workers`, `4 workers, run 2`, `level 2,000`, `count-events`."""
        if self.query is not None:
            return self.query
        if self.level is not None:
            return f"level {self.level:,}"
        text = format_workers(self.workers or 0)
        return text if self.run is None else f"{text}, run {self.run}"


def format_workers(count: int) -> str:
    """`1 worker`, `1,000 workers`."""
    return f"{count:,} worker{'' if count == 1 else 's'}"
