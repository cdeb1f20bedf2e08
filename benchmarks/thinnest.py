"""The thinnest clients that can send a worker's bytes: they know as much of a protocol as that takes.

Each is a context manager on connections of its own, and yields what takes a turn: it sends the requests of
that turn, which were built beforehand, and reads no more of an answer than whether it is a success.
RuntimeError if it isn't.
"""

from __future__ import annotations

import http.client
import socket
import struct
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from cassandra.segment import compute_crc24
from psycopg import pq

from simulator.modules.iotdb import IotdbOptions
from simulator.modules.iotdb.connection import Connection as IotdbConnection
from simulator.modules.iotdb.connection import Question as IotdbQuestion
from simulator.modules.iotdb.schema import Model
from simulator.modules.iotdb.thrift import put_i64
from simulator.modules.kit.libpq_pipeline import Inserts

from .support import Turn, open_service

_T = TypeVar("_T")

TimedTurn = Callable[[int], float | None]
"""A `Turn`, which may know better than the clock how many seconds it took."""


def in_turns(send: Callable[[Sequence[_T]], None], requests: Sequence[_T], count: int) -> Turn:
    """Sends so many of the requests in each turn."""
    return lambda number: send(requests[number * count : (number + 1) * count])


# --- HTTP -----------------------------------------------------------------------------------------


class Post(NamedTuple):
    """A request."""

    target: str
    """Path and query."""
    body: bytes


_TOO_MANY, _TOO_MANY_RETRIES = http.HTTPStatus.TOO_MANY_REQUESTS, 20
"""A server with a small heap may be short of memory; a worker tries again as often."""


@contextmanager
def http_client(
    url: str,
    posts: Sequence[Post],
    headers: Mapping[str, str],
    status: int,
    count: int,
    in_flight: int = 1,
    begin: bytes = b"",
) -> Iterator[Turn]:
    """Python's http.client: a POST, its answer read, nothing else; a connection and, if there are several, a
    thread for each request in flight. An answer must have this status and begin like this."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    posts = [Post(path + target, body) for target, body in posts]

    def send(connection: http.client.HTTPConnection, part: Sequence[Post]) -> None:
        for target, body in part:
            for _ in range(_TOO_MANY_RETRIES):
                connection.request("POST", target, body, headers)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != _TOO_MANY:
                    break
                time.sleep(0.1)
            if answer.status != status or not content.startswith(begin):
                raise RuntimeError(f"the server answered {answer.status}: {content[:300]!r}")

    with ExitStack() as stack, ThreadPoolExecutor(in_flight) as threads:
        connections = [
            stack.enter_context(
                closing(http.client.HTTPConnection(parts.hostname or "", parts.port))
            )
            for _ in range(in_flight)
        ]

        def send_all(part: Sequence[Post]) -> None:
            if in_flight == 1:
                send(connections[0], part)
                return
            shares = [part[at::in_flight] for at in range(in_flight)]
            list(threads.map(send, connections, shares))

        yield in_turns(send_all, posts, count)


# --- Cassandra ------------------------------------------------------------------------------------

_VERSION = 5
_ERROR, _STARTUP, _READY, _RESULT, _EXECUTE, _BATCH = 0x00, 0x01, 0x02, 0x08, 0x0A, 0x0D
_WRITE_TIMEOUT = (0x1100).to_bytes(4, "big")
_HEADER = struct.Struct("!BBhBi")
_MAX_SEGMENT = 0x1FFFF

# A server without memory loses requests.
_PATIENCE_S = 60


class CassandraSocket:
    """A raw socket to a node, and what messages look like on it: frames in segments with checksums."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._stream = socket.create_connection(address)
        self._answers = self._stream.makefile("rb")
        self._whole = b""
        """What has come of an answer that takes several segments."""
        self._stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout of Python's would be a system call more for each answer.
        self._stream.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _PATIENCE_S, 0)
        )
        options = b"\0\1\0\x0bCQL_VERSION\0\x053.0.0"
        self._stream.sendall(_HEADER.pack(_VERSION, 0, 0, _STARTUP, len(options)) + options)
        *_, kind, length = _HEADER.unpack(self._answers.read(_HEADER.size))
        self._answers.read(length)
        if kind != _READY:
            raise RuntimeError("the server asks for more than the thinnest client knows")

    def __enter__(self) -> CassandraSocket:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._stream.close()

    def execute(self, stream: int, body: bytes, operation: int = _EXECUTE) -> None:
        """Send a message, by default an EXECUTE."""
        frame = _HEADER.pack(_VERSION, 0, stream, operation, len(body)) + body
        self._stream.sendall(_segments(frame))

    def read_results(self) -> list[tuple[int, int, bytes]]:
        """Read a segment: stream, flags and body of each result that ends with it. RuntimeError for an
        error."""
        return [
            (stream, flags, body)
            for stream, flags, kind, body in self._read_messages()
            if kind == _RESULT or _refuse(body)
        ]

    def read_stored(self) -> list[tuple[int, bool]]:
        """The stream of each answer to a write, and whether the write timed out. RuntimeError for any other
        error."""
        answers = []
        for stream, _, kind, body in self._read_messages():
            late = kind == _ERROR and body[:4] == _WRITE_TIMEOUT
            if kind != _RESULT and not late:
                _refuse(body)
            answers.append((stream, late))
        return answers

    def _read_messages(self) -> list[tuple[int, int, int, bytes]]:
        """Read a segment: stream, flags, kind and body of each message that ends with it."""
        header = self._answers.read(6)
        if not header:
            raise RuntimeError("no answer comes any more: give the server more memory")
        length = int.from_bytes(header[:3], "little")
        payload = self._whole + self._answers.read((length & _MAX_SEGMENT) + 4)[:-4]
        self._whole = b""
        messages = []
        while payload:
            _, flags, stream, kind, size = _HEADER.unpack_from(payload)
            if len(payload) < _HEADER.size + size:
                self._whole = payload
                break
            messages.append((stream, flags, kind, payload[_HEADER.size : _HEADER.size + size]))
            payload = payload[_HEADER.size + size :]
        return messages


