"""A session with a data node: one connection, with at most one request in flight.

A request is a generator (`Steps`) that yields what to send next and receives the answers. `Connection.run`
carries it out on one session, `SessionChannel` on many at the same time.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from ...errors import one_line
from ..kit.http_connection import open_stream
from ..sending import carry_out, explain_length, most_answer_bytes
from ..waiting import Receiver, stamp_arrivals
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

T = TypeVar("T")

Call = tuple[Sequence[Sequence[Piece]], bytes]
"""Messages in pieces, each sent in a frame, and the end that all of them share."""

Steps = Generator[Call, bytes, T]
"""A request: it yields calls, receives the frame of the answer to each, and returns the result. Raises
ServerError if it is refused, after which the session takes the next request; ThriftError or
SimulatorError, after which something may still arrive."""

_PROTOCOL_V3 = 2
_FETCH_ROWS = 10_000
_EXECUTE = begin_call("executeStatementV2") + put_i32(4, _FETCH_ROWS)
_FETCH = begin_call("fetchResultsV2") + put_i32(3, _FETCH_ROWS) + put_bool(5, True)
_PIECE = 1 << 16
_FRAME = struct.Struct("!i")
_MOST_BYTES = 1 << 28
"""A larger frame isn't an answer."""
_ALERT = b"\x15\x03"
"""The first byte of TLS's answer to a peer that doesn't use it; no frame is that large."""
_CLOSE_S = 1.0
_QUIET_S = 0.005
_COPIED = 1 << 14
"""A message up to this size is joined, which is faster than sending its pieces."""
_MOST_PIECES = 512
"""How many pieces to send at once; the kernel takes 1,024."""
_NOTHING: Call = (), b""

# https://iotdb.apache.org/UserGuide/latest/Reference/Status-Codes.html
_SUCCESS = (200, 400)
"""Done; done, but another node would have been quicker."""
_SEVERAL = 302


class ServerError(Exception):
    """A status that isn't success."""

    def __init__(self, code: int, message: str, needs_retry: bool) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.needs_retry = needs_retry


def check_status(status: Fields) -> None:
    """Raises ServerError unless the whole request was done."""
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
    """A statement, as the beginning of the calls for it; the session's part follows. `selection`: makes rows
    of the result; None: the answer's rows as they are."""

    def __init__(self, statement: str, selection: Selection | None = None) -> None:
        self.selection = selection
        self._text = put_text(2, statement)
        self.call = _EXECUTE + self._text

    def call_more(self, number: int) -> bytes:
        """The call for more of its rows, by the server's number for the answer."""
        return _FETCH + self._text + put_i64(4, number)


