"""The collector's HTTP interface: single-segment paths, JSON bodies, the run's token in a header.

Starlette, not FastAPI, which is built on it: the messages are validated by their own pydantic models, and
importing FastAPI costs 0.2 s of CPU in each collector.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import uvicorn
from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ..contract import (
    AFTER_HEADER,
    FAILURE_PREFIX,
    OFFSET_HEADER,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    TOO_EARLY,
    CarriedState,
    Failure,
    Message,
    Progress,
    Ready,
    RunSettings,
    WorkerAnswers,
    WorkerResult,
)
from .barrier import HOLD_S, Refused
from .run import Collector

_MESSAGE = TypeVar("_MESSAGE", bound=Message)
_Answer = Awaitable[Message] | Message | None

# Many workers connect at once.
_BACKLOG = 4096


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at an address. An empty host means all addresses, IPv6 and IPv4, as a pod may
    have either.

    Raises OSError if that is impossible, for example because the port is in use.
    """
    if not host and socket.has_dualstack_ipv6():
        # A kernel may have IPv6 switched off. If the port is in use, IPv4 raises the error next.
        with suppress(OSError):
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True
            )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


AFTER: TypeAdapter[CarriedState | None] = TypeAdapter(CarriedState | None)
"""The state from which the next run of a series continues."""


