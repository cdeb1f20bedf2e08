"""PostgreSQL's wire: several requests in flight by one connection or several, TLS, requests as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from simulator.contract import PrimaryKey, Tables
from simulator.errors import SimulatorError
from simulator.modules.base import Encoding, Job
from simulator.modules.postgres import Postgres
from simulator.testing.events import insert, rows_of
from simulator.testing.server import FaultHandle, batch_of, new_job
from simulator.worker import connect
from simulator.worker.measure import Recorder
from simulator.workloads.temperature import Temperature

from .postgres import PostgresUnderTest
from .postgres_proxy import Fate, proxy_to
from .postgres_tls import tls_to

IN_FLIGHT, EVENTS = 8, 120

TEXTS = (
    Encoding("transaction text", {"insert_mode": "transaction", "prepared_statements": "false"}),
    Encoding("single text", {"insert_mode": "single", "prepared_statements": "false"}, False),
)
ENCODINGS = [*Postgres.ENCODINGS, *TEXTS]


def _label(value: object) -> str:
    return value.label if isinstance(value, Encoding) else str(value)


every_encoding = pytest.mark.parametrize("how", ENCODINGS, ids=_label)


def insert_with(
    server: PostgresUnderTest,
    how: Encoding,
    strike: FaultHandle | None = None,
    *,
    events: int = EVENTS,
    batch: int = 4,
    job: Job | None = None,
    **options: Any,
) -> Recorder:
    """Insert, struck in the middle; check that everything is stored once; return what was recorded."""
    workload = Temperature(seed=1, device_spread=2)
    job = job or new_job(workload.schema, batch=batch_of(how, batch), in_flight=IN_FLIGHT)
    with server.prepare(job):
        pass
    strike = strike or FaultHandle(lambda: None)
    module = server.module(job, how, {**options, **strike.options})
    with connect(module.writer()) as writer:
        trigger = {events // (job.load.batch or 1) // 2: strike.trigger}
        recorder = insert(writer, workload, events, before=trigger, abort=strike.abort)
    assert recorder.events == events
    stored = server.rows(job.schema, *job.table_names)
    assert stored == sorted(rows_of(workload.block(0, 0, events)))
    return recorder


# --- a connection lost in the middle of a pipeline --------------------------------------------------


@contextmanager
def killed(server: PostgresUnderTest, job: Job) -> Iterator[FaultHandle]:
    """All of the writer's backends are ended, whatever they are at."""
    yield FaultHandle(lambda: server.kill_connections(job.run_id))


def fated(
    fate: Fate, **options: Any
) -> Callable[[PostgresUnderTest, Job], AbstractContextManager[FaultHandle]]:
    return lambda server, _: server.fated(fate, **options)


FATES: dict[str, Callable[[PostgresUnderTest, Job], AbstractContextManager[FaultHandle]]] = {
    "killed": killed,
    "answer lost": fated("drop answer"),
    "request lost": fated("drop request"),
    "answer doubtful": fated("doubtful answer"),
    "no answer in time": fated("hold answer", request_timeout_s=0.5),
    "no request in time": fated("hold request", request_timeout_s=0.5),
    "away for a while": lambda server, job: server.away(job),
}


COPY, SINGLE = ENCODINGS[0], ENCODINGS[4]
CUTS = [
    *((how, fate, 1) for how in (COPY, SINGLE) for fate in FATES),
    *((how, fate, 1) for how in ENCODINGS for fate in ("killed", "answer lost")
      if how not in (COPY, SINGLE)),
    *((SINGLE, fate, many) for fate in ("killed", "answer lost") for many in (3, None)),
]  # fmt: skip


@pytest.fixture(scope="module")
def database(embedded_postgres: tuple[str, Path]) -> Iterator[PostgresUnderTest]:
    """A database for all tests here."""
    dsn, home = embedded_postgres
    with PostgresUnderTest.started("postgres", dsn, home / "data") as adapter:
        yield adapter


@pytest.fixture
def postgres(database: PostgresUnderTest) -> PostgresUnderTest:
    """A plain PostgreSQL, empty."""
    database.clear()
    return database


@pytest.mark.parametrize(("how", "fate", "connections"), CUTS, ids=_label)
def test_exactly_once_when_a_pipeline_is_cut(
    postgres: PostgresUnderTest, how: Encoding, fate: str, connections: int | None
) -> None:
    cut_a_pipeline(postgres, how, fate, connections)


@pytest.mark.module("postgres")
@pytest.mark.parametrize("fate", ["killed", "answer lost"])
def test_exactly_once_in_every_dialect(server: PostgresUnderTest, fate: str) -> None:
    cut_a_pipeline(server, SINGLE, fate, 1)


def cut_a_pipeline(
    server: PostgresUnderTest, how: Encoding, fate: str, connections: int | None
) -> None:
    """Insert with a connection lost in the middle; check how many requests that cost."""
    job = new_job(Temperature.schema, batch=batch_of(how, 4), in_flight=IN_FLIGHT)
    with FATES[fate](server, job) as strike:
        recorder = insert_with(server, how, strike, job=job, connections=connections)
    assert set(recorder.errors) == {"connection_lost"}
    # All that was under way on the connection is in doubt, and nothing else.
    most = IN_FLIGHT * (3 if fate == "away for a while" else 1)
    assert 1 <= recorder.errors["connection_lost"] <= most
    assert recorder.retries == recorder.errors["connection_lost"]