class Connection:
    """A session. Waiting for the node ends after its `limit`."""

    waits: bool = True
    """Whether sending waits for room, as it always does over TLS."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float,
        login: tuple[str, str],
        configuration: Mapping[str, str],
        stamped: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connects, over TLS if there is a context for it, and logs in. `configuration`: sent with the login;
        `stamped`: the kernel timestamps answers, if it can. Raises as `open_stream`; OSError, ThriftError
        or ServerError."""
        self._stream = open_stream(*address, tls, timeout_s)
        try:
            self.descriptor = self._stream.fileno()
            self._tls = self._stream if isinstance(self._stream, ssl.SSLSocket) else None
            is_stamped = stamped and tls is None and stamp_arrivals(self._stream)
            self._receiver = Receiver(self._stream, is_stamped)
            self.limit_s = 0.0
            """The time limit for an answer."""
            self.limit(timeout_s)
            self.arrived_s = 0.0
            """When the last bytes arrived."""
            self.late_s = 0.0
            """When the next answer is late."""
            self._unsent: deque[Piece] = deque()
            self.is_full = False
            """Whether the node accepts no more for the moment: call `flush` once it does."""
            self._parts: list[bytes] = []
            """The beginning of a frame."""
            self._have = 0
            """Its length."""
            self._wanted = _FRAME.size
            """The length at which more can be read."""
            self.frames: deque[bytes] = deque()
            """Frames that were received and not taken yet."""
            self._events = select.poll()
            self._events.register(self._stream, select.POLLIN)
            self._done: bytes | None = None
            """The frame that acknowledged the last insert."""
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
            statement = read_answer(self.exchange(([[request]], b""))[_FRAME.size :])
            self._end = session + END_CALL
            self._ask_end = session + put_i64(3, statement) + END_CALL
            self._more_end = session + put_i64(7, statement) + END_CALL
        except BaseException:
            self._stream.close()
            raise

    def close(self) -> None:
        """End the session; no error if it was lost already."""
        with suppress(OSError, ThriftError):
            self.limit(_CLOSE_S)
            self.waits = True
            self.exchange(([[call("closeSession", self._session)]], b""))
        self._stream.close()

    def cut(self) -> None:
        """Close the connection after an error, without logging out."""
        self._stream.close()

    # --- requests

    def run(self, steps: Steps[T], timeout_s: float) -> T:
        """Carry out a request, with this time limit for each of its answers. Raises OSError, possibly one of
        `TIMEOUTS`, or the request's errors."""
        self.limit(timeout_s)
        return carry_out(steps, self.exchange)

    def insert(self, requests: Sequence[Sequence[Piece]], events: int) -> Steps[int]:
        """Store tablets: calls in pieces, without the session's number and their end. Returns `events`, their
        number; raises the first error."""
        failed: ServerError | None = None
        following: Call = requests, self._end
        for _ in requests:
            answer = yield following
            following = _NOTHING
            # Calls have no numbers, so all such answers are equal.
            if answer == self._done:
                continue
            try:
                check_status(_read_struct(answer))
                self._done = answer
            except ServerError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return events

    def fetch(self, question: Question, timeout_s: float) -> Steps[Answer]:
        """The whole answer to a query, with this time limit on the node. SimulatorError if it is too large
        for memory."""
        frame = yield [[question.call, put_i64(5, round(timeout_s * 1000))]], self._ask_end
        answer = Answer(_read_result(frame), len(frame))
        while answer.is_open:
            if answer.bytes > most_answer_bytes():
                raise explain_length(answer.bytes)
            frame = yield [[question.call_more(answer.number)]], self._more_end
            answer.add(_read_result(frame), len(frame))
        return answer

    def read_configuration(self, node: int) -> Steps[tuple[str, str]]:
        """The defaults of all settings, and the file of the node with that number, as texts of
        `name=value`."""
        texts = []
        for request in (
            call("showConfigurationTemplate", takes_struct=False),
            call("showConfiguration", put_i32(1, node), takes_struct=False),
        ):
            answer = _read_struct((yield [[request]], b""))
            check_status(answer[1])
            texts.append(answer[2].decode(errors="replace"))
        return texts[0], texts[1]

    # --- sending and receiving

    def limit(self, timeout_s: float) -> None:
        """Set the time limit for each answer from now on."""
        if timeout_s != self.limit_s:
            self._receiver.limit(timeout_s)
            self.limit_s = timeout_s

    def send(self, call: Call) -> None:
        """Send messages, as far as there is room. OSError if the connection is lost."""
        messages, end = call
        self.late_s = time.perf_counter() + self.limit_s
        for message in messages:
            size = sum(map(len, message)) + len(end)
            pieces = (_FRAME.pack(size), *message, end)
            if size <= _COPIED:
                self._unsent.append(b"".join(pieces))
            else:
                self._unsent += pieces
        self.flush()

    def flush(self) -> None:
        """Send the rest, as far as there is room. OSError if the connection is lost."""
        unsent, how = self._unsent, 0 if self.waits else socket.MSG_DONTWAIT
        try:
            while unsent:
                if self._tls is not None:
                    self._tls.sendall(b"".join(unsent))
                    unsent.clear()
                elif len(unsent) == 1:
                    sent = self._stream.send(unsent[0], how)
                else:
                    sent = self._stream.sendmsg(islice(unsent, _MOST_PIECES), (), how)
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if unsent and sent:
                    unsent[0] = memoryview(unsent[0])[sent:]
        except BlockingIOError:
            if self.waits:
                raise
        self.is_full = bool(unsent)

    @property
    def is_quiet(self) -> bool:
        """Whether the node has sent nothing since the last request: that would be the end of the connection,
        or an answer that nothing waits for. Not checked just after an answer."""
        if self._parts or self.frames:
            return False
        return time.perf_counter() < self.arrived_s + _QUIET_S or not self._events.poll(0)

    def receive(self) -> None:
        """Wait for something to read, and read it: complete answers are in `frames`. OSError if the
        connection is lost, ThriftError if it isn't a frame."""
        self._take(self._receiver.read(_PIECE))
        # Poll doesn't see what is already decrypted.
        while self._tls is not None and self._tls.pending():
            self._take(self._receiver.read(_PIECE))
        self.arrived_s = self._receiver.arrived_s

    def _take(self, data: bytes) -> None:
        if data == self._done and not self._parts:
            self.frames.append(data)
            return
        if not data:
            raise ConnectionResetError("the node closed the connection")
        if self._parts:
            # Joined once, however many parts a large answer has.
            self._parts.append(data)
            self._have += len(data)
            if self._have < self._wanted:
                return
            data = b"".join(self._parts)
        if data.startswith(_ALERT):
            raise ThriftError("the node requires TLS: set tls=true")
        at, self._wanted = 0, _FRAME.size
        while len(data) - at >= _FRAME.size:
            (size,) = _FRAME.unpack_from(data, at)
            if not 0 < size < _MOST_BYTES:
                raise ThriftError("the answer is not a Thrift frame")
            end = at + _FRAME.size + size
            if end > len(data):
                self._wanted = end - at
                break
            self.frames.append(data[at:end])
            at = end
        self._have = len(data) - at
        self._parts = [data[at:]] if self._have else []

    def exchange(self, call: Call) -> bytes:
        """Send messages, and wait for the next frame of an answer. Raises as `send` and `receive`."""
        self.send(call)
        while not self.frames:
            self.receive()
            if not self.frames and time.perf_counter() > self.late_s:
                raise TimeoutError
        return self.frames.popleft()

    def _ask(self, message: bytes) -> Fields:
        return _read_struct(self.exchange(([[message]], b"")))


def _read_struct(frame: bytes) -> Fields:
    """The struct that a call returned, as `read_answer`."""
    fields = read_answer(frame[_FRAME.size :])
    if not isinstance(fields, dict):
        raise ThriftError("the answer lacks the requested result")
    return fields


def _read_result(frame: bytes) -> Fields:
    """The result of a statement, or of a call for more of its rows. Raises ServerError if it is refused."""
    fields = _read_struct(frame)
    check_status(fields.get(1) or {})
    return fields
