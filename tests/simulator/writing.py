"""What sends requests in a test: fake writers, and what feeds them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from simulator.errors import Retryable
from simulator.modules.sending import BlockingChannel, Request, Writer
from simulator.testing.events import NotingRecorder
from simulator.testing.events import insert as insert_all_of
from simulator.worker.feed import Feed
from simulator.workloads.base import Workload
from simulator.workloads.schema import EventBlock
from simulator.workloads.temperature import Temperature

from ..helpers import NumberEncoder

LIMIT_S = 60


class FakeWriter(Writer, BlockingChannel):
    """A fake database: `answer(numbers)` says how many events it took, or raises."""

    def __init__(self, answer: Callable[[list[int]], int], max_in_flight: int = 1) -> None:
        super().__init__(NumberEncoder())
        self.max_in_flight = max_in_flight
        self.answer = answer
        self.sent: list[list[int]] = []
        self.recovered: list[list[int]] = []
        self.stored_already = False
        self.recovery: list[Retryable] = []

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        self.end_threads()

    def send(self, payload: Request) -> int:
        self.sent.append(payload.data)
        return self.answer(payload.data)

    def recover(self, payload: Request) -> bool:
        self.recovered.append(payload.data)
        if self.recovery:
            raise self.recovery.pop(0)
        return self.stored_already


def insert(
    writer: Writer, workload: Workload, count: int, batch: int, **how: Any
) -> NotingRecorder:
    """Insert events in requests of so many (0: one each)."""
    assert isinstance(writer.encoder, NumberEncoder)
    writer.encoder = type(writer.encoder)(batch)
    with closing(writer):
        return insert_all_of(writer, workload, count, **how)


def failing(
    times: int, kind: str = "busy", backoff_s: float = 0.0001, at_least_s: float = 0.0
) -> Callable[[list[int]], int]:
    """An answer that fails `times` times for the request with event 2, then takes all."""
    remaining = [times]

    def answer(numbers: list[int]) -> int:
        if 2 in numbers and remaining[0]:
            remaining[0] -= 1
            raise Retryable(kind, f"{kind}: try later", backoff_s, at_least_s)
        return len(numbers)

    return answer


def feed(
    count: int, batch: int, first: int = 0, punctual: bool = False
) -> tuple[Feed, list[tuple[int, int]]]:
    """A feed, and the blocks that it has asked for."""
    blocks: list[tuple[int, int]] = []

    def generate(start: int, size: int) -> EventBlock:
        blocks.append((start, size))
        return Temperature().block(0, start, size)

    return Feed(generate, NumberEncoder(batch), first, count, punctual), blocks
