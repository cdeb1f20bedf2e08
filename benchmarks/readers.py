"""The ways in which a reader asks: each is a context manager on connections of its own, and yields what asks
so many questions. Here is a worker's whole path; `thin_readers` has the thinnest clients that can ask the
same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter
from typing import NamedTuple

from simulator.contract import Go, StoredPart
from simulator.modules.base import AnyModule
from simulator.modules.sending import Asker
from simulator.worker import garbage_collection_paused
from simulator.worker.measure import Recorder
from simulator.worker.questions import Questions
from simulator.worker.reading import QueryLoop
from simulator.worker.schedule import ClosedLoop
from simulator.workloads.base import Workload


class Asked(NamedTuple):
    """What became of some questions."""

    rows: int = 0
    """0: nobody counted."""
    wall_s: float | None = None
    cpu_s: float | None = None
    """None: as the caller's clocks say."""


Asking = Callable[[int], Callable[[], Asked]]
"""Prepares to ask so many questions, a multiple of those in flight; returns what asks them."""


@dataclass(frozen=True)
class Reader:
    """What a reader asks, and whom."""

    module: AnyModule
    workload: Workload
    events: int
    """Events that are stored."""
    query: str
    in_flight: int
    readers: int
    number: int
    """Which of the readers it is."""


Way = Callable[[Reader], AbstractContextManager[Asking]]


@contextmanager
def open_asker(reader: Reader) -> Iterator[tuple[Asker, Questions]]:
    """Its asker, not connected yet, and its questions."""
    module = reader.module
    module.open()
    asker = module.asker(reader.in_flight)
    stored = [StoredPart(0, 0, reader.events)]
    go = Go(go=True, stored=stored)
    try:
        yield asker, Questions(module, asker, reader.workload, go, reader.number)
    finally:
        asker.close()
        module.close()


@contextmanager
def ours(reader: Reader) -> Iterator[Asking]:
    """A worker's whole path: questions drawn and encoded, asked, measured."""
    with open_asker(reader) as (asker, questions), questions.feed(), garbage_collection_paused():
        asker.open()

        def prepare(count: int) -> Callable[[], Asked]:
            schedule = ClosedLoop()
            recorder = Recorder(schedule)
            turns = repeat(reader.query, count)
            asking = QueryLoop(questions, asker, recorder, schedule)

            def ask() -> Asked:
                recorder.begin(perf_counter())
                asking.ask(turns)
                recorder.end()
                [stats] = asking.stats.values()
                if stats.errors:
                    raise RuntimeError(f"{stats.errors} of {count} failed: {stats.error}")
                return Asked(stats.rows)

            return ask

        yield prepare
