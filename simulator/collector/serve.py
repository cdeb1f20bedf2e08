"""Runs a collector: its HTTP server, and its progress and report on standard output."""

from __future__ import annotations

import asyncio
import json
import socket
import sys

import uvicorn

from ..contract import (
    FAILURE_PREFIX,
    REPORT_PREFIX,
    STATUS_PREFIX,
    Carried,
    RunSettings,
)
from .barrier import HOLD_S
from .http import application
from .limits import LimitedProtocol
from .run import Collector

_ANNOUNCE_INTERVAL_S = 2.0


async def announce(collector: Collector) -> None:
    """Print progress, then report or failure, to standard output."""
    while collector.report is None and collector.failure is None:
        _print(STATUS_PREFIX + collector.status().model_dump_json())
        await collector.await_end(_ANNOUNCE_INTERVAL_S)
    if collector.report:
        _print(REPORT_PREFIX + collector.report.model_dump_json())
    else:
        _print(FAILURE_PREFIX + json.dumps(collector.failure))


async def leave_database(collector: Collector) -> None:
    """Disconnect when the run has ended. If its tool was killed, nobody will ask for the report, and the next
    run must not find the database locked."""
    while collector.report is None and collector.failure is None:
        await collector.await_end(HOLD_S)
    await asyncio.to_thread(collector.close)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_collector(
    settings: RunSettings, listener: socket.socket, born: float, announced: bool = False
) -> tuple[int, Carried | None]:
    """Serve on `listener` until a request or a signal asks for the end, or nobody has for `linger_s`.

    `born`: `time.monotonic()` at the start; `announced`: print progress and report, too. The exit
    status, 0 if there was a report, and what the next run goes on from.
    """

    async def serve() -> tuple[int, Carried | None]:
        collector = Collector(settings, born)

        def end() -> None:
            server.should_exit = True

        server = uvicorn.Server(
            uvicorn.Config(
                application(collector, end),
                http=LimitedProtocol,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=1,
                # Longer than a worker is silent. With the default of 5 s the collector could close
                # a connection in the moment in which the worker sends its result over it.
                timeout_keep_alive=int(settings.silence_timeout_s) * 2,
                backlog=4096,
            )
        )

        async def end_unasked() -> None:
            await leave_database(collector)
            await asyncio.sleep(settings.linger_s)
            end()

        tasks = [asyncio.create_task(collector.run()), asyncio.create_task(end_unasked())]
        if announced:
            tasks.append(asyncio.create_task(announce(collector)))
        try:
            await server.serve(sockets=[listener])
        finally:
            for task in tasks:
                task.cancel()
            collector.close()
        report = collector.report
        return (0, report.carried) if report else (1, None)

    return asyncio.run(serve())
