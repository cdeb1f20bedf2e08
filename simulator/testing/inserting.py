"""Inserting as a worker does, in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

import numpy as np

from ..modules.base import AnyModule, connect
from ..modules.sending import Payload, Writer
from ..worker.feed import Feed, store_devices
from ..worker.loop import insert_all
from ..worker.measure import Recorder
from ..workloads.base import Workload
from ..workloads.schema import EventBlock, Tags


class NotingRecorder(Recorder):
    """Knows of each request when it was under way: (submitted, answered), by `time.perf_counter`."""

    def __init__(self) -> None:
        super().__init__()
        self.spans: list[tuple[float, float]] = []

    def record(self, sent: float, answered: float, events: int) -> None:
        self.spans.append((sent, answered))
        super().record(sent, answered, events)


class HookedFeed(Feed):
    """Calls functions right before certain requests are sent: the one moment that is known exactly."""

    before: Mapping[int, Callable[[], object]] = {}

    def __iter__(self) -> Iterator[Payload]:
        for number, payload in enumerate(super().__iter__()):
            if number in self.before:
                self.before[number]()
            yield payload


def insert(
    writer: Writer,
    workload: Workload,
    count: int,
    batch: int,
    *,
    worker: int = 0,
    first: int = 0,
    before: Mapping[int, Callable[[], object]] | None = None,
    max_retries: int = 8,
    patience_s: float | None = None,
    abort: Callable[[], object] = lambda: None,
) -> NotingRecorder:
    """Insert events as a worker does; returns what was recorded. `before`: request number -> hook."""

    def generate(start: int, size: int) -> EventBlock:
        return workload.block(worker, start, size)

    feed = HookedFeed(generate, writer.encoder, first, count, batch)
    feed.before = before or {}
    feed.prime()
    recorder = NotingRecorder()
    recorder.begin(0.0)
    insert_all(feed, writer, recorder, max_retries, abort, patience_s=patience_s)
    recorder.end()
    return recorder


def store_devices_of(module: AnyModule, workload: Workload, worker: int) -> None:
    """Insert the rows of a worker's devices, if there is a table for them."""
    if workload.schema.tags is Tags.TABLE:
        store_devices(module, workload, worker)


def insert_with(
    module: AnyModule, workload: Workload, count: int, *, worker: int = 0, first: int = 0
) -> NotingRecorder:
    """Insert events by a writer of the module's own job, and before them the rows of their devices."""
    batch = module.job.load.batch
    store_devices_of(module, workload, worker)
    with connect(module.writer(batch)) as writer:
        return insert(writer, workload, count, batch, worker=worker, first=first)


Losses = Mapping[str, Collection[str]]
"""Device -> columns."""


def lose(block: EventBlock, losses: Losses) -> EventBlock:
    """The events without these devices' values of these columns."""
    missing = dict(block.missing)
    for device, names in losses.items():
        for name in names:
            before = missing.get(name, np.zeros(len(block), dtype=np.bool_))
            missing[name] = before | (block.devices == device.encode())
    columns = [replace(c, nullable=c.nullable or c.name in missing) for c in block.schema.columns]
    return replace(block, schema=replace(block.schema, columns=tuple(columns)), missing=missing)


def insert_block(module: AnyModule, block: EventBlock) -> None:
    """Insert a block's events by a writer of the module's own job."""
    batch = module.job.load.batch
    with connect(module.writer(batch)) as writer:
        for payload in writer.encoder.encode(block, batch):
            writer.send(payload)


def most_at_once(recorder: NotingRecorder) -> int:
    """How many requests were under way at the same time, at most.

    No average: between two requests a busy machine may let a client wait for longer than all of them took.
    """
    changes = [(sent, 1) for sent, _ in recorder.spans]
    changes += [(answered, -1) for _, answered in recorder.spans]
    # Of two at the same instant the end comes first.
    return max(accumulate(change for _, change in sorted(changes)))