def application(collector: Collector, end: Callable[[str], None]) -> Starlette:
    """The collector's HTTP interface. `end` is called when it is no longer needed, with the state from which
    the next run continues, as JSON."""

    def guard(
        handler: Callable[[Request], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            token = request.headers.get(TOKEN_HEADER, "")
            if not hmac.compare_digest(token.encode(), collector.settings.token.encode()):
                return PlainTextResponse(f"wrong or no {TOKEN_HEADER}", 401)
            if request.headers.get(RUN_HEADER) != collector.settings.run_id:
                return PlainTextResponse("busy with another run: try again", TOO_EARLY)
            try:
                return await handler(request)
            except Refused as refusal:
                return PlainTextResponse(refusal.text, refusal.status)
            except ValidationError as error:
                return PlainTextResponse(f"not a valid message: {error}", 422)

        return answer

    def post(path: str, model: type[_MESSAGE], take: Callable[[_MESSAGE], _Answer]) -> Route:
        """A route for messages of one kind, from workers and the executor."""

        async def handle(request: Request) -> Response:
            message = model.model_validate_json(await request.body())
            if collector.failure and model is not Failure:
                raise Refused(410, collector.failure)
            if collector.given_up and model is Progress:
                raise Refused(410, collector.given_up)
            answer = take(message)
            if answer is None:
                return PlainTextResponse("taken")
            return _json(answer if isinstance(answer, Message) else await answer)

        return Route(path, guard(handle), methods=["POST"])

    async def status(request: Request) -> Response:
        return _json(collector.status())

    async def report(request: Request) -> Response:
        await collector.await_end(HOLD_S)
        refuse_if_failed()
        if collector.report is None:
            return PlainTextResponse("the run has not ended: try again", 202)
        return _json(collector.report)

    async def over(request: Request) -> Response:
        after = request.headers.get(AFTER_HEADER, "null")
        AFTER.validate_json(after)
        end(after)
        return PlainTextResponse("ends")

    async def take_recording(request: Request) -> Response:
        offset = request.headers.get(OFFSET_HEADER, "")
        if collector.recording is None or not offset.isdecimal():
            return PlainTextResponse(f"no recording is expected, or {OFFSET_HEADER} is wrong", 422)
        data = await request.body()
        refuse_if_failed()
        return PlainTextResponse(str(collector.recording.take(int(offset), data)))

    async def give_recording(request: Request) -> Response:
        if collector.recording is None:
            return PlainTextResponse("this run has no recording", 404)
        packed = await collector.recording.find_packed(HOLD_S)
        refuse_if_failed()
        if packed is None:
            return PlainTextResponse("the recording isn't here yet: try again", TOO_EARLY)
        return FileResponse(packed)

    def refuse_if_failed() -> None:
        if collector.failure is not None:
            raise Refused(410, collector.failure)

    async def alive(request: Request) -> Response:
        # Ready means that workers and the executor may send requests: workers even while the database is
        # being prepared, the executor also after a failure.
        return PlainTextResponse("ok")

    return Starlette(
        routes=[
            Route("/healthz", alive),
            Route("/readyz", alive),
            post("/ready", Ready, collector.ready),
            post("/progress", Progress, collector.progress),
            post("/result", WorkerResult, collector.result),
            post("/answers", WorkerAnswers, collector.take_answers),
            post("/failure", Failure, collector.take_failure),
            Route("/status", guard(status)),
            Route("/report", guard(report)),
            Route("/recording", guard(take_recording), methods=["POST"]),
            Route("/recording", guard(give_recording)),
            # A GET, since some users may send no other request through the API server's proxy.
            Route("/over", guard(over)),
        ]
    )


def _json(message: Message) -> Response:
    return Response(message.model_dump_json(), media_type="application/json")


# What a client may send to the collector before it has proved that it belongs to the run.

MOST_HEAD_BYTES = 64 * 1024
"""The most bytes of a request's line and headers: uvicorn with httptools keeps them all, without limit."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed if a request's headers don't end."""

    _head_bytes = 0
    _reads_head = True
    _requests = 0

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; at most one read of the socket exceeds the limit."""
        before = self._requests
        super().data_received(data)
        self._head_bytes = self._head_bytes + len(data) if self._requests == before else 0
        if self._reads_head and self._head_bytes > MOST_HEAD_BYTES:
            self.transport.close()

    def on_headers_complete(self) -> None:
        """The headers are over: the application asks for the rest as it reads it."""
        self._reads_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next request may begin."""
        self._reads_head = True
        self._requests += 1
        super().on_message_complete()


# Running a collector: its HTTP server, and its progress and report on standard output.

_ANNOUNCE_INTERVAL_S = 1.0
_ANNOUNCE_AGAIN_S = 30.0
"""A reader that opens a rotated log sees only what is written from then on."""


async def announce(collector: Collector) -> None:
    """Print progress, then report or failure again and again, to standard output."""
    with collector.failing():
        while collector.report is None and collector.failure is None:
            _print(STATUS_PREFIX + collector.status().model_dump_json())
            await collector.await_end(_ANNOUNCE_INTERVAL_S)
    while True:
        if collector.report:
            _print(REPORT_PREFIX + collector.report.model_dump_json())
        else:
            _print(FAILURE_PREFIX + json.dumps(collector.failure))
        await asyncio.sleep(_ANNOUNCE_AGAIN_S)


async def leave_database(collector: Collector) -> None:
    """Disconnect when the run has ended. If the tool was killed, nobody will ask for the report, and the next
    run must not find the database locked."""
    while collector.report is None and collector.failure is None:
        await collector.await_end(HOLD_S)
    await asyncio.to_thread(collector.close)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_collector(
    settings: RunSettings, listener: socket.socket, born: float, announced: bool = False
) -> tuple[int, str]:
    """Serve on `listener` until a request or a signal ends it, or there was no request for `linger_s`.

    `born`: `time.monotonic()` at the start. `announced`: also print progress and report. Returns the exit
    status (0 if there was a report) and the state from which the next run continues, as JSON; empty if not
    yet checked for the end.
    """

    async def serve() -> tuple[int, str]:
        collector = Collector(settings, born)
        after = ""

        def end(told: str) -> None:
            nonlocal after
            after = told
            server.should_exit = True

        server = uvicorn.Server(
            uvicorn.Config(
                application(collector, end),
                http=LimitedProtocol,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                # Longer than a worker's silence. With the default of 5 s the collector could close a
                # connection just when the worker sends its result over it.
                timeout_keep_alive=int(settings.silence_timeout_s) * 2,
                backlog=_BACKLOG,
            )
        )

        async def end_unasked() -> None:
            with collector.failing():  # a failure to disconnect must not keep this process alive
                await leave_database(collector)
            await asyncio.sleep(settings.linger_s)
            end("")

        tasks = [asyncio.create_task(collector.run()), asyncio.create_task(end_unasked())]
        if announced:
            tasks.append(asyncio.create_task(announce(collector)))
        try:
            await server.serve(sockets=[listener])
        finally:
            for task in tasks:
                task.cancel()
            collector.close()
        return (0 if collector.report else 1), after

    return asyncio.run(serve())
