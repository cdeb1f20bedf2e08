"""Which of the stored results are meant. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .store import StoredResult


@dataclass(frozen=True)
class Selection:
    """What a result must have to be among those that are meant."""

    targets: Collection[str] = ()
    """One of them; none: whatever it is."""
    tags: Collection[tuple[str, str]] = field(default_factory=tuple)
    """All of them."""
    since: datetime | None = None
    last: int | None = None
    """The newest of those that have all else."""

    def choose(self, stored: Sequence[StoredResult]) -> list[StoredResult]:
        """Those that have it, in their order, which is oldest first."""
        found = [one for one in stored if self._fits(one)]
        return found if self.last is None else found[len(found) - min(self.last, len(found)) :]

    def _fits(self, stored: StoredResult) -> bool:
        result = stored.result
        return (
            (not self.targets or result.target in self.targets)
            and all(result.tags.get(key) == value for key, value in self.tags)
            and (self.since is None or _read_start(result.started_at) >= self.since)
        )


def _read_start(text: str) -> datetime:
    started = datetime.fromisoformat(text)
    return started if started.tzinfo else started.replace(tzinfo=UTC)
