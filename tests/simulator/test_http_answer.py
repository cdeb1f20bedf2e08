"""Where an answer of HTTP ends: whole, in pieces of any size, and like the ones before."""

from __future__ import annotations

import random
from http.client import HTTPResponse
from io import BytesIO
from typing import Any

import pytest

from simulator.errors import SimulatorError
from simulator.modules.kit import http_answer
from simulator.modules.kit.http_answer import Answer, AnswerReader, ConnectionLost


def with_length(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nServer: it\r\n%bContent-Length: %d\r\n\r\n%b" % (
        more,
        len(body),
        body,
    )


def in_chunks(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + pieces + end


ANSWERS = [
    with_length(b"ok"),
    with_length(b"no"),
    with_length(b""),
    with_length(b"\r\n0\r\n\r\n"),
    with_length(bytes(5_000), b"Date: today\r\n"),
    in_chunks(b"ab"),
    in_chunks(b"cd"),
    in_chunks(b"\r\n"),
    in_chunks(),
    in_chunks(b"a" * 17, b"0\r\n\r\n", b"c"),
    in_chunks(b"d" * 17, b"1\r\n\r\n", b"e"),
    in_chunks(b"ab", end=b"000;last=1\r\nExpires: never\r\nX: y\r\n\r\n"),
    in_chunks(b"ab").replace(b"2\r\n", b"2 ;name=\"value\"\r\n"),
    b"HTTP/1.1 204 No Content\r\ncontent-length: 7\r\n\r\n",
    b"HTTP/1.1 503\r\nCONTENT-LENGTH:3\r\n\r\nbad",
    b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 3\r\n\r\nold",
]  # fmt: skip


def expect(text: bytes) -> tuple[int, bytes]:
    """What Python's own client reads of it."""

    class Stream:
        def makefile(self, _: str) -> BytesIO:
            return BytesIO(text)

    stream: Any = Stream()
    answer = HTTPResponse(stream)
    answer.begin()
    return answer.status, answer.read()


def read(reader: AnswerReader, pieces: list[bytes]) -> Answer:
    """The answer that is whole with the last of these pieces."""
    *before, last = pieces
    assert [reader.take(piece) for piece in before] == [None] * len(before)
    answer = reader.take(last)
    assert answer is not None
    return answer


def cut(text: bytes, chance: random.Random) -> list[bytes]:
    """A text in up to five pieces."""
    places = sorted(chance.sample(range(1, len(text)), chance.randrange(5)))
    return [
        text[start:stop]
        for start, stop in zip([0, *places], [*places, len(text)], strict=True)
    ]  # fmt: skip


def test_answers_in_pieces_of_any_size_are_what_another_client_reads() -> None:
    chance, reader = random.Random(7), AnswerReader()
    for _ in range(2_000):
        text = chance.choice(ANSWERS)
        before = b"HTTP/1.1 100 Continue\r\n\r\n" * chance.randrange(2)
        answer = read(reader, cut(before + text, chance) if chance.random() < 0.5 else [text])
        assert answer[:2] == expect(text)
        assert reader.keeps_alive


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_may_come_byte_by_byte(text: bytes) -> None:
    reader = AnswerReader()
    for _ in range(2):
        assert read(reader, [bytes([byte]) for byte in text])[:2] == expect(text)


def test_an_answer_that_comes_twice_ends_its_connection() -> None:
    """The second one must not be taken for the answer to what is asked next."""
    for text in ANSWERS:
        reader = AnswerReader()
        for _ in range(2):
            assert read(reader, [text])[:2] == expect(text) and reader.keeps_alive
        assert read(reader, [text + text])[:2] == expect(text)
        assert not reader.keeps_alive


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        (with_length(b"a", b"connection: Close\r\n"), False),
        (with_length(b"a").replace(b"1.1", b"1.0"), False),
        (with_length(b"a", b"connection: keep-alive\r\n").replace(b"1.1", b"1.0"), True),
    ],
)
def test_a_server_says_whether_it_takes_another_request(text: bytes, keeps: bool) -> None:
    reader = AnswerReader()
    read(reader, [text])
    assert reader.keeps_alive is keeps


def test_headers_are_found_however_they_are_written() -> None:
    text = with_length(b"a", b"Retry-After:  7 \r\nX-One: 1\r\nx-one: 2\r\n")
    answer = read(AnswerReader(), [b"HTTP/1.1 103 Early\r\nx-one: 0\r\n\r\n" + text])
    assert (answer.header("retry-after"), answer.header("X-ONE")) == ("7", "1")
    assert answer.header("absent") is None


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTX",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
        in_chunks(end=b"-5\r\n"),
        in_chunks(end=b"xyz\r\n"),
        in_chunks(b"a", end=b"\r\n\r\n"),
    ],
)
def test_what_is_not_http_is_shown(text: bytes) -> None:
    with pytest.raises(ConnectionLost, match="the answer is not HTTP"):
        AnswerReader().take(text)


def test_a_head_without_end_is_given_up() -> None:
    reader = AnswerReader()
    assert reader.take(b"HTTP/1.1 200 OK\r\nx: " + bytes(60_000)) is None
    with pytest.raises(ConnectionLost, match="more than 64 KB"):
        reader.take(bytes(6_000))


def test_the_length_of_an_answer_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_answer, "most_answer_bytes", lambda: 1_000)
    for text in (with_length(bytes(2_000)), in_chunks(*[bytes(100)] * 20)):
        reader = AnswerReader()
        assert read(reader, [in_chunks(bytes(100))]).body == bytes(100)
        assert reader.take(text[:900]) is None
        with pytest.raises(SimulatorError, match="too much for this worker's memory"):
            reader.take(text[900:])


def test_an_end_in_the_middle_tells_what_came_last() -> None:
    reader = AnswerReader()
    assert "without an answer" in str(reader.explain_end())
    assert reader.take(in_chunks(b"rows and", b" an error", end=b"")) is None
    error = reader.explain_end()
    assert "during its answer" in str(error) and error.end.endswith(b" an error")
