"""Who may say what to the collector, and when."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest
import uvicorn

from simulator.collector.http import LimitedProtocol
from simulator.contract import (
    AFTER_HEADER,
    RUN_HEADER,
    TOKEN_HEADER,
    CarriedState,
    Failure,
    Progress,
    Ready,
    Report,
    Stage,
)

from ..helpers import worker_result
from .collecting import FakeDatabase, Run, play


@pytest.mark.parametrize("token", [None, "", "the-token ", "another"])
def test_without_the_token_nothing_is_said(database: FakeDatabase, token: str | None) -> None:
    async def story(run: Run) -> None:
        run.http.headers.pop(TOKEN_HEADER)
        headers = {} if token is None else {TOKEN_HEADER: token}
        for path in ("/ready", "/progress", "/result", "/failure"):
            answer = await run.http.post(path, json={"worker": 0, "reason": "x"}, headers=headers)
            assert answer.status_code == 401, path
        for path in ("/status", "/report", "/over"):
            assert (await run.http.get(path, headers=headers)).status_code == 401, path
        assert run.collector.failure is None
        assert not run.ended
        # A probe knows no token, and learns nothing.
        for path in ("/healthz", "/readyz"):
            answer = await run.http.get(path, headers=headers)
            assert (answer.status_code, answer.text) == (200, "ok")

    play(story)


def test_a_worker_of_another_run_is_told_to_wait(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        run.http.headers[RUN_HEADER] = "another"
        answer = await run.post("/failure", Failure(worker=0, reason="not yours"))
        assert answer.status_code == 425
        assert run.collector.failure is None

    play(story)


def test_the_executor_says_when_it_is_over(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        answer = await run.http.get("/over", headers={AFTER_HEADER: "7"})
        assert (answer.status_code, run.ended) == (422, "")
        assert (await run.http.get("/over")).status_code == 200
        assert str(run.ended) == "null"
        state = CarriedState(next_event=7, stored=7).model_dump_json()
        await run.http.get("/over", headers={AFTER_HEADER: state})
        assert run.ended == state

    play(story)


@pytest.mark.parametrize(
    "change",
    [
        '"worker":-1', '"done":-1', '"done":1e300', '"done":' + "9" * 4_000, '"elapsed_s":NaN',
        '"elapsed_s":1e300',
        '"elapsed_s":Infinity', '"backlog":-5', '"latency":[0,[-1]]', '"latency":[0,[9223372036854775808]]',
    ],
)  # fmt: skip
def test_numbers_that_count_nothing_are_refused(database: FakeDatabase, change: str) -> None:
    async def story(run: Run) -> None:
        await run.start()
        name = change.partition(":")[0]
        own = {'"worker"': "0", '"stage"': '"run"', '"elapsed_s"': "1", '"done"': "1"}
        own[name] = change.partition(":")[2]
        body = "{" + ",".join(f"{key}:{value}" for key, value in own.items()) + "}"
        answer = await run.http.post("/progress", content=body)
        assert answer.status_code == 422
        assert len(answer.text) < 1_000

    play(story)


async def send_headers_without_end() -> int:
    """How many bytes a server with this protocol takes."""

    async def app(scope: object, receive: object, send: object) -> None:
        raise AssertionError("the request never ends")

    server = uvicorn.Server(
        uvicorn.Config(app, port=0, http=LimitedProtocol, log_config=None, lifespan="off")
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        _, writer = await asyncio.open_connection(*listener.getsockname())
        sent = 0
        writer.write(b"GET / HTTP/1.1\r\n")
        with suppress(ConnectionError):
            while sent < 50_000_000:
                writer.write(b"X-A: " + b"a" * 10_000 + b"\r\n")
                await writer.drain()
                sent += 10_007
        writer.close()
        server.should_exit = True
        await serving
    return sent


def test_headers_are_limited_before_the_token_is_known() -> None:
    """They were all kept: 201 MB took 240."""
    assert asyncio.run(send_headers_without_end()) < 10_000_000


@pytest.mark.parametrize("worker", [2, 99_999])
def test_unknown_workers_are_refused(database: FakeDatabase, worker: int) -> None:
    async def story(run: Run) -> None:
        await run.start()
        for path, message in (
            ("/ready", Ready(worker=worker, stage=Stage.RUN)),
            ("/progress", Progress(worker=worker, stage="run", elapsed_s=1, done=1)),
            ("/result", worker_result(worker)),
            ("/failure", Failure(worker=worker, reason="so it is")),
        ):
            answer = await run.post(path, message)
            assert (answer.status_code, answer.text) == (404, f"there is no worker {worker}"), path
        assert run.collector.failure is None

    play(story)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"worker": "first"}',
        b'{"worker": 0, "stage": "run", "hush": "hush-hush"}',
        b'{"worker": 0, "stage": "hush-hush"}',
    ],
)
def test_invalid_messages_are_refused(database: FakeDatabase, body: bytes) -> None:
    async def story(run: Run) -> None:
        for path in ("/ready", "/progress", "/result", "/failure"):
            answer = await run.http.post(path, content=body)
            assert answer.status_code == 422, path
            assert "hush-hush" not in answer.text

    play(story)


def test_a_result_is_taken_once(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.start()
        assert (await run.result(0)).status_code == 200
        # The worker never got the answer, and says it again; only its clock has gone on.
        again = worker_result(0)
        again.elapsed_s += 1
        assert (await run.post("/result", again)).status_code == 200
        other = await run.result(0, count=99)
        assert other.status_code == 409
        assert "worker 0" in other.text
        await run.result(1)
        report = Report.model_validate_json((await run.report()).content)
        assert report.run.writers is not None
        assert report.run.writers.count == 200

    play(story)


def test_a_result_before_the_start_is_refused(database: FakeDatabase) -> None:
    async def story(run: Run) -> None:
        await run.ready(0, Stage.PREPARED)
        answer = await run.result(0)
        assert (answer.status_code, answer.text) == (409, "the run has not begun")

    play(story)
