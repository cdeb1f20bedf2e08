"""Where an answer of HTTP/1.1 ends, and what is in it (RFC 9112).

This is part of every measured time, and costs more the longer the database takes: by then, the caches hold
nothing of ours, and a step of 0.1 µs takes 2. So an answer that arrives at once, and equals an earlier one
except for its body, is recognised by its size, beginning and end. Features that these servers don't use are
left out: compressed answers, answers that end with the connection, answers to HEAD.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import one_line
from ..sending import explain_length, most_answer_bytes

_MOST_KNOWN = 64
"""How many answers' forms to remember."""
_MOST_HEAD_BYTES = 1 << 16
"""The longest head, or line before a chunk."""
_END_BYTES = 1 << 14
"""How much to keep of an incomplete answer."""
_LINE_END, _HEAD_END = b"\r\n", b"\r\n\r\n"
_ONLY_CHUNK_END = b"\r\n0\r\n\r\n"
_BEGIN = b"HTTP/1."
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?![^ \r])")
_FRAMING = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection):[ \t]*([^\r\n]*)", re.IGNORECASE
)
_HEX = re.compile(rb"[0-9a-fA-F]{1,15}")
_LEAST_FINAL = 200
"""Answers with a lower status precede another."""
_EMPTY = (204, 304)
_CHUNKED, _ENDLESS = -1, sys.maxsize


class NoAnswer(Exception):
    """There was no answer to a request; the text says why, in one line."""


class ConnectionLost(NoAnswer):
    """There is no connection, or no longer: the server may have the request."""

    def __init__(self, text: str, end: bytes = b"") -> None:
        """`end`: the last part of an answer's body that arrived."""
        super().__init__(text)
        self.end = end


class Answer(NamedTuple):
    """An answer from a server."""

    status: int
    body: bytes
    headers: Iterable[tuple[bytes, bytes]]

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case."""
        lowered = name.lower().encode()
        for key, value in self.headers:
            if key.lower() == lowered:
                return value.decode("latin-1")
        return None


class _Head(NamedTuple):
    """What precedes a body."""

    status: int
    length: int
    """Of the body, or `_CHUNKED`, or `_ENDLESS`."""
    keeps_alive: bool
    headers: Iterable[tuple[bytes, bytes]]


class _Form(NamedTuple):
    """What several answers of one size share."""

    begin: bytes
    """Everything before the body."""
    end: bytes
    """Everything after it."""
    start: int
    stop: int
    status: int
    headers: Iterable[tuple[bytes, bytes]]


class _Headers:
    """The headers of an answer, split on first use."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes) -> None:
        self._text = text

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        for line in self._text.split(_LINE_END)[1:]:
            name, _, value = line.partition(b":")
            yield name, value.strip()


def _read_head(text: bytes) -> _Head:
    status = _STATUS.match(text)
    if status is None:
        raise _no_http(text)
    code = int(status[2])
    fields = {name.lower(): value.strip().lower() for name, value in _FRAMING.findall(text)}
    if code < _LEAST_FINAL or code in _EMPTY:
        length = 0
    elif b"transfer-encoding" in fields:
        length = _CHUNKED
    else:
        value = fields.get(b"content-length", b"%d" % _ENDLESS)
        if not value.isdigit():
            raise _no_http(text)
        length = int(value)
    connection = fields.get(b"connection", b"keep-alive" if status[1] == b"1" else b"close")
    return _Head(code, length, b"close" not in connection, _Headers(text))


def _read_length(line: bytes) -> int:
    """The length of the chunk after this line."""
    digits = line.partition(b";")[0].strip()
    if not _HEX.fullmatch(digits):
        raise _no_http(line)
    return int(digits, 16)


def _no_http(text: bytes) -> ConnectionLost:
    shown = one_line(text[:80].decode("latin-1"), 80)
    return ConnectionLost(f"the answer is not HTTP: it has {shown!r}")


