"""Where an answer of HTTP/1.1 ends, and what is in it (RFC 9112).

What this costs is a part of every figure, the more so the longer a database works: by then the caches hold
nothing of ours, and each step that takes 0.1 µs otherwise takes 2. So an answer that comes at once, and is
like one before it in all but its body, is recognized by its size, its begin and its end. What is left out is
what these servers don't use: compressed answers, answers that end with the connection, answers to HEAD.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...errors import one_line
from ..sending import explain_length, most_answer_bytes

_MOST_KNOWN = 64
"""How many answers' forms are remembered."""
_MOST_HEAD_BYTES = 1 << 16
"""The longest head, or line before a chunk."""
_END_BYTES = 1 << 14
"""How much is kept of an answer that isn't whole."""
_LINE_END, _HEAD_END = b"\r\n", b"\r\n\r\n"
_ONLY_CHUNK_END = b"\r\n0\r\n\r\n"
_BEGIN = b"HTTP/1."
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5]\d\d)(?![^ \r])")
_FRAMING = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection):[ \t]*([^\r\n]*)", re.IGNORECASE
)
_HEX = re.compile(rb"[0-9a-fA-F]{1,15}")
_LEAST_FINAL = 200
"""Answers of a lower status come before another."""
_EMPTY = (204, 304)
_CHUNKED, _ENDLESS = -1, sys.maxsize


class NoAnswer(Exception):
    """A request was not answered; the text says why, in one line."""


class ConnectionLost(NoAnswer):
    """There is no connection, or none any more: the server may have the request."""

    def __init__(self, text: str, end: bytes = b"") -> None:
        """`end`: the last part of an answer's body that came."""
        super().__init__(text)
        self.end = end


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes
    headers: Iterable[tuple[bytes, bytes]]

    def header(self, name: str) -> str | None:
        """The first header of that name, however it is written."""
        lowered = name.lower().encode()
        for key, value in self.headers:
            if key.lower() == lowered:
                return value.decode("latin-1")
        return None


class _Head(NamedTuple):
    """What comes before a body."""

    status: int
    length: int
    """Of the body, or `_CHUNKED`, or `_ENDLESS`."""
    keeps_alive: bool
    headers: Iterable[tuple[bytes, bytes]]


class _Form(NamedTuple):
    """What is the same in several answers of one size."""

    begin: bytes
    """All that comes before the body."""
    end: bytes
    """All that comes behind it."""
    start: int
    stop: int
    status: int
    headers: Iterable[tuple[bytes, bytes]]


class _Headers:
    """A head's headers, split when they are asked for."""

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
    """The length of the chunk behind this line."""
    digits = line.partition(b";")[0].strip()
    if not _HEX.fullmatch(digits):
        raise _no_http(line)
    return int(digits, 16)


def _no_http(text: bytes) -> ConnectionLost:
    shown = one_line(text[:80].decode("latin-1"), 80)
    return ConnectionLost(f"the answer is not HTTP: it has {shown!r}")


class AnswerReader:
    """Reads the answers that come by one connection, each to a request of its own."""

    def __init__(self) -> None:
        self._known: dict[int, _Form] = {}
        """Size of an answer that came at once -> its form."""
        self._head: _Head | None = None
        self._body: list[bytes] = []
        self._taken = 0
        """Bytes that came of a body whose length is known."""
        self._left = 0
        """Bytes of the chunk that are still to come."""
        self._rest = b""
        """What came of a head, or a line before a chunk, that isn't whole."""
        self._received = 0
        self.keeps_alive = False
        """Whether the server takes another request after the last one."""

    def take(self, came: bytes) -> Answer | None:
        """Go on with what has come: the answer, if that was the rest of it. ConnectionLost if it isn't HTTP;
        SimulatorError if it is longer than memory allows. Then no more can be read."""
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
        # What comes behind an answer belongs to no request.
        self.keeps_alive = head.keeps_alive and end == size
        answer = Answer(head.status, b"".join(self._body), head.headers)
        if self.keeps_alive and len(self._body) == 1 and self._received == size:
            self._remember(came, answer, _ONLY_CHUNK_END if head.length == _CHUNKED else b"")
        return answer

    def _remember(self, whole: bytes, answer: Answer, end: bytes) -> None:
        """Remember the form of an answer whose body stands in it in one piece, before this end."""
        stop = len(whole) - len(end)
        start = stop - len(answer.body)
        if whole.endswith(end) and whole[start:stop] == answer.body:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            form = _Form(whole[:start], end, start, stop, answer.status, answer.headers)
            self._known[len(whole)] = form

    def _take_chunks(self, came: bytes, at: int) -> int:
        """Take what has come of a body in chunks; where it ends, or -1 if it doesn't yet."""
        body = self._body
        while True:
            if self._left:
                chunk = came[at : at + self._left]
                body.append(chunk)
                at += len(chunk)
                self._left -= len(chunk)
                if self._left:
                    return -1
            # A line break comes behind each chunk.
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
        """The error that the server has ended the connection."""
        if not self._body:
            return ConnectionLost("the server closed the connection without an answer")
        # What a server says of an error in the middle of an answer comes last.
        end = b"".join(self._body[-2:])[-_END_BYTES:]
        return ConnectionLost("the server closed the connection during its answer", end)