def _refuse(body: bytes) -> bool:
    raise RuntimeError(f"refused: {body[:200]!r}")


@contextmanager
def cassandra_socket(
    address: tuple[str, int], bodies: Sequence[bytes], batched: bool, count: int, in_flight: int
) -> Iterator[Turn]:
    """A raw socket: bodies of BATCH (or EXECUTE) messages; reads only the kind of each answer. A write that
    timed out on the server is sent again."""
    operation = _BATCH if batched else _EXECUTE
    with CassandraSocket(address) as connection:

        def send(part: Sequence[bytes]) -> None:
            waiting = list(reversed(range(len(part))))
            under_way = 0
            while waiting or under_way:
                if waiting and under_way < in_flight:
                    stream = waiting.pop()
                    connection.execute(stream, part[stream], operation)
                    under_way += 1
                    continue
                for stream, late in connection.read_stored():
                    under_way -= 1
                    if late:
                        waiting.append(stream)

        yield in_turns(send, bodies, count)


def _segments(frame: bytes) -> bytes:
    """The frame as segments: header, its checksum, payload, its checksum."""
    parts = []
    alone = len(frame) <= _MAX_SEGMENT
    for start in range(0, len(frame), _MAX_SEGMENT):
        payload = frame[start : start + _MAX_SEGMENT]
        header = len(payload) | alone << 17
        parts += [
            header.to_bytes(3, "little"),
            compute_crc24(header, 3).to_bytes(3, "little"),
            payload,
            zlib.crc32(payload, _CRC32_INITIAL).to_bytes(4, "little"),
        ]
    return b"".join(parts)


# The checksum of segments begins with that of these bytes (native_protocol_v5.spec, section 2.2).
_CRC32_INITIAL = zlib.crc32(b"\xfa\x2d\x55\xca")


# --- IoTDB ----------------------------------------------------------------------------------------


class IotdbSession(IotdbConnection):
    """A session's socket, and what ends each of its frames."""

    def frame_all(self, bodies: Sequence[bytes]) -> list[bytes]:
        """The frames of these calls."""
        return [_frame(body + self._end) for body in bodies]

    def frame_question(self, question: IotdbQuestion) -> bytes:
        """The call that asks it."""
        return _frame(question.call + _QUESTION_TIMEOUT + self._ask_end)

    def frame_more(self, question: IotdbQuestion, number: int) -> bytes:
        """The call for more of its rows."""
        return _frame(question.call_more(number) + self._more_end)

    @property
    def socket(self) -> socket.socket:
        return self._stream


