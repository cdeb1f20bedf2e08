"""The server of the live page. It listens on loopback and requires the token."""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import uvicorn
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from simulator import __version__
from simulator.contract import Phase, Role

from ...system.output import note
from .state import LIVE, Figures, LiveState

ADDRESS = "127.0.0.1"
BEAT_S = 2.0
"""After this long without news, a reader is told that the connection still works."""

_PAGE = Path(__file__).parent / "page"
_POLL_S = 0.1
_LAST_WORDS_S = 1
"""How long readers have to receive the end."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LiveServer:
    """Serves the page, its events and the metrics in a thread, from `start` to `close`."""

    def __init__(self, state: LiveState) -> None:
        """Listens from now on, but answers only after `start`."""
        self._socket = socket.create_server((ADDRESS, 0))
        self.address = f"{ADDRESS}:{self._socket.getsockname()[1]}"
        """The address and port that it listens on."""
        self.token = secrets.token_urlsafe(24)
        """What a request needs: `?token=…`, or a header `Authorization: Bearer …`."""
        self.url = f"http://{self.address}/?token={self.token}"
        """The page's address, with the token."""
        self._server = _Server(
            uvicorn.Config(
                _guard(_make_application(state), self.address, self.token),
                http="h11", ws="none", loop="asyncio", lifespan="off",
                headers=list(_HEADERS.items()), server_header=False,
                timeout_graceful_shutdown=_LAST_WORDS_S,
                # Its lines would contain the token, or report readers' mistakes.
                log_config=None, log_level="critical", access_log=False,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._serve, name="live", daemon=True)

    def _serve(self) -> None:
        try:
            self._server.run([self._socket])
        except Exception as error:  # noqa: BLE001 - the command can do without the page
            note(f"warning: the live page has ended: unexpected {error!r}")

    @property
    def was_started(self) -> bool:
        """Whether it has served."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Tell all readers of the end, which the state must already have. Leaves no thread and no socket."""
        if self._thread.is_alive():
            self._server.should_exit = True
            self._thread.join()
        self._socket.close()


class _Server(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut off readers that have not read to the end in time."""
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def _guard(app: ASGIApp, address: str, token: str) -> ASGIApp:
    """The application, only for requests that have the token and were sent to this address. A name that was
    made to point here (DNS rebinding) must not read anything, even with the token."""
    hosts = (address, address.replace(ADDRESS, "localhost"))

    def is_allowed(request: Request) -> bool:
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        presented = request.query_params.get("token", "")
        presented = credentials.strip() if scheme.lower() == "bearer" else presented
        is_known = hmac.compare_digest(presented.encode(), token.encode())
        return is_known and request.headers.get("Host") in hosts

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = PlainTextResponse("wrong or no token\n", 403)
        await (app if is_allowed(Request(scope)) else refusal)(scope, receive, send)

    return answer


def _make_application(state: LiveState) -> Starlette:
    async def send_page(_: Request) -> Response:
        nonce = secrets.token_urlsafe(16)
        page = (_PAGE / "live.html").read_text(encoding="utf-8")
        page = page.replace("{style}", (_PAGE / "live.css").read_text(encoding="utf-8"))
        page = page.replace("{script}", (_PAGE / "live.js").read_text(encoding="utf-8")).replace(
            "{nonce}", nonce
        )
        policy = (
            f"default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}';"
            " connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none';"
            " frame-ancestors 'none'"
        )
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    async def send_metrics(_: Request) -> Response:
        return Response(
            write_metrics(state.read_figures()), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    async def send_events(_: Request) -> Response:
        headers = {"Content-Type": "text/event-stream"}
        return StreamingResponse(_list_events(state), headers=headers)

    return Starlette(
        routes=[
            Route("/", send_page),
            Route("/events", send_events),
            Route("/metrics", send_metrics),
        ]
    )


async def _list_events(state: LiveState) -> AsyncIterator[str]:
    """The state as server-sent events, until the end. A slow reader misses intermediate states, but no
    points: https://html.spec.whatwg.org/multipage/server-sent-events.html"""
    after, quiet_s = -1, 0.0
    while True:
        if state.serial > after:
            changes = state.describe(after)
            after, quiet_s = changes["serial"], 0.0
            yield f"data: {json.dumps(changes)}\n\n"
            if changes["ended"] is not None:
                return
        elif quiet_s >= BEAT_S:
            quiet_s = 0.0
            yield "event: beat\ndata:\n\n"
        await asyncio.sleep(_POLL_S)
        quiet_s += _POLL_S


# --- the figures as Prometheus reads them -------------------------------------------------------------

# Names follow https://prometheus.io/docs/practices/naming/: base units, and `_total` for counters.
_PREFIX = "iot_benchmark_"
_UNITS = {Role.WRITE: "events", Role.FILL: "events", Role.READ: "queries"}
_TOTALS = {
    Role.FILL: ("prefilled_events_total", "Events stored by prefills."),
    Role.WRITE: ("events_total", "Events acknowledged by the database."),
    Role.READ: ("queries_total", "Queries answered by the database."),
}

_Samples = Sequence[tuple[Mapping[str, str], float | None]]
"""Labels, and the value or None if it isn't known."""


def write_metrics(figures: Figures) -> str:
    """All metrics that have a sample, in the text format."""
    metrics = []
    for name, about, samples in _list_metrics(figures):
        kind = "counter" if name.endswith("_total") else "gauge"
        metric = Metric(_PREFIX + name.removesuffix("_total"), about, kind)
        for labels, value in samples:
            if value is not None:
                metric.add_sample(_PREFIX + name, dict(labels), float(value))
        if metric.samples:
            metrics.append(metric)
    return generate_latest(SimpleNamespace(collect=lambda: metrics)).decode()


def _list_metrics(figures: Figures) -> Iterator[tuple[str, str, _Samples]]:
    """Name, meaning and samples of each metric."""
    own = {"version": __version__, "command": figures.command, "target": figures.target}
    yield "info", "Which command runs, always 1.", [(own, 1)]
    totals, status = figures.totals, figures.status
    for role, (name, about) in _TOTALS.items():
        yield name, about, [({}, totals[role]["done"])] if role in totals else []
    retries = [({"role": role}, total["retries"]) for role, total in totals.items()]
    yield "retries_total", "Requests retried after an error.", retries
    failed = totals[Role.READ]["failed"] if Role.READ in totals else None
    yield "failed_queries_total", "Queries without an answer.", [({}, failed)]
    yield "runs_total", "Runs that have ended, valid or not.", [({}, figures.runs_ended)]
    marks = "Disturbances of the database during the run."
    yield "disturbances_total", marks, [({}, figures.marks)]
    if status is not None:
        phases = [({"phase": phase}, phase is status.phase) for phase in Phase]
        yield "phase", "1 for the current phase, 0 for others.", phases
        groups = status.groups if status.phase in (Phase.PREFILL, Phase.RUN) else []
        # Events and queries have separate figures where the names differ.
        for unit in (*dict.fromkeys(_UNITS.values()), ""):
            for figure in LIVE:
                if ("{unit}" in figure.metric) == bool(unit):
                    values = [
                        ({"role": group.role}, figure.scale * value)
                        for group in groups
                        if not unit or _UNITS[group.role] == unit
                        if (value := figure.read(group)) is not None
                    ]
                    about = figure.about.format(Unit=unit.title())
                    yield figure.metric.format(unit=unit), about, values
        quiet = "Time without an answer from the database."
        yield "quiet_seconds", quiet, [({}, status.quiet_s)]
        elapsed = "Time since the common start of the run's workers."
        yield "elapsed_seconds", elapsed, [({}, status.elapsed_s)]
        if (use := status.database) is not None:
            yield "database_cpus_used", "CPUs that the database uses.", [({}, use.cpus_used)]
            yield "database_cpus_limit", "CPUs available to the database.", [({}, use.cpus)]
    jobs = [({"state": state}, number) for state, number in figures.jobs.items()]
    yield "campaign_jobs", "Jobs of the campaign in each state.", jobs
