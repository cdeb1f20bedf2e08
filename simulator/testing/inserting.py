"""Inserting as a worker does, in the test's own process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..histograms import merge_histograms
from ..modules.base import AnyModule
from ..modules.sending import Payload, Writer
from ..worker import connect
from ..worker.feed import Feed, store_devices
from ..worker.loop import insert_all
from ..worker.measure import Recorder
from ..workloads.base import Workload
from ..workloads.schema import EventBlock, Tags


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
) -> Recorder:
    """Insert events as a worker does; what was recorded. `before`: request number -> hook."""

    def generate(start: int, size: int) -> EventBlock:
        return workload.block(worker, start, size)

    def ask() -> None:
        abort()

    feed = HookedFeed(generate, writer.encoder, first, count, batch)
    feed.before = before or {}
    feed.prime()
    recorder = Recorder()
    recorder.begin(0.0)
    insert_all(feed, writer, recorder, max_retries, ask, patience_s=patience_s)
    recorder.end()
    return recorder


def store_devices_of(module: AnyModule, workload: Workload, worker: int) -> None:
    """Insert the rows of a worker's devices, if there is a table for them."""
    if workload.schema.tags is Tags.TABLE:
        store_devices(module, workload, worker)


def insert_with(
    module: AnyModule, workload: Workload, count: int, *, worker: int = 0, first: int = 0
) -> Recorder:
    """Insert events by a writer of the module's own job, and before them the rows of their devices."""
    batch = module.job.load.batch
    store_devices_of(module, workload, worker)
    with connect(module.writer(batch)) as writer:
        return insert(writer, workload, count, batch, worker=worker, first=first)


def requests_at_once(recorder: Recorder) -> float:
    """How many requests were under way on average: their latencies together by the window.

    A busy machine makes both longer, so this holds on any.
    """
    measured = recorder.result()
    histogram = merge_histograms([measured.histogram])
    together_s = histogram.get_mean_value() * histogram.get_total_count() / 1e6
    return float(together_s / (measured.end_s - measured.start_s))
