"""PostgreSQL's protocol as far as inserting needs it: what is sent, and what the answers say.

https://www.postgresql.org/docs/current/protocol-message-formats.html
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

_HEADER = struct.Struct("!cI")
"""Kind, and length of what follows together with the length's own four bytes."""


def make_message(kind: bytes, body: bytes) -> bytes:
    """A message of any kind."""
    return _HEADER.pack(kind, len(body) + 4) + body


def make_query(statement: bytes) -> bytes:
    """A statement as text; answered by one ReadyForQuery."""
    return make_message(b"Q", statement + b"\0")


def make_copy_ends(statement: bytes, size: int) -> tuple[bytes, bytes]:
    """What goes before and behind the data of a COPY, `size` bytes: all in one, without waiting until
    the server asks for them. If it refuses the statement, it skips them. Answered by one
    ReadyForQuery."""
    return make_query(statement) + _HEADER.pack(b"d", size + 4), _COPY_DONE


_COPY_DONE = make_message(b"c", b"")


def make_parse(name: bytes, statement: bytes, types: Sequence[int]) -> bytes:
    """Prepare a statement whose parameters have these types (oids). `SYNC` must follow."""
    oids = struct.pack(f"!h{len(types)}I", len(types), *types)
    return make_message(b"P", name + b"\0" + statement + b"\0" + oids)


def make_bind_head(name: bytes, parameters: int) -> bytes:
    """The beginning of a Bind of a prepared statement; lengths and values of the parameters, all
    binary, and BIND_TAIL follow. Its length (`LENGTH_AT`) is left to be filled in."""
    return b"B\0\0\0\0\0" + name + struct.pack("!xhhh", 1, 1, parameters)


LENGTH_AT = slice(1, 5)
"""Where a message has its length: of all but the byte of its kind."""

EXECUTE = make_message(b"E", b"\0" + bytes(4))
"""Execute what was bound last, for all rows."""
SYNC = make_message(b"S", b"")
"""The end of a request of Binds and Executes; commits, and is answered by one ReadyForQuery."""
BIND_TAIL = bytes(2)
"""No result has columns whose format could be asked for."""


class ServerError(Exception):
    """An error that the server has sent."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        """https://www.postgresql.org/docs/current/errcodes-appendix.html"""


class Answer(NamedTuple):
    """What the server says to a request."""

    rows: int
    """How many were stored."""
    error: ServerError | None
    """The first one."""
    is_idle: bool
    """Whether the connection has no transaction open."""


_STORED = b"2\0\0\0\x04C\0\0\0\x0fINSERT 0 1\0"
"""BindComplete and CommandComplete of an INSERT with one row."""
_STORED_ALL = re.compile(b"(?:%b)+" % re.escape(_STORED))
_ONE = Answer(1, None, True)
_ONE_STORED = _STORED + b"Z\0\0\0\x05I"
"""What a single insert is answered."""


class AnswerReader:
    """Makes answers of the bytes that come from a server."""

    def __init__(self) -> None:
        self._expected: deque[int] = deque()
        """How many ReadyForQuery each request is answered by."""
        self._rest = b""
        """The beginning of a message."""
        self._ready = 0
        self._rows = 0
        self.error: ServerError | None = None
        """What the server has said of the request that it is at, or before it hung up."""

    def expect(self, ready: int) -> None:
        """A request was sent that is answered by so many ReadyForQuery."""
        self._expected.append(ready)

    def read(self, data: bytes) -> list[Answer]:
        """The answers that are complete by now, in the order of the requests."""
        if data == _ONE_STORED and not self._rest and not self._ready and not self.error:
            self._expected.popleft()
            return [_ONE]
        data, at = self._rest + data, 0
        found = []
        while True:
            # A transaction has as many of these as it has events.
            if stored := _STORED_ALL.match(data, at):
                self._rows += (stored.end() - at) // len(_STORED)
                at = stored.end()
            if len(data) - at < _HEADER.size:
                break
            kind, length = _HEADER.unpack_from(data, at)
            end = at + 1 + length
            if len(data) < end:
                break
            body = data[at + _HEADER.size : end]
            at = end
            if kind == b"C":
                self._rows += _count_rows(body)
            elif kind == b"E":
                self.error = self.error or _make_error(body)
            elif kind == b"Z":
                self._ready += 1
                if self._ready == self._expected[0]:
                    found.append(Answer(self._rows, self.error, body == b"I"))
                    self._expected.popleft()
                    self._ready, self._rows, self.error = 0, 0, None
        self._rest = data[at:]
        return found


def _count_rows(tag: bytes) -> int:
    """The rows of a command's tag: "INSERT 0 5", "COPY 5"; others have stored none."""
    words = tag.rstrip(b"\0").split()
    return int(words[-1]) if words[0] in (b"INSERT", b"COPY") else 0


def _make_error(body: bytes) -> ServerError:
    """https://www.postgresql.org/docs/current/protocol-error-fields.html"""
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    told = [fields.get(b"M", "an error without a text")]
    told += [f"{name}: {fields[key]}" for key, name in _MORE.items() if key in fields]
    return ServerError(fields.get(b"C", ""), " ".join(told))


_MORE = {b"D": "DETAIL", b"H": "HINT"}
