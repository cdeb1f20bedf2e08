"""Reading PostgreSQL's answers, however they are cut into pieces on the way."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

from simulator.modules.postgres.protocol import Answer, AnswerReader


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def complete(tag: bytes) -> bytes:
    return message(b"C", tag + b"\0")


def failed(**fields: str) -> bytes:
    body = b"".join(key.encode() + value.encode() + b"\0" for key, value in fields.items())
    return message(b"E", body + b"\0")


READY, FAILED = message(b"Z", b"I"), message(b"Z", b"E")
BOUND = message(b"2")
STORED = BOUND + complete(b"INSERT 0 1")

SAID = [
    # (ReadyForQuery per answer, what the server says, rows)
    (1, STORED + READY, 1),
    (1, complete(b"INSERT 0 250") + READY, 250),
    (1, message(b"G", b"\1\0\0") + complete(b"COPY 1000") + READY, 1000),
    (3, complete(b"BEGIN") + READY + STORED * 70 + READY + complete(b"COMMIT") + READY, 70),
    (2, complete(b"INSERT 0 1") + READY + complete(b"INSERT 0 2") + READY, 3),
    (1, message(b"1") + READY, 0),
    (1, message(b"N", b"SNOTICE\0\0") + STORED + message(b"S", b"a\0b\0") + READY, 1),
    (1, STORED + READY, 1),
]


def read(pieces: Sequence[bytes], expected: Sequence[int]) -> list[Answer]:
    reader = AnswerReader()
    for ready in expected:
        reader.expect(ready)
    return [answer for piece in pieces for answer in reader.read(piece)]


@pytest.mark.parametrize("size", [1, 2, 7, 27, 64, 10_000])
def test_answers_however_they_are_cut(size: int) -> None:
    said = b"".join(said for _, said, _ in SAID)
    pieces = [said[start : start + size] for start in range(0, len(said), size)]
    answers = read(pieces, [ready for ready, _, _ in SAID])
    assert answers == [Answer(rows, None, True) for _, _, rows in SAID]


def test_an_answer_comes_when_it_is_complete() -> None:
    reader = AnswerReader()
    for ready in (1, 3):
        reader.expect(ready)
    assert reader.read(STORED + READY) == [Answer(1, None, True)]
    assert reader.read(complete(b"BEGIN") + READY) == []
    # Not taken for the answer to a single insert, which it looks like.
    assert reader.read(STORED + READY) == []
    assert reader.read(complete(b"COMMIT") + READY) == [Answer(1, None, True)]


def test_the_first_error_of_a_request_counts() -> None:
    duplicate = failed(S="ERROR", C="23505", M="duplicate key", D="Key (id)=(1) exists.", H="Stop.")
    aborted = failed(C="25P02", M="current transaction is aborted")
    said = complete(b"BEGIN") + READY + STORED + duplicate + FAILED
    said += aborted + FAILED + complete(b"ROLLBACK") + READY + STORED + READY
    refused, stored = read([said], [4, 1])
    assert refused.error is not None
    assert refused.error.code == "23505"
    assert str(refused.error) == "duplicate key DETAIL: Key (id)=(1) exists. HINT: Stop."
    assert refused.is_idle
    assert stored == Answer(1, None, True)


def test_an_open_transaction_is_noticed() -> None:
    (answer,) = read([failed(C="40001", M="no") + FAILED], [1])
    assert not answer.is_idle


def test_what_the_server_says_before_it_hangs_up_is_kept() -> None:
    reader = AnswerReader()
    reader.expect(1)
    assert reader.read(failed(S="FATAL", C="57P01", M="shutting down")) == []
    assert str(reader.error) == "shutting down"
