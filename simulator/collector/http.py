"""The collector's HTTP interface: single-segment paths, JSON bodies, the run's token in a header.

Starlette and not FastAPI, which is built on it: the messages are validated by their own pydantic
models, and FastAPI's import alone costs 0.2 s of CPU in each collector.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ..contract import (
    RUN_HEADER,
    TOKEN_HEADER,
    TOO_EARLY,
    Failure,
    Message,
    Progress,
    Ready,
    WorkerAnswers,
    WorkerResult,
)
from .barrier import HOLD_S, Refused
from .run import Collector

_MESSAGE = TypeVar("_MESSAGE", bound=Message)


def application(collector: Collector, end: Callable[[], None]) -> Starlette:
    """The collector's HTTP interface; `end` is called when it is not needed any more."""

    def guard(
        handler: Callable[[Request], Awaitable[Response]],
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            token = request.headers.get(TOKEN_HEADER, "")
            if not hmac.compare_digest(token.encode(), collector.settings.token.encode()):
                return PlainTextResponse(f"wrong or no {TOKEN_HEADER}", 401)
            if request.headers.get(RUN_HEADER) != collector.settings.run_id:
                return PlainTextResponse("busy with another run: ask again", TOO_EARLY)
            try:
                return await handler(request)
            except Refused as refusal:
                return PlainTextResponse(refusal.text, refusal.status)
            except ValidationError as error:
                return PlainTextResponse(f"not a valid message: {error}", 422)

        return answer

    async def parse(request: Request, model: type[_MESSAGE]) -> _MESSAGE:
        message = model.model_validate_json(await request.body())
        if collector.failure and model is not Failure:
            raise Refused(410, collector.failure)
        if collector.given_up and model is Progress:
            raise Refused(410, collector.given_up)
        return message

    async def ready(request: Request) -> Response:
        return _json(await collector.ready(await parse(request, Ready)))

    async def progress(request: Request) -> Response:
        collector.progress(await parse(request, Progress))
        return PlainTextResponse("noted")

    async def result(request: Request) -> Response:
        collector.result(await parse(request, WorkerResult))
        return PlainTextResponse("taken")

    async def answers(request: Request) -> Response:
        collector.take_answers(await parse(request, WorkerAnswers))
        return PlainTextResponse("taken")

    async def failure(request: Request) -> Response:
        collector.take_failure(await parse(request, Failure))
        return PlainTextResponse("noted")

    async def status(request: Request) -> Response:
        return _json(collector.status())

    async def report(request: Request) -> Response:
        await collector.await_end(HOLD_S)
        if collector.failure is not None:
            raise Refused(410, collector.failure)
        if collector.report is None:
            return PlainTextResponse("the run has not ended: ask again", 202)
        return _json(collector.report)

    async def over(request: Request) -> Response:
        end()
        return PlainTextResponse("ends")

    async def alive(request: Request) -> Response:
        # Ready means that workers may ask, which they may even while the database is prepared,
        # and that the executor may, which it must after a failure too.
        return PlainTextResponse("ok")

    return Starlette(
        routes=[
            Route("/healthz", alive),
            Route("/readyz", alive),
            Route("/ready", guard(ready), methods=["POST"]),
            Route("/progress", guard(progress), methods=["POST"]),
            Route("/result", guard(result), methods=["POST"]),
            Route("/answers", guard(answers), methods=["POST"]),
            Route("/failure", guard(failure), methods=["POST"]),
            Route("/status", guard(status)),
            Route("/report", guard(report)),
            # A GET, since some users may only send those through the API server's proxy.
            Route("/over", guard(over)),
        ]
    )


def _json(message: Message) -> Response:
    return Response(message.model_dump_json(), media_type="application/json")
