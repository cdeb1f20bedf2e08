"""EXECUTE messages of questions, and the pages of rows that answer them.

Formats: https://github.com/apache/cassandra/blob/trunk/doc/native_protocol_v5.spec
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...errors import SimulatorError, one_line
from ...workloads.drawing import BoundQueries
from ...workloads.schema import ColumnType
from ..kit.row_order import Row
from .encoding import CONSISTENCY_CODES, Prepared, begin_execute
from .server import ERRORS
from .statements import Selection, Statement
from .wire import Reply, decode_rows

# Section 4.1.4.
_WITH_VALUES, _WITHOUT_COLUMNS, _WITH_PAGE_SIZE, _WITH_STATE = 0x01, 0x02, 0x04, 0x08
_ASKING = _WITH_VALUES | _WITHOUT_COLUMNS | _WITH_PAGE_SIZE
_PAGE_ROWS = 5000
"""As the driver's `default_fetch_size`."""

_INT, _SHORT = struct.Struct("!i"), struct.Struct("!H")
_PAGE_SIZE = _INT.pack(_PAGE_ROWS)
_VALUES: dict[ColumnType, Callable[[Any], bytes]] = {
    ColumnType.TEXT: str.encode,
    ColumnType.TIMESTAMP_MS: struct.Struct("!q").pack,
    ColumnType.INT64: struct.Struct("!q").pack,
    ColumnType.INT32: _INT.pack,
    ColumnType.FLOAT32: struct.Struct("!f").pack,
    ColumnType.FLOAT64: struct.Struct("!d").pack,
}

# Section 4.2.5.2, and 2.2 for what can stand before it.
_HEAD = struct.Struct("!3i")
"""Kind of a result, flags, number of columns."""
_ROWS = 2
_MORE, _NO_COLUMNS, _CHANGED = 0x02, 0x04, 0x08
_TRACED, _PAYLOAD, _WARNED = 0x02, 0x04, 0x08


class Execution(NamedTuple):
    """One execution of a statement, ready to be sent but for the statement's id."""

    partition: bytes | None
    """The key of the partition that it reads; None: it reads several."""
    values: bytes


class PreparedQuestion:
    """A prepared statement."""

    def __init__(
        self, prepared: Prepared, values: int, consistency: str, protocol_version: int
    ) -> None:
        """`values`: how many it takes."""
        self.prepared = prepared
        self.version = protocol_version
        code = _SHORT.pack(CONSISTENCY_CODES[consistency])
        self._first, self._next = (
            begin_execute(prepared, code, flags, values, protocol_version)
            for flags in (_ASKING, _ASKING | _WITH_STATE)
        )

    def execute(self, values: bytes, following: bytes | None = None) -> bytes:
        """The body of an EXECUTE for the first page, or for the one that is `following`."""
        if following is None:
            return b"".join((self._first, values, _PAGE_SIZE))
        return b"".join((self._next, values, _PAGE_SIZE, _INT.pack(len(following)), following))


class Answer(NamedTuple):
    """What a statement found, as it came."""

    statement: PreparedQuestion
    pages: Sequence[Reply]


def encode_executions(statement: Statement, parameters: Sequence[Row]) -> list[Execution]:
    """The executions of a statement with each row of `parameters` as parameters."""
    executions = []
    for values in parameters:
        packed = _pack(statement, values)
        executions.append(
            Execution(packed[0] if statement.is_of_partition else None, _join(packed))
        )
    return executions


def encode_block(selection: Selection, bounds: BoundQueries) -> list[list[Execution]]:
    """The executions of each of a block's questions about devices. `selection` is the first of these; they
    differ in devices and windows alone."""
    assert bounds.devices is not None
    windows, behind = [b""] * len(bounds), 1
    if bounds.start_ms is not None and bounds.end_ms is not None:
        pack = _VALUES[ColumnType.TIMESTAMP_MS]
        starts = map(pack, bounds.start_ms.tolist())
        ends = map(pack, (bounds.end_ms - 1).tolist())
        windows, behind = list(map(_join, zip(starts, ends, strict=True))), 3
    limits = _join(_pack(selection.statement, selection.parameters[0])[behind:])
    return [
        [Execution(name, _join([name]) + window + limits) for name in names]
        for names, window in zip(bounds.devices.tolist(), windows, strict=True)
    ]


def _pack(statement: Statement, values: Row) -> list[bytes]:
    return [_VALUES[kind](value) for kind, value in zip(statement.kinds, values, strict=True)]


def _join(packed: Iterable[bytes]) -> bytes:
    """Values, each with its length."""
    return b"".join([_INT.pack(len(value)) + value for value in packed])


def read_page(reply: Reply) -> tuple[int, bytes | None]:
    """The number of a page's rows, and what asks for the next page, if there is one, by its head;
    SimulatorError if that isn't one with rows."""
    flags, body = reply
    try:
        at = _skip(flags, body) if flags & (_TRACED | _PAYLOAD | _WARNED) else 0
        kind, flags, _ = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        following = None
        if flags & _MORE:
            (size,) = _INT.unpack_from(body, at)
            at += _INT.size
            following = body[at : at + size]
            at += size
        if flags & _CHANGED:
            at += _SHORT.size + _SHORT.unpack_from(body, at)[0]
        (rows,) = _INT.unpack_from(body, at)
    except struct.error as error:
        raise SimulatorError("Cassandra's answer ends too early") from error
    if kind != _ROWS or not flags & _NO_COLUMNS:
        raise SimulatorError("Cassandra's answer lacks the rows of the prepared statement")
    return rows, following


def _skip(flags: int, body: bytes) -> int:
    """Where the result begins, after a trace's number, warnings and others' additions."""
    at = 16 if flags & _TRACED else 0
    if flags & _WARNED:
        (count,) = _SHORT.unpack_from(body, at)
        at += _SHORT.size
        for _ in range(count):
            at += _SHORT.size + _SHORT.unpack_from(body, at)[0]
    if flags & _PAYLOAD:
        (count,) = _SHORT.unpack_from(body, at)
        at += _SHORT.size
        for _ in range(count):
            at += _SHORT.size + _SHORT.unpack_from(body, at)[0]
            at += _INT.size + max(0, _INT.unpack_from(body, at)[0])
    return at


def read_rows(answer: Answer) -> list[Row]:
    """The rows of an answer. SimulatorError if it doesn't have the form of one."""
    rows: list[Row] = []
    try:
        for page in answer.pages:
            rows += decode_rows(page, answer.statement.version, answer.statement.prepared.columns)
    except (*ERRORS, EOFError, ValueError, TypeError, LookupError) as error:
        raise SimulatorError(f"Cassandra's answer can't be read: {one_line(error)}") from error
    return rows
