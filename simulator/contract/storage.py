"""What a database takes on disk for its events."""

from __future__ import annotations

from .message import Message


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
    source: str = ""
    """Where they come from, and what they leave out."""
    reason: str | None = None
    """Why there are none."""

    @property
    def bytes_per_event(self) -> float | None:
        """All bytes ÷ events."""
        return self._share(self.total_bytes)

    @property
    def index_bytes_per_event(self) -> float | None:
        """Those of indexes ÷ events."""
        return self._share(self.index_bytes)

    def _share(self, size: int | None) -> float | None:
        return size / self.events if size is not None and self.events else None