class AnswerReader:
    """Reads the answers on one connection, each to a request of its own."""

    def __init__(self) -> None:
        self._known: dict[int, _Form] = {}
        """Size of an answer that arrived at once -> its form."""
        self._head: _Head | None = None
        self._body: list[bytes] = []
        self._taken = 0
        """Bytes received of a body of known length."""
        self._left = 0
        """Bytes missing from the chunk."""
        self._rest = b""
        """The received part of an incomplete head, or line before a chunk."""
        self._received = 0
        self.keeps_alive = False
        """Whether the server accepts another request after the last one."""

    def take(self, came: bytes) -> Answer | None:
        """Process what has arrived; returns the answer once it is complete. ConnectionLost if it isn't HTTP;
        SimulatorError if it is too large for memory. After an error, no more can be read."""
        size = len(came)
        if not self._received and (known := self._known.get(size)) is not None:
            begin, end, start, stop, status, headers = known
            if came.startswith(begin) and came.endswith(end):
                return Answer(status, came[start:stop], headers)
        self._received += size
        if self._received > most_answer_bytes():
            raise explain_length(self._received)
        answer = self._go_on(self._rest + came if self._rest else came)
        if answer is not None:
            self._head, self._taken, self._received = None, 0, 0
            self._body.clear()
        return answer

    def _go_on(self, came: bytes) -> Answer | None:
        size, at = len(came), 0
        self._rest = b""
        while (head := self._head) is None:
            end = came.find(_HEAD_END, at)
            if end < 0:
                if came[at : at + len(_BEGIN)] != _BEGIN[: size - at]:
                    raise _no_http(came[at:])
                self._await_rest(came, at)
                return None
            head = _read_head(came[at:end])
            at = end + len(_HEAD_END)
            if head.status >= _LEAST_FINAL:
                self._head = head
        if head.length == _CHUNKED:
            end = self._take_chunks(came, at)
        else:
            end = at + head.length - self._taken
            self._body.append(came[at:end])
            self._taken += size - at
        if not 0 <= end <= size:
            return None
        # Bytes after an answer belong to no request.
        self.keeps_alive = head.keeps_alive and end == size
        answer = Answer(head.status, b"".join(self._body), head.headers)
        if self.keeps_alive and len(self._body) == 1 and self._received == size:
            self._remember(came, answer, _ONLY_CHUNK_END if head.length == _CHUNKED else b"")
        return answer

    def _remember(self, whole: bytes, answer: Answer, end: bytes) -> None:
        """Remember the form of an answer whose body is in one piece and ends there."""
        stop = len(whole) - len(end)
        start = stop - len(answer.body)
        if whole.endswith(end) and whole[start:stop] == answer.body:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            form = _Form(whole[:start], end, start, stop, answer.status, answer.headers)
            self._known[len(whole)] = form

    def _take_chunks(self, came: bytes, at: int) -> int:
        """Process the chunks of a body that have arrived; returns its end, or -1 if it isn't complete."""
        body = self._body
        while True:
            if self._left:
                chunk = came[at : at + self._left]
                body.append(chunk)
                at += len(chunk)
                self._left -= len(chunk)
                if self._left:
                    return -1
            # A line break follows each chunk.
            begin = at + len(_LINE_END) if body else at
            end = came.find(_LINE_END, begin)
            if end >= 0:
                self._left = _read_length(came[begin:end])
                if not self._left:
                    # Trailers may follow.
                    end = came.find(_HEAD_END, end)
                    if end >= 0:
                        return end + len(_HEAD_END)
            if end < 0:
                self._await_rest(came, at)
                return -1
            at = end + len(_LINE_END)

    def _await_rest(self, came: bytes, at: int) -> None:
        self._rest = came[at:]
        if len(self._rest) > _MOST_HEAD_BYTES:
            raise ConnectionLost(f"the answer's head has more than {_MOST_HEAD_BYTES >> 10} KB")

    def explain_end(self) -> ConnectionLost:
        """The error for a connection that the server closed."""
        if not self._body:
            return ConnectionLost("the server closed the connection without an answer")
        # An error in the middle of an answer comes last.
        end = b"".join(self._body[-2:])[-_END_BYTES:]
        return ConnectionLost("the server closed the connection during its answer", end)
