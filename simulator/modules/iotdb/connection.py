"""A session with a data node: one connection, with one request under way at most.

Answers to queries are blocks of columns:
https://github.com/apache/tsfile/tree/develop/java/common/src/main/java/org/apache/tsfile/block (TsBlock)
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import one_line
from .._base.http_connection import open_stream
from .._base.row_order import Row
from ..sending import limit_waits, note_sending, receive_stamped, stamp_arrivals
from .thrift import (
    END_CALL,
    Fields,
    Piece,
    ThriftError,
    call,
    call_plainly,
    put_bool,
    put_i32,
    put_i64,
    put_map,
    put_text,
    read_answer,
)

_PROTOCOL_V3 = 2
_FETCH_ROWS = 10_000
_PIECE = 1 << 16
_FRAME = struct.Struct("!i")
_MOST_BYTES = 1 << 28
"""A larger frame is no answer."""
_ALERT = b"\x15\x03"
"""With that TLS tells somebody off who doesn't speak it; no frame is so large."""
_CLOSE_S = 1.0
_MOST_PIECES = 1024
"""Linux takes no more with one call (IOV_MAX: https://man7.org/linux/man-pages/man2/sendmsg.2.html)."""

_FLOAT, _DOUBLE = 3, 4
"""Types whose values are encoded as those of numbers of the same size."""
_TEXTS = (5, 11)
_BYTES, _FOUR, _EIGHT, _BINARY, _REPEATED = 0, 1, 2, 3, 4
"""Encodings of a column."""

# https://iotdb.apache.org/UserGuide/latest/Reference/Status-Codes.html
_SUCCESS = (200, 400)
"""Done; done, and another node would have been quicker."""
_SEVERAL = 302


