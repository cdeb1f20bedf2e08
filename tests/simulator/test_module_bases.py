"""What modules stand on: an HTTP database's errors and nodes, tables by statements, requests in doubt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import pytest

from simulator.contract import Load, PrimaryKey
from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import Capabilities, Client, Job, Support
from simulator.modules.kit.exactly_once import SettlingWriter, Wanted
from simulator.modules.kit.http_answer import Answer
from simulator.modules.kit.http_database import HttpDatabase
from simulator.modules.kit.module import MARK, MissingTable
from simulator.modules.kit.official import Rows, RowsEncoder
from simulator.modules.kit.options import EndpointOptions, LoginOptions
from simulator.modules.kit.sql_module import SqlModule
from simulator.modules.kit.sql_queries import SqlDialect
from simulator.modules.options import LEAN, Options
from simulator.modules.sending import CALLING, Encoder, Request
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import ColumnType
from simulator.workloads.temperature import Temperature


class ThingOptions(EndpointOptions, LoginOptions):
    DEFAULT_PORT: ClassVar[int | None] = 77
    EXAMPLE_URL: ClassVar[str] = "http://thing.example"


class Thing(HttpDatabase[ThingOptions]):
    """Its nodes fail by turns as the test says."""

    SYSTEM = "Thing"
    failures: Sequence[Exception | None] = ()

    def ping(self, timeout_s: float) -> None:
        failure, *self.failures = self.failures
        if failure is not None:
            raise failure

    def explain(self, answer: Answer) -> Retryable | SimulatorError:
        return self.explain_status(answer, f"{self.place}: {answer.status}")


def thing(**values: Any) -> Thing:
    options = ThingOptions.model_validate({"endpoint": "http://one,http://two:8", **values})
    return Thing(options, Job(Temperature.schema))


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (401, "check username and password"),
        (403, "check username and password"),
        (413, "use a smaller --batch"),
        (200, "check that endpoint names Thing's HTTP server"),
        (404, "check that endpoint names Thing's HTTP server"),
        (400, "Thing at one:77, two:8: 400$"),
    ],
)
def test_a_status_that_ends_a_run_says_what_to_do(status: int, meaning: str) -> None:
    with pytest.raises(SimulatorError, match=meaning):
        raise thing().explain(Answer(status, b"", []))


@pytest.mark.parametrize("wait", ["3", "Tue, 01 Jan 2030 00:00:00 GMT"])
@pytest.mark.parametrize("status", [429, 503])
def test_a_status_that_passes_is_tried_again(status: int, wait: str) -> None:
    error = thing().explain(Answer(status, b"", [(b"Retry-After", wait.encode())]))
    assert isinstance(error, Retryable)
    assert error.kind == ("too_many_requests" if status == 429 else "unavailable")
    # Not all servers give it in seconds.
    assert error.at_least_s == (3 if wait == "3" else 0)


def test_one_node_that_answers_is_enough() -> None:
    away, refused = Retryable("connection_lost", "two:8: nobody"), SimulatorError("wrong password")
    database = thing()
    database.failures = [away, None]
    database.check()
    database.failures = [away, away]
    with pytest.raises(SimulatorError, match="can't connect to Thing at two:8: nobody; check that"):
        database.check()
    database.failures = [None, refused]
    with pytest.raises(SimulatorError, match="wrong password"):
        database.check()


def test_an_answer_has_what_is_asked_for() -> None:
    database = thing()
    assert database.parse(Answer(200, b'{"a": {"b": [1]}}', []), "a", "b") == [1]
    for body in (b'{"a": 1}', b"<html>", b'{"a": {"b": [1'):
        with pytest.raises(SimulatorError, match="unreadable or incomplete answer"):
            database.parse(Answer(200, body, []), "a", "b")


def test_headers_say_who_asks_and_let_in() -> None:
    assert thing().headers == {"user-agent": "iot-benchmark none"}
    login = thing(username="me", password="word").headers["authorization"]
    assert login == "Basic bWU6d29yZA=="


# --- statements -----------------------------------------------------------------------------------


class Statements:
    """A connection that notes what it is asked."""

    marks: Sequence[tuple[str, str | None, bool]] = ()
    """Name and comment of what there is, and whether it is a table."""
    columns: Sequence[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        if statement.startswith("marks"):
            return [mark for mark in self.marks if f"'{mark[0]}'" in statement]
        self.asked.append(statement)
        if self.columns and statement.startswith("list"):
            return list(self.columns)
        if "gone" in statement:
            raise MissingTable("no such table")
        return [("3", "text", "more")]

    def close(self) -> None:
        """Nothing to close."""


class Plain(SqlModule[Options, Statements]):
    """A module that says no more than it must."""

    name = "plain"
    CLIENTS: ClassVar = {LEAN: Client(f"{__name__}:Settling", CALLING)}
    options_model = Options
    ENCODINGS = ()
    CAPABILITIES = Capabilities({}, {}, Support.UNSUPPORTED, {}, tags_table=Support.FULL)
    TYPES: ClassVar = dict.fromkeys(ColumnType, "number")
    KEYS: ClassVar = {PrimaryKey.CLIENT: "text PRIMARY KEY"}
    DIALECT = SqlDialect()
    COLUMNS = "list {table} of {place} or {name}"
    MARKS = "marks {names}"

    @classmethod
    def encoder(cls, options: Options, job: Job) -> Encoder:
        return RowsEncoder(job)

    def connect(self) -> Statements:
        return Statements()

    def server_info(self) -> dict[str, Any]:
        return {}


def test_tables_are_dropped_and_made_with_their_keys() -> None:
    job = Job(Cpu(tags="table").schema, Load(primary_key=PrimaryKey.CLIENT))
    module = Plain(Options(), job)
    names = [*job.all_table_names, job.schema.tags_table]
    module.connection.marks = [(name, MARK, True) for name in names]
    module.prepare()
    statements = module.connection.asked
    assert statements[:-2] == [f'DROP TABLE IF EXISTS "{name}"' for name in reversed(names)]
    events, tags = statements[-2:]
    assert events.startswith(f'CREATE TABLE IF NOT EXISTS "{job.schema.table}" ("id" text PRIMARY')
    assert tags.startswith(f'CREATE TABLE IF NOT EXISTS "{job.schema.tags_table}" ("tags_id" num')
    assert module.count_rows("events") == 3


EVENTS = [(c.name, "NUMBER") for c in Temperature.schema.row]
BESIDE = [(c.name, "NUMBER") for c in Temperature(tags="table").schema.row]


@pytest.mark.parametrize(
    ("mark", "is_table", "columns", "is_ours"),
    [
        (MARK, True, [("note", "text")], True),
        (MARK, False, EVENTS, False),
        (None, True, EVENTS, True),
        (None, True, BESIDE, True),
        (None, True, [("id", "text"), *EVENTS], True),
        (None, True, [("note", "text"), *EVENTS], False),
        (None, True, EVENTS[1:], False),
        (None, True, [(name, "text") for name, _ in EVENTS], False),
        (None, False, EVENTS, False),
        ("mine", True, [("note", "text")], False),
    ],
)
def test_a_table_is_ours_by_its_mark_or_by_exactly_our_columns(
    mark: str | None, is_table: bool, columns: Sequence[tuple[str, ...]], is_ours: bool
) -> None:
    module = Plain(Options(), Job(Temperature.schema))
    module.connection.columns = columns
    module.connection.marks = [("events2", mark, is_table)]
    # Nobody needs it: somebody else's stays.
    module.prepare()
    dropped = [text for text in module.connection.asked if text.startswith("DROP")]
    assert dropped == (['DROP TABLE IF EXISTS "events2"'] if is_ours else [])
    module.connection.marks = [("events", mark, is_table), ("events2", MARK, True)]
    module.connection.asked.clear()
    if is_ours:
        assert module.claim_tables() == ["events2", "events"]
        return
    with pytest.raises(SimulatorError, match=r"needs the names events, but.*another database, or"):
        module.prepare()
    assert not any(text.startswith(("DROP", "CREATE")) for text in module.connection.asked)


def test_columns_of_a_table_that_is_not_there_are_none() -> None:
    module = Plain(Options(), Job(Temperature.schema))
    assert module.read_columns("gone") == {}
    assert module.read_columns("it's") == {"3": "text"}
    assert module.connection.asked[-1] == "list 'it''s' of '' or \"it's\""


# --- requests in doubt ----------------------------------------------------------------------------


class Settling(SettlingWriter[Statements]):
    """Its server stores the first event of each request whose answer gets lost."""

    LOOKUPS_APART_S: ClassVar[float | None] = 0.0
    lost = 1
    looked = 0

    def send_request(self, request: Rows, payload: Request) -> None:
        if self.lost:
            self.lost -= 1
            request.doubt()
            raise Retryable("connection_lost", "nobody")
        self.connection.asked.append(str(len(request.values)))

    def find(self, request: Rows, wanted: Wanted) -> Collection[tuple[Any, ...]]:
        self.looked += 1
        block = Temperature().block(0, 0, 3)
        return [tuple(block.key_of(0).values())]


def test_what_is_stored_of_a_request_in_doubt_is_not_sent_again() -> None:
    module = Plain(Options(), Job(Temperature.schema, Load(batch=3)))
    writer = module.writer()
    assert isinstance(writer, Settling)
    writer.open()
    [payload] = writer.encoder.encode(Temperature().block(0, 0, 3))
    with pytest.raises(Retryable):
        writer.send(payload)
    assert writer.send(payload) == 3
    # Two look-ups agreed.
    assert (writer.looked, writer.connection.asked) == (2, ["2"])
    assert writer.has_stored
    writer.close()
