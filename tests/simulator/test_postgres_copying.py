"""Reading PostgreSQL's answers to requests in flight, however they are cut into pieces on the way."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from simulator.modules.kit.libpq import Connection, ServerError
from simulator.modules.kit.libpq_pipeline import Inserts, MessagePipeline, make_pipeline
from simulator.modules.sending import Completion, Request

from .postgres_login import let_in

Answer = tuple[int, BaseException | None]
"""How many rows were stored, and the error."""


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def complete(tag: bytes) -> bytes:
    return message(b"C", tag + b"\0")


def failed(**fields: str) -> bytes:
    body = b"".join(key.encode() + value.encode() + b"\0" for key, value in fields.items())
    return message(b"E", body + b"\0")


READY, FAILED = message(b"Z", b"I"), message(b"Z", b"E")
COPIED = message(b"G", b"\1\0\0") + complete(b"COPY 1000")
STORED = message(b"2") + complete(b"INSERT 0 1")
ONE: Inserts = ([(b"COPY t FROM STDIN", b"data")], False)
WITH_COMMIT: Inserts = ([(b"COPY t FROM STDIN", b"data")], True)
INSERT: Inserts = ([(b"", b"messages")], False)
INSERTS: Inserts = ([(b"", b"messages")], True)
NOTICE = message(b"N", b"SNOTICE\0\0")


@pytest.fixture
def ends() -> Iterator[tuple[MessagePipeline, socket.socket]]:
    """Requests of a connection, and the server's end of it."""
    with socket.create_server(("127.0.0.1", 0)) as listener, let_in(listener) as clients:
        host, port = listener.getsockname()
        parameters = {"host": host, "port": port, "user": "x", "sslmode": "disable"}
        with closing(Connection(parameters, 10)) as connection:
            pipeline = make_pipeline(connection, is_query=True)
            assert isinstance(pipeline, MessagePipeline)
            yield pipeline, clients.get()


def read(
    ends: tuple[MessagePipeline, socket.socket],
    requests: Sequence[Inserts],
    pieces: Sequence[bytes],
) -> list[Answer]:
    pipeline, server = ends
    ended: list[Completion] = []
    sent = [Request(data) for data in requests]
    for request in sent:
        pipeline.submit(request)
    for piece in pieces:
        server.sendall(piece)
        # What has been sent here may take a moment.
        while not pipeline.under_way or not _has_come(pipeline, len(piece)):
            pass
        ended += pipeline.receive()
    assert [completion.request for completion in ended] == sent[: len(ended)]
    return [(completion.done, completion.error) for completion in ended]


def _has_come(pipeline: MessagePipeline, size: int) -> bool:
    with socket.fromfd(pipeline.descriptor, socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.settimeout(10)
        return len(stream.recv(size, socket.MSG_PEEK)) == size


@pytest.mark.parametrize("size", [1, 2, 7, 27, 64, 10_000])
def test_answers_however_they_are_cut(
    ends: tuple[MessagePipeline, socket.socket], size: int
) -> None:
    stream = COPIED + READY + NOTICE + complete(b"BEGIN") + READY + COPIED + READY
    stream += complete(b"COMMIT") + message(b"S", b"a\0b\0") + READY + COPIED + READY
    stream += STORED + READY + STORED + READY + complete(b"BEGIN") + READY + STORED * 70 + READY
    stream += complete(b"COMMIT") + READY + complete(b"INSERT 0 250") + READY
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    requests = [ONE, WITH_COMMIT, ONE, INSERT, INSERT, INSERTS, ONE]
    rows = [1000, 1000, 1000, 1, 1, 70, 250]
    assert read(ends, requests, pieces) == [(number, None) for number in rows]


def test_an_answer_comes_when_it_is_complete(
    ends: tuple[MessagePipeline, socket.socket],
) -> None:
    assert read(ends, [INSERT], [STORED + READY]) == [(1, None)]
    # The second piece isn't taken for the answer to a single insert, which it looks like.
    pieces = [complete(b"BEGIN") + READY, STORED + READY, complete(b"COMMIT") + READY]
    assert read(ends, [INSERTS], pieces) == [(1, None)]


def test_the_first_error_of_a_request_counts(ends: tuple[MessagePipeline, socket.socket]) -> None:
    duplicate = failed(S="ERROR", C="23505", M="duplicate key", D="Key (id)=(1) exists.", H="Stop.")
    aborted = failed(C="25P02", M="current transaction is aborted")
    stream = complete(b"BEGIN") + READY + STORED + duplicate + FAILED
    stream += aborted + READY + COPIED + READY
    refused, stored = read(ends, [INSERTS, ONE], [stream])
    assert isinstance(refused[1], ServerError)
    assert refused[1].code == "23505"
    assert str(refused[1]) == "duplicate key\nDETAIL: Key (id)=(1) exists.\nHINT: Stop."
    assert stored == (1000, None)


def test_an_open_transaction_is_noticed(ends: tuple[MessagePipeline, socket.socket]) -> None:
    (answer,) = read(ends, [ONE], [failed(C="40001", M="no") + FAILED])
    assert isinstance(answer[1], OSError)


def test_what_the_server_says_before_it_hangs_up_is_kept(
    ends: tuple[MessagePipeline, socket.socket],
) -> None:
    assert read(ends, [ONE], [failed(S="FATAL", C="57P01", M="shutting down")]) == []
    pipeline, server = ends
    server.shutdown(socket.SHUT_WR)
    assert select.select([pipeline.descriptor], (), (), 10)[0]
    with pytest.raises(OSError, match="shutting down"):
        pipeline.receive()
