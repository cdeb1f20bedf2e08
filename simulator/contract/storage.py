"""What a database takes on disk for its events, and what an event takes, told from growth."""

from __future__ import annotations

from collections.abc import Sequence

from .message import Message

MANY_UNITS = 10
"""Two fill levels tell what an event takes if each is so many units of allocation, and so is what lies
between them: what is allocated ahead, or not yet merged, is then a tenth of the growth at most."""

MIB = 1024 * 1024


class Level(Message):
    """A fill level: bytes, and the events in them."""

    size_bytes: int
    events: int


class Allocation(Message, frozen=True):
    """What a database allocates, or writes and merges later, at a time."""

    unit_bytes: int
    """Of one table, in one copy, unless the module reads it from the server."""
    cause: str
    """What goes in such units, as a clause: it is a reason for a figure that is missing."""
    enough_events: int | None = None
    """So many show growth, where the module knows it better than by the unit."""

    def times(self, units: int) -> Allocation:
        """The allocation of so many: tables, shards or copies together."""
        return self.model_copy(update={"unit_bytes": self.unit_bytes * units})


ANY_ALLOCATION = Allocation(
    unit_bytes=MIB, cause="the size of a small table says little about its events"
)
"""The allocation of modules that name none."""


class Storage(Message):
    """Bytes on disk as the database reports them, of all its copies together; None for what it doesn't
    tell."""

    total_bytes: int | None = None
    data_bytes: int | None = None
    index_bytes: int | None = None
    """Of what is kept beside the events to find them by, where it is kept apart."""
    copies: int = 1
    """How many of each event are in these figures."""
    events: int | None = None
    """Stored when the figures were taken."""
    level: Level | None = None
    """What growth is told from, where it isn't `total_bytes` and `events`: files that aren't allocated ahead
    of their events, or parts and the events that the database counts in them."""
    allocation: Allocation | None = None
    """None in results of older versions."""
    event_bytes: int | None = None
    """An event's values at 8 bytes each: an estimate, by which it is said how many events growth takes."""
    shared: bool = False
    """There are others' data in the figures, so those of separate runs can't be compared."""
    source: str = ""
    """Where they come from, and what they leave out."""
    reason: str | None = None
    """Why there are none."""

    def find_level(self) -> Level | None:
        """What growth is told from, if it is known."""
        if self.level is not None or self.total_bytes is None or self.events is None:
            return self.level
        return Level(size_bytes=self.total_bytes, events=self.events)


def measure_growth(levels: Sequence[Level], allocation: Allocation) -> float | None:
    """Bytes per event between the lowest and the highest level that are large enough; None if there
    aren't two, or too little is between them."""
    least = MANY_UNITS * allocation.unit_bytes
    large = sorted(
        (level for level in levels if level.size_bytes >= least), key=lambda level: level.events
    )
    if not large:
        return None
    lowest, highest = large[0], large[-1]
    grown, events = highest.size_bytes - lowest.size_bytes, highest.events - lowest.events
    return grown / events if events > 0 and grown >= least else None


def estimate_events(storage: Storage, allocation: Allocation) -> int | None:
    """About how many events a run needs to show growth from its middle to its end: each half is many units
    then. An event is assumed to take the smaller of the size of its values and all bytes ÷ all events, which
    is too much where the database allocates ahead."""
    if allocation.enough_events is not None:
        return allocation.enough_events
    estimates = [float(storage.event_bytes)] if storage.event_bytes else []
    if storage.total_bytes and storage.events:
        estimates.append(storage.total_bytes / storage.events)
    return round(2 * MANY_UNITS * allocation.unit_bytes / min(estimates)) if estimates else None