def _frame(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


_QUESTION_TIMEOUT = put_i64(5, _PATIENCE_S * 1000)


@contextmanager
def open_iotdb(options: IotdbOptions) -> Iterator[IotdbSession]:
    """A session that waits for answers without a limit."""
    configuration = {"version": "V_1_0", "sql_dialect": options.model.value}
    if options.model is Model.TABLE:
        configuration["db"] = options.database
    login = (options.username, options.password)
    address = (options.host[0], options.port)
    with closing(IotdbSession(address, _PATIENCE_S, login, configuration)) as session:
        session.socket.settimeout(None)
        yield session


@contextmanager
def iotdb_socket(options: IotdbOptions, bodies: Sequence[bytes], count: int) -> Iterator[Turn]:
    """A raw socket on which a session was opened: calls of Thrift as frames; reads as many bytes of each
    answer as the first had."""
    with open_iotdb(options) as session:
        stream = session.socket
        answer_bytes = 0

        def send(part: Sequence[bytes]) -> None:
            nonlocal answer_bytes
            for frame in part:
                stream.sendall(frame)
                answer = stream.recv(1 << 16)
                answer_bytes = answer_bytes or len(answer)
                if len(answer) != answer_bytes:
                    raise RuntimeError(
                        f"the server answered otherwise than before: {answer[:200]!r}"
                    )

        yield in_turns(send, session.frame_all(bodies), count)


# --- PostgreSQL -----------------------------------------------------------------------------------


@contextmanager
def libpq(dsn: str, copies: Sequence[tuple[bytes, bytes]], count: int) -> Iterator[Turn]:
    """libpq's own functions, as psycopg binds them: one COPY, and so one commit, for each statement and its
    data; exec, put_copy_data, put_copy_end, get_result, nothing else."""
    connection = pq.PGconn.connect(dsn.encode())

    def expect(result: pq.abc.PGresult | None, status: pq.ExecStatus) -> None:
        if result is None or result.status != status:
            raise RuntimeError(connection.error_message.decode())

    def send(part: Sequence[tuple[bytes, bytes]]) -> None:
        for statement, data in part:
            expect(connection.exec_(statement), pq.ExecStatus.COPY_IN)
            connection.put_copy_data(data)
            connection.put_copy_end()
            expect(connection.get_result(), pq.ExecStatus.COMMAND_OK)
            if connection.get_result() is not None:
                raise RuntimeError(connection.error_message.decode())

    if connection.status != pq.ConnStatus.OK:
        raise RuntimeError(connection.error_message.decode())
    try:
        yield in_turns(send, copies, count)
    finally:
        connection.finish()


@contextmanager
def psql(dsn: str, requests: Sequence[Inserts], count: int) -> Iterator[Turn]:
    r"""A psql that gets its commands through a pipe, those of a turn in one go: statements as texts; \copy
    from a file per batch, in memory where the system has a place for it."""
    with open_service(dsn, in_memory=True) as service:
        folder, texts = service.folder, []
        for number, (inserts, in_transaction) in enumerate(requests):
            ((statement, data), *_) = inserts
            if data is None:
                text = b"".join(b"%b;\n" % statement for statement, _ in inserts)
                texts.append(b"BEGIN;\n%bCOMMIT;\n" % text if in_transaction else text)
            else:
                (folder / str(number)).write_bytes(data)
                source = f"FROM '{folder / str(number)}'".encode()
                copy = statement.replace(b"COPY", b"\\copy").replace(b"FROM STDIN", source)
                texts.append(copy + b"\n")
        process = subprocess.Popen(
            service.command("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1"), env=service.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with process:
            assert process.stdin is not None and process.stdout is not None
            commands, answers = process.stdin, process.stdout

            def send(part: Sequence[bytes]) -> None:
                commands.write(part[0])
                commands.flush()
                if answers.readline() != b"done\n":
                    raise RuntimeError("psql failed")

            starts = range(0, len(texts), count)
            joined = [b"".join([*texts[at : at + count], b"\\echo done\n"]) for at in starts]
            yield in_turns(send, joined, 1)
            commands.close()


@contextmanager
def pgbench(dsn: str, insert: str, count: int, clients: int, pipelined: int) -> Iterator[TimedTurn]:
    r"""A pgbench -M prepared for each turn of `count` inserts: by several clients in one thread, or pipelined
    with each insert synchronised (\syncpipeline), so that it is a transaction of its own.

    `insert`: up to its values. A turn returns its seconds, by pgbench's rate, which leaves out connecting.
    """
    script = statement = f"{insert}(:time, :device, :number, :value);\n"
    if pipelined > 1:
        script = "\\syncpipeline\n".join([statement] * pipelined)
        script = f"\\startpipeline\n{script}\\endpipeline\n"
    variables: dict[str, Any] = {
        "time": 1704067200000, "device": "w00000d000000", "number": 1, "value": 21.25
    }  # fmt: skip
    words: list[object] = ["-M", "prepared", "-c", clients, "-j", 1]
    words += ["-t", count // clients // pipelined]
    for name, value in variables.items():
        words += ["-D", f"{name}={value}"]
    with open_service(dsn) as service:
        file = service.folder / "script"
        file.write_text(script)
        yield lambda _: count / (service.run_pgbench("tps", *words, "-f", file) * pipelined)
