"""What runs in a worker: `life` is its course, `writing` and `reading` what it does, `feed` makes what
is sent, `schedule` says when, `loop` sends it, `measure` keeps the time."""

from __future__ import annotations

from ..modules.base import connect
from .base import garbage_collection_paused
from .life import run_worker

__all__ = ["connect", "garbage_collection_paused", "run_worker"]
