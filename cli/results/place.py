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
    group: str = "worker"
    """What the workers are, of those of a mixed command."""

    def __str__(self) -> str:
        """`4 workers`, `4 workers, run 2`, `level 2,000`, `count-events`."""
        if self.query is not None:
            return self.query
        if self.level is not None:
            return f"level {self.level:,}"
        word, _, alone = self.group.partition(" ")
        text = f"{format_workers(self.workers or 0, word)} {alone}".rstrip()
        return text if self.run is None else f"{text}, run {self.run}"


def format_workers(count: int, word: str = "worker") -> str:
    """`1 worker`, `1,000 workers`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"
