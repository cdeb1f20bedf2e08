"""What runs in a worker: `life` is its course, `feed` makes what is sent, `schedule` says when, `loop`
sends it, `measure` keeps the time."""

from __future__ import annotations

from .life import connect, garbage_collection_paused, run_worker

__all__ = ["connect", "garbage_collection_paused", "run_worker"]
