"""When events are generated and encoded: each once, in order, ahead of time."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from simulator.worker.feed import Feed, Stock
from simulator.workloads.drawing import BoundQueries
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

from ..helpers import NumberEncoder, eventually
from .writing import feed

pytestmark = pytest.mark.usefixtures("no_threads_left")


@pytest.mark.parametrize("batch", [0, 1, 7, 1000, 16_384, 40_000])
@pytest.mark.parametrize("count", [0, 1, 16_384, 40_001])
def test_a_feed_gives_each_event_once_and_in_order(count: int, batch: int) -> None:
    source, blocks = feed(count, batch, first=5)
    payloads = list(source)
    assert [number for payload in payloads for number in payload.data] == list(range(5, 5 + count))
    # Chunks end between requests: all but the last are full.
    assert [payload.events for payload in payloads[:-1]] == [batch or 1] * (len(payloads) - 1)
    # A worker's memory does not grow with the number of events.
    assert max((size for _, size in blocks), default=0) < 65_536 + max(1, batch)


def test_chunks_grow_as_long_as_one_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixed cost of each then counts less; chunks that cost much stay as they are."""
    monkeypatch.setattr("simulator.worker.feed._SHORT_CHUNK_S", math.inf)
    source, blocks = feed(300_000, 1000)
    assert sum(payload.events for payload in source) == 300_000
    assert [size for _, size in blocks][:4] == [17_000, 34_000, 34_000, 34_000]
    source, blocks = feed(60_000, 1000, punctual=True)
    assert sum(payload.events for payload in source) == 60_000
    assert {size for _, size in blocks[:-1]} == {17_000}
    monkeypatch.setattr("simulator.worker.feed._SHORT_CHUNK_S", 0.0)
    source, blocks = feed(100_000, 1000)
    assert sum(payload.events for payload in source) == 100_000
    assert {size for _, size in blocks[:-1]} == {17_000}


def test_single_events_are_made_when_they_are_needed() -> None:
    source, blocks = feed(20_000, 0)
    assert blocks == []
    source.prime()
    source.prime()
    assert blocks == [(0, 512)]
    payloads = iter(source)
    for _ in range(512):
        next(payloads)
    assert len(blocks) == 1
    next(payloads)
    assert len(blocks) == 2
    assert sum(payload.events for payload in payloads) == 20_000 - 513


def test_single_events_due_by_the_clock_are_made_one_chunk_ahead() -> None:
    """In a thread: making a chunk would take as long as the time between several requests."""
    source, blocks = feed(5000, 0, punctual=True)
    source.prime()
    assert blocks == [(0, 2048)]
    payloads = iter(source)
    sent = [next(payloads)]
    eventually(lambda: len(blocks) == 2, "chunk ahead")
    sent += [next(payloads) for _ in range(2047)]
    assert len(blocks) == 2
    sent += payloads
    assert [number for payload in sent for number in payload.data] == list(range(5000))


def test_batches_are_made_one_chunk_ahead_in_a_thread() -> None:
    """While those of the last chunk are being sent; a thread that has an answer then waits briefly."""
    threads: list[int] = []
    generated = threading.Semaphore(0)

    def generate(start: int, size: int) -> EventBlock:
        threads.append(threading.get_ident())
        generated.release()
        return Temperature().block(0, start, size)

    usual_s = sys.getswitchinterval()
    source = Feed(generate, NumberEncoder(1000), 0, 60_000)
    source.prime()
    assert generated.acquire(blocking=False)
    payloads = iter(source)
    sent = [next(payloads)]
    assert generated.acquire(timeout=60)
    assert sys.getswitchinterval() < usual_s
    sent += [next(payloads) for _ in range(16)]
    # The chunk after that is made only when this one is needed.
    assert not generated.acquire(blocking=False)
    sent += payloads
    assert [number for payload in sent for number in payload.data] == list(range(60_000))
    assert threads[0] == threading.get_ident()
    assert threading.get_ident() not in threads[1:]
    assert sys.getswitchinterval() == usual_s


def test_an_encoder_can_keep_to_the_loops_own_thread() -> None:
    class Tied(NumberEncoder):
        overlaps = False

    threads: list[int] = []

    def generate(start: int, size: int) -> EventBlock:
        threads.append(threading.get_ident())
        return Temperature().block(0, start, size)

    assert sum(payload.events for payload in Feed(generate, Tied(1000), 0, 30_000)) == 30_000
    assert set(threads) == {threading.get_ident()}


def test_what_was_made_ahead_of_the_window_is_part_of_its_cost() -> None:
    """A run of one chunk has made all of it before its window opens."""
    source, _ = feed(1_000, 1000)
    source.prime()
    primed_s = source.generate_s + source.encode_s
    assert source.generate_s > 0
    assert source.encode_s > 0
    assert sum(payload.events for payload in source) == 1_000
    assert source.generate_s + source.encode_s == primed_s
    assert source.ceiling_per_s() == pytest.approx(1_000 / primed_s)


def test_a_feed_that_made_nothing_has_no_ceiling() -> None:
    assert feed(0, 10)[0].ceiling_per_s() == 0


# --- a stock of requests for queries ---------------------------------------------------------------


def make_stock(low: int, most: int, step_s: float = 0.00005) -> tuple[Stock, list[int]]:
    """A stock of blocks of 100 executions, whose requests are their starts, and are made when they are taken;
    and which were."""
    query = Temperature().schema.description("range")
    assert query is not None
    made: list[int] = []

    def encode(bounds: BoundQueries) -> Iterator[int]:
        assert len(bounds) <= 64
        for bound in bounds:
            made.append(bound.start_ms or 0)
            yield made[-1]

    starts = (np.arange(first, first + 100) for first in count(0, 100))
    blocks = (BoundQueries(query, 100, None, block, block + 1) for block in starts)
    return Stock(blocks, encode, low, most, step_s), made


def test_a_step_makes_as_many_requests_as_take_a_moment() -> None:
    stock, made = make_stock(low=20, most=16, step_s=1e6)
    steps = []
    while stock.make_ahead():
        steps.append(len(made))
    assert steps == [1, 3, 7, 15, 31]
    assert [stock.take() for _ in range(250)] == list(range(250))
    assert len(made) - 250 < 16
    stock, made = make_stock(low=20, most=16, step_s=0.0)
    for number in range(50):
        assert stock.take() == number
        assert len(made) == number + 1


def test_requests_are_made_ahead_only_if_there_is_time_and_some_are_lacking() -> None:
    stock, made = make_stock(low=3, most=2)
    assert not stock.make_ahead(time.perf_counter())
    assert not made
    assert stock.make_ahead(time.perf_counter() + 60)
    while stock.make_ahead():
        pass
    ready = len(made)
    assert ready >= 3
    assert not stock.make_ahead()
    assert stock.take() == 0
    assert len(made) == ready
