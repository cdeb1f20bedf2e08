"""What is known of a request's fate, and what is left of it to be sent again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from simulator.errors import Retryable, SimulatorError
from simulator.modules.kit.exactly_once import (
    SettlingWriter,
    Span,
    TablePart,
    Wanted,
    find_missing,
    keep_refused,
)
from simulator.modules.sending import Request
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.temperature import Temperature


@dataclass(slots=True)
class Words(TablePart):
    """A request whose body is a word per event."""

    body: list[str]

    def cut(self, positions: Sequence[int], payload: Request) -> None:
        self.body = [self.body[position] for position in positions]


def payload_of(count: int, workload: Workload | None = None) -> Request:
    """The last `count` events of a longer block."""
    workload = workload or Temperature(device_spread=3)
    return Request(None, count, workload.block(0, 0, count + 5), count + 4)


def words() -> Words:
    return Words(range(10, 14), ["a", "b", "c", "d"])


def test_what_was_refused_is_left_and_the_rest_counts_as_stored() -> None:
    request = words()
    busy, busier = Retryable("busy", "one"), Retryable("busy", "two")
    assert keep_refused(request, payload_of(14), [None, busy, None, busier]) is busy
    assert (request.rows, request.body, request.stored) == ([11, 13], ["b", "d"], 2)
    assert keep_refused(request, payload_of(14), [None, busy]) is busy
    assert (request.rows, request.body, request.stored) == ([13], ["d"], 3)
    assert keep_refused(request, payload_of(14), [None]) is None
    assert (request.rows, request.stored) == ([], 4)


def test_a_refusal_for_good_ends_the_run_and_changes_nothing() -> None:
    request = words()
    with pytest.raises(SimulatorError, match="no such column"):
        keep_refused(
            request,
            payload_of(14),
            [None, Retryable("busy", ""), SimulatorError("no such column"), None],
        )
    assert (request.rows, request.stored) == (range(10, 14), 0)


class Looking(SettlingWriter[Any]):
    """A writer whose database has all events but those that `missing` finds."""

    may_repeat = False

    def __init__(self, missing: Callable[[Words], Sequence[int]]) -> None:
        self._missing = missing

    def send_request(self, request: Words, payload: Request) -> None:
        """Nothing is sent."""

    def find(self, request: Words, wanted: Wanted) -> set[tuple[Any, ...]]:
        return set()

    def find_missing(self, request: Words, payload: Request) -> Sequence[int]:
        return self._missing(request)


def settle(requests: list[Words], missing: Callable[[Words], Sequence[int]]) -> bool:
    payload = payload_of(14)
    payload.data = requests
    return Looking(missing).settle(payload)


def test_only_requests_in_doubt_are_asked_for() -> None:
    doubtful, sure, whole = words(), words(), words()
    doubtful.doubt()
    whole.doubt()
    requests: list[Words] = []

    def missing(request: Words) -> list[int]:
        requests.append(request)
        return [1] if request is doubtful else [0, 1, 2, 3]

    assert not settle([doubtful, sure, whole], missing)
    assert [id(request) for request in requests] == [id(doubtful), id(whole)]
    assert (doubtful.rows, doubtful.body, doubtful.stored) == ([11], ["b"], 3)
    assert (whole.rows, whole.stored) == ([10, 11, 12, 13], 0)
    for request in (doubtful, whole):
        assert request.sent_before and not request.in_doubt


def test_a_payload_of_which_nothing_is_left_need_not_be_sent() -> None:
    stored, lost = words(), words()
    stored.keep([], payload_of(14))
    lost.doubt()
    assert settle([stored, lost], lambda _: [])


def test_a_question_that_fails_leaves_the_request_in_doubt() -> None:
    request = words()
    request.doubt()

    def missing(_: Words) -> list[int]:
        raise Retryable("connection_lost", "gone")

    with pytest.raises(Retryable):
        settle([request], missing)
    assert request.in_doubt and request.rows == range(10, 14)


@pytest.mark.parametrize("workload", [Temperature(device_spread=3), Cpu(device_spread=3)])
def test_events_are_looked_up_by_their_natural_keys(workload: Workload) -> None:
    payload = payload_of(2_500, workload)
    keys = [tuple(payload.block.key_of(row).values()) for row in range(2_505)]
    stored = set(keys) - {keys[7], keys[2_504]}
    questions: list[Wanted] = []

    def find(wanted: Wanted) -> set[tuple[Any, ...]]:
        questions.append(wanted)
        assert list(wanted) == list(workload.schema.key)
        return {key for key in stored if fits(key, wanted)}

    request = Words(range(2_500), [])
    assert find_missing(request, payload, find) == [2, 2_499]
    assert len(questions) == 3


def fits(key: tuple[Any, ...], wanted: Wanted) -> bool:
    return all(
        sought.first <= value <= sought.last if isinstance(sought, Span) else value in sought
        for value, sought in zip(key, wanted.values(), strict=True)
    )