class ServerError(Exception):
    """A status that isn't success."""

    def __init__(self, code: int, message: str, needs_retry: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.needs_retry = needs_retry


def check_status(status: Fields) -> None:
    """Raises ServerError unless the request was done, as a whole."""
    code = status.get(1)
    if code in _SUCCESS:
        return
    if code == _SEVERAL:
        parts: list[Any] = status.get(3) or []
        failed = [part for part in parts if part.get(1) not in _SUCCESS]
        if parts and not failed:
            return
        status = failed[0] if failed else status
    text = status.get(2, b"").decode(errors="replace")
    raise ServerError(int(status.get(1, 0)), one_line(text, 500), bool(status.get(5)))


class Connection:
    """A session."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float,
        login: tuple[str, str],
        configuration: Mapping[str, str],
        stamped: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects, over TLS if there is a context for it, and logs in. `configuration`: what is sent with
        the login; `stamped`: the kernel is to say when answers arrive, if it can.

        Raises as `open_stream`; OSError, ThriftError or ServerError.
        """
        self._stream = open_stream(*address, tls, timeout_s)
        try:
            self._timeout_s: float | None = None
            self._limit(timeout_s)
            self._is_tls = tls is not None
            self._stamped = stamped and not self._is_tls and stamp_arrivals(self._stream)
            self._buffer = memoryview(bytearray(_PIECE))
            self._more = b""
            """What came behind the last answer."""
            self._done = b""
            """The frame that told of the last insert that was done."""
            self._log_in(*login, configuration)
        except BaseException:
            self._stream.close()
            raise

    def _log_in(self, username: str, password: str, configuration: Mapping[str, str]) -> None:
        opened = self._ask(
            call(
                "openSession",
                put_i32(1, _PROTOCOL_V3),
                put_text(2, "UTC"),
                put_text(3, username),
                put_text(4, password),
                put_map(5, configuration),
            )
        )
        check_status(opened[1])
        self._session = opened[3]
        asked = call_plainly("requestStatementId", put_i64(1, self._session))
        self._statement = _read_frame(self._exchange(asked))
        self._end = put_i64(1, self._session) + END_CALL

    def close(self) -> None:
        """End the session; no error if that was lost already."""
        with suppress(OSError, ThriftError):
            self._limit(_CLOSE_S)
            self._exchange(call("closeSession", put_i64(1, self._session)))
        self._stream.close()

    def cut(self) -> None:
        """Close the connection after an error, without a word."""
        self._stream.close()

    def insert(self, requests: Sequence[Sequence[Piece]], timeout_s: float) -> None:
        """Have tablets stored: calls in pieces, but for the session's number and their end. Raises OSError,
        one of `TIMEOUTS` perhaps, ThriftError or ServerError, the first."""
        self._limit(timeout_s)
        if self._stamped:
            note_sending()
        self._send(requests, self._end)
        failed: ServerError | None = None
        for _ in requests:
            answer = self._receive()
            # Calls have no numbers, so all such answers are the same.
            if answer == self._done:
                continue
            try:
                check_status(_read_frame(answer))
                self._done = answer
            except ServerError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def ask(self, statement: str, timeout_s: float) -> list[Row]:
        """All rows of a statement. Raises as `insert`."""
        self._limit(timeout_s)
        answer = self._ask(
            call(
                "executeStatementV2",
                put_i64(1, self._session),
                put_text(2, statement),
                put_i64(3, self._statement),
                put_i32(4, _FETCH_ROWS),
                put_i64(5, round(timeout_s * 1000)),
            )
        )
        check_status(answer[1])
        return list(self._read_rows(answer, statement))

    def _read_rows(self, answer: Fields, statement: str) -> Iterator[Row]:
        columns = answer.get(3)
        if not columns:
            return
        places = answer.get(17) or list(range(len(columns)))
        # Of the tree's answers, the time is no column.
        if not answer.get(5, True):
            places = [-1, *places]
        blocks, more = answer.get(13), answer.get(14)
        while True:
            yield from read_blocks(blocks or [], places)
            if not more:
                return
            found = self._fetch_more(answer[2], statement)
            blocks, more = found.get(6), found.get(7)

    def _fetch_more(self, query: int, statement: str) -> Fields:
        found: Fields = self._ask(
            call(
                "fetchResultsV2",
                put_i64(1, self._session),
                put_text(2, statement),
                put_i32(3, _FETCH_ROWS),
                put_i64(4, query),
                put_bool(5, True),
                put_i64(7, self._statement),
            )
        )
        check_status(found[1])
        return found

    def read_configuration(self, node: int) -> tuple[str, str]:
        """The defaults of all settings, and the own file of the node of that number, as texts of
        `name=value`."""
        template = self._ask(call_plainly("showConfigurationTemplate"))
        check_status(template[1])
        own = self._ask(call_plainly("showConfiguration", put_i32(1, node)))
        check_status(own[1])
        return template[2].decode(errors="replace"), own[2].decode(errors="replace")

    def _ask(self, message: bytes) -> Any:
        found = _read_frame(self._exchange(message))
        if not isinstance(found, dict):
            raise ThriftError("the answer has not what was asked for")
        return found

    def _limit(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            limit_waits(self._stream, timeout_s)
            self._timeout_s = timeout_s

    def _exchange(self, message: bytes) -> bytes:
        """Send a message; the frame of its answer."""
        self._send([[message]])
        return self._receive()

    def _send(self, messages: Sequence[Sequence[Piece]], end: bytes = b"") -> None:
        """Send messages that have this end, in a frame each."""
        parts: list[Piece] = []
        size = 0
        for message in messages:
            length = sum(map(len, message)) + len(end)
            parts += (_FRAME.pack(length), *message, end)
            size += _FRAME.size + length
        if self._is_tls or len(parts) > _MOST_PIECES:
            self._stream.sendall(b"".join(parts))
            return
        sent = self._stream.sendmsg(parts)
        if sent < size:
            self._stream.sendall(memoryview(b"".join(parts))[sent:])

    def _receive(self) -> bytes:
        """The next frame."""
        data, self._more = self._more or self._read_some(), b""
        if data == self._done:
            return data
        while len(data) < _FRAME.size:
            data += self._read_some()
        if data.startswith(_ALERT):
            raise ThriftError("the node wants TLS: set tls=true")
        (size,) = _FRAME.unpack_from(data)
        if not 0 < size < _MOST_BYTES:
            raise ThriftError("the answer is no frame of Thrift")
        end = _FRAME.size + size
        if len(data) < end:
            parts, have = [data], len(data)
            while have < end:
                parts.append(self._read_some())
                have += len(parts[-1])
            data = b"".join(parts)
        self._more = data[end:]
        return data[:end]

    def _read_some(self) -> bytes:
        if self._stamped:
            size = receive_stamped(self._stream, self._buffer)
        else:
            size = self._stream.recv_into(self._buffer)
        if not size:
            raise ConnectionResetError("the node closed the connection")
        return bytes(self._buffer[:size])


def _read_frame(frame: bytes) -> Any:
    """As `read_answer`."""
    return read_answer(frame[_FRAME.size :])


def read_blocks(blocks: Sequence[bytes], places: Sequence[int]) -> Iterator[Row]:
    """The rows of an answer's blocks. `places`: of each value of a row its column in the blocks; -1 is
    the time."""
    for block in blocks:
        columns = _read_block(block)
        yield from zip(*(columns[place + 1] for place in places), strict=True)


def _read_block(block: bytes) -> list[list[Any]]:
    """The columns, the time first."""
    (count,) = struct.unpack_from("!i", block)
    types = block[4 : 4 + count]
    (rows,) = struct.unpack_from("!i", block, 4 + count)
    at = 8 + count
    encodings = block[at : at + count + 1]
    at += count + 1
    columns = []
    # The time is an INT64.
    for encoding, kind in zip(encodings, (2, *types), strict=True):
        values, at = _read_column(block, at, encoding, kind, rows)
        columns.append(values)
    return columns


def _read_column(
    block: bytes, at: int, encoding: int, kind: int, rows: int
) -> tuple[list[Any], int]:
    """The values of a column that begins there, and where it ends."""
    values: list[Any]
    if encoding == _REPEATED:
        values, at = _read_column(block, at + 1, block[at], kind, 1)
        return values * rows, at
    is_null, at = _read_bits(block, at + 1, rows) if block[at] else (None, at + 1)
    given = rows if is_null is None else rows - int(np.count_nonzero(is_null))
    if encoding == _BYTES:
        # These alone have a place for what is null, too.
        bits, at = _read_bits(block, at, rows)
        values = (bits if is_null is None else bits[~is_null]).tolist()
    elif encoding == _BINARY:
        values, at = _read_texts(block, at, given, kind in _TEXTS)
    else:
        size = 4 if encoding == _FOUR else 8
        code = "f" if kind in (_FLOAT, _DOUBLE) else "i"
        values = np.frombuffer(block, f">{code}{size}", given, at).tolist()
        at += size * given
    if is_null is not None:
        present = iter(values)
        values = [None if null else next(present) for null in is_null.tolist()]
    return values, at


def _read_bits(block: bytes, at: int, count: int) -> tuple[NDArray[np.bool_], int]:
    size = -(-count // 8)
    octets = np.frombuffer(block, np.uint8, size, at)
    return np.unpackbits(octets, count=count).astype(bool), at + size


def _read_texts(block: bytes, at: int, count: int, is_text: bool) -> tuple[list[Any], int]:
    values: list[Any] = []
    for _ in range(count):
        end = at + 4 + int.from_bytes(block[at : at + 4], "big")
        value = block[at + 4 : end]
        values.append(value.decode() if is_text else value)
        at = end
    return values, at
