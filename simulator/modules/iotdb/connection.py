"""A session with a data node: one connection, with one request under way at most."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...errors import one_line
from ..kit.http_connection import open_stream
from ..sending import explain_length, most_answer_bytes
from ..waiting import Receiver, limit_waits, note_arrival, note_sending, stamp_arrivals
from .queries import Selection
from .thrift import (
    END_CALL,
    Answer,
    Fields,
    Piece,
    ThriftError,
    begin_call,
    call,
    put_bool,
    put_i32,
    put_i64,
    put_map,
    put_text,
    read_answer,
)

_PROTOCOL_V3 = 2
_FETCH_ROWS = 10_000
_EXECUTE = begin_call("executeStatementV2") + put_i32(4, _FETCH_ROWS)
_FETCH = begin_call("fetchResultsV2") + put_i32(3, _FETCH_ROWS) + put_bool(5, True)
_PIECE = 1 << 16
_FRAME = struct.Struct("!i")
_MOST_BYTES = 1 << 28
"""A larger frame is no answer."""
_ALERT = b"\x15\x03"
"""With this, TLS rejects whoever doesn't speak it; no frame is so large."""
_CLOSE_S = 1.0
_MOST_PIECES = 1024
"""Linux takes no more with one call (IOV_MAX: https://man7.org/linux/man-pages/man2/sendmsg.2.html)."""

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


class Question:
    """A statement to be asked, as the calls for it begin: what is the session's comes behind. `selection`:
    what makes rows of what it finds; None: they are the answer's, as they are."""

    def __init__(self, statement: str, selection: Selection | None = None) -> None:
        self.selection = selection
        self._text = put_text(2, statement)
        self.call = _EXECUTE + self._text

    def call_more(self, number: int) -> bytes:
        """The call for more of its rows, by the number that the server gave the answer."""
        return _FETCH + self._text + put_i64(4, number)


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
        the login; `stamped`: the kernel is to say when answers arrive, if it can. Raises as `open_stream`;
        OSError, ThriftError or ServerError."""
        self._stream = open_stream(*address, tls, timeout_s)
        try:
            self._timeout_s: float | None = None
            self._limit(timeout_s)
            self._is_tls = tls is not None
            self._stamped = stamped and not self._is_tls and stamp_arrivals(self._stream)
            self._receiver = Receiver(self._stream, self._stamped)
            self._buffer = memoryview(bytearray(_PIECE))
            self._more = b""
            """What came behind the last answer."""
            self._done = b""
            """The frame that told of the last insert that was done."""
            opened = self._ask(
                call(
                    "openSession",
                    put_i32(1, _PROTOCOL_V3),
                    put_text(2, "UTC"),
                    put_text(3, login[0]),
                    put_text(4, login[1]),
                    put_map(5, configuration),
                )
            )
            check_status(opened[1])
            self._session = session = put_i64(1, opened[3])
            request = call("requestStatementId", session, takes_struct=False)
            statement = read_answer(self._exchange(request)[_FRAME.size :])
            self._end = session + END_CALL
            self._ask_end = session + put_i64(3, statement) + END_CALL
            self._more_end = session + put_i64(7, statement) + END_CALL
        except BaseException:
            self._stream.close()
            raise

    def close(self) -> None:
        """End the session; no error if that was lost already."""
        with suppress(OSError, ThriftError):
            self._limit(_CLOSE_S)
            self._exchange(call("closeSession", self._session))
        self._stream.close()

    def cut(self) -> None:
        """Close the connection after an error, without a word."""
        self._stream.close()

    def insert(self, requests: Sequence[Sequence[Piece]], timeout_s: float) -> None:
        """Have tablets stored: calls in pieces, except the session's number and their end. Raises OSError,
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
                check_status(_read_struct(answer))
                self._done = answer
            except ServerError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def fetch(self, question: Question, timeout_s: float) -> Answer:
        """The whole answer to a question. Raises as `insert`; SimulatorError if it is longer than memory
        allows, after which the rest of it is still to come."""
        self._limit(timeout_s)
        timeout = put_i64(5, round(timeout_s * 1000))
        frame = self._exchange(question.call, timeout + self._ask_end)
        answer = Answer(_read_result(frame), len(frame))
        while answer.is_open:
            if answer.bytes > most_answer_bytes():
                raise explain_length(answer.bytes)
            frame = self._exchange(question.call_more(answer.number), self._more_end)
            answer.add(_read_result(frame), len(frame))
        return answer

    def read_configuration(self, node: int) -> tuple[str, str]:
        """The defaults of all settings, and the own file of the node of that number, as texts of
        `name=value`."""
        template = self._ask(call("showConfigurationTemplate", takes_struct=False))
        own = self._ask(call("showConfiguration", put_i32(1, node), takes_struct=False))
        for answer in (template, own):
            check_status(answer[1])
        return template[2].decode(errors="replace"), own[2].decode(errors="replace")

    def _ask(self, message: bytes) -> Fields:
        return _read_struct(self._exchange(message))

    def _limit(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            limit_waits(self._stream, timeout_s)
            self._timeout_s = timeout_s

    def _exchange(self, message: bytes, end: bytes = b"") -> bytes:
        """Send a message that has this end; returns the frame of its answer."""
        self._send([[message]], end)
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
        data, self._more = self._more or self._read_some(), b""
        if data == self._done:
            return data
        while len(data) < _FRAME.size:
            data += self._read_some()
        if data.startswith(_ALERT):
            raise ThriftError("the node requires TLS: set tls=true")
        (size,) = _FRAME.unpack_from(data)
        if not 0 < size < _MOST_BYTES:
            raise ThriftError("the answer is not a Thrift frame")
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
        size = self._receiver.receive(self._buffer)
        if self._stamped:
            note_arrival(self._receiver.arrived_s)
        if not size:
            raise ConnectionResetError("the node closed the connection")
        return bytes(self._buffer[:size])


def _read_struct(frame: bytes) -> Fields:
    """The struct that a call returned, as `read_answer`."""
    fields = read_answer(frame[_FRAME.size :])
    if not isinstance(fields, dict):
        raise ThriftError("the answer lacks the requested result")
    return fields


def _read_result(frame: bytes) -> Fields:
    """What a statement, or a call for more of its rows, returned. Raises ServerError for what is refused."""
    fields = _read_struct(frame)
    check_status(fields.get(1) or {})
    return fields