@pytest.mark.parametrize(
    ("dealt", "key"),
    [(Tables.MULTIPLE, PrimaryKey.CLIENT), (Tables.MULTIPLE, PrimaryKey.NONE)],
)
@pytest.mark.parametrize("how", [COPY, SINGLE, TEXTS[0]], ids=_label)
def test_each_request_in_doubt_is_looked_up_by_its_own_key(
    postgres: PostgresUnderTest, how: Encoding, dealt: Tables, key: PrimaryKey
) -> None:
    job = new_job(
        Temperature.schema, batch=batch_of(how, 4), in_flight=IN_FLIGHT, tables=dealt,
        primary_key=key,
    )  # fmt: skip
    with postgres.fated("drop answer") as strike:
        recorder = insert_with(postgres, how, strike, job=job, connections=1)
    assert recorder.errors["connection_lost"] >= 1


# --- all else ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("connections", [1, 3, 8])
def test_so_many_connections_as_the_option_says(
    postgres: PostgresUnderTest, connections: int
) -> None:
    job = new_job(Temperature.schema, in_flight=IN_FLIGHT)
    seen: list[int] = []
    count = FaultHandle(lambda: seen.append(len(postgres.connections(job.run_id))))
    insert_with(postgres, ENCODINGS[-1], count, job=job, connections=connections)
    assert seen == [connections]


@every_encoding
def test_one_error_of_a_pipeline_leaves_the_others_alone(
    postgres: PostgresUnderTest, how: Encoding
) -> None:
    """The request fails for good; those before and after it are stored whole."""
    workload = Temperature()
    job = new_job(
        workload.schema, batch=batch_of(how, 4), in_flight=IN_FLIGHT, primary_key=PrimaryKey.CLIENT
    )
    with postgres.prepare(job):
        pass
    module = postgres.module(job, how, {"connections": 1})
    size = job.load.batch or 1
    with connect(module.writer()) as writer:
        payloads = writer.encoder.encode(workload.block(0, 0, 6 * size))
        assert writer.call(payloads[2]).done == size
        for request in payloads:
            writer.submit(request)
        results: dict[int, Any] = {}
        while len(results) < len(payloads):
            results |= {
                payloads.index(completion.request): completion.error or completion.done
                for completion in writer.poll(10)
            }
    failed = results.pop(2)
    assert isinstance(failed, SimulatorError) and "duplicate key" in str(failed)
    assert list(results.values()) == [size] * 5
    stored = postgres.rows(job.schema, *job.table_names)
    assert stored == sorted(rows_of(workload.block(0, 0, 6 * size)))


@every_encoding
def test_over_tls(postgres: PostgresUnderTest, how: Encoding, tmp_path: Path) -> None:
    """Payloads of many TLS records and of part of one, and a connection that is lost."""
    with proxy_to(postgres.dsn) as proxy, tls_to(proxy.dsn, tmp_path) as dsn:

        def trigger() -> None:
            proxy.fate = "drop answer"

        for connections in (1, 2):
            strike = FaultHandle(trigger, {"connection_string": dsn})
            recorder = insert_with(postgres, how, strike, batch=40, connections=connections)
            assert recorder.errors["connection_lost"] >= 1
        job = new_job(Temperature.schema, batch=batch_of(how, 2_500))
        events = 5_000 if how.batched else 50
        insert_with(
            postgres, how, FaultHandle(trigger, {"connection_string": dsn}), events=events, job=job
        )
        assert proxy.fate is None


def test_tls_is_verified_as_libpq_is_told_to(postgres: PostgresUnderTest, tmp_path: Path) -> None:
    with proxy_to(postgres.dsn) as proxy, tls_to(proxy.dsn, tmp_path) as dsn:
        psycopg2.connect(dsn).close()
        wrong = psycopg2.extensions.make_dsn(dsn, host="localhost")
        with pytest.raises(SimulatorError, match="certificate"):
            insert_with(postgres, ENCODINGS[-1], FaultHandle(list, {"connection_string": wrong}))


@pytest.mark.parametrize("in_flight", [1, 2])
def test_answers_that_fill_all_buffers(postgres: PostgresUnderTest, in_flight: int) -> None:
    """The server waits until its answers are read, and takes nothing more meanwhile."""
    how = Encoding("transaction", {"insert_mode": "transaction"})
    job = new_job(Temperature.schema, batch=20_000, in_flight=in_flight)
    insert_with(postgres, how, events=20_000 * in_flight, job=job, connections=1)


def test_a_proxy_that_forgets_prepared_statements_is_named(postgres: PostgresUnderTest) -> None:
    """PgBouncer gives each transaction another server connection, which doesn't have them."""
    workload = Temperature()
    job = new_job(workload.schema)
    module = postgres.module(job)
    module.open()
    module.prepare()
    module.close()
    inserts: list[bytes] = []

    def forgetting(statement: bytes) -> bytes:
        """The first time, an insert is prepared; the second time something else is executed."""
        if statement.startswith(b"INSERT"):
            inserts.append(statement)
            return b"DEALLOCATE ALL" if len(inserts) == 2 else statement
        return statement

    with proxy_to(postgres.dsn, forgetting) as proxy:
        writer = postgres.module(job, options={"connection_string": proxy.dsn}).writer()
        with connect(writer):
            (payload,) = writer.encoder.encode(workload.block(0, 0, 1))
            assert writer.call(payload).done == 0
            with pytest.raises(SimulatorError, match="set prepared_statements=false"):
                writer.call(payload)
