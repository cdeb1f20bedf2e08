"""Questions to Azure Data Explorer without a server: requests made from templates, frames whose rows are
counted, broken answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from simulator.contract import StoredPart
from simulator.errors import Retryable, SimulatorError
from simulator.modules.azure_data_explorer import AdxOptions, AzureDataExplorer
from simulator.modules.azure_data_explorer.queries import Compiled
from simulator.modules.azure_data_explorer.server import AdxAsker
from simulator.modules.base import Job
from simulator.modules.options import parse_options
from simulator.testing.events import Sundry
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.drawing import Stored, draw_block
from simulator.workloads.schema import Schema
from simulator.workloads.temperature import Temperature

from .test_http import Scripted, answers

WORKLOADS = [
    Temperature(device_spread=9),
    Sundry(),
    load_workload("machines")(device_spread=9, tags="table"),
]


def make_module(schema: Schema, uri: str = "http://localhost:1") -> AzureDataExplorer:
    values = {"kusto_uri": uri, "kusto_db": "it\\'s", "query_timeout_s": "90"}
    return AzureDataExplorer(parse_options(AdxOptions, values, str), Job(schema))


@pytest.mark.parametrize("workload", WORKLOADS, ids=["temperature", "sundry", "machines"])
def test_requests_ask_what_is_compiled(workload: Workload) -> None:
    """Each execution is asked for as if it were compiled alone."""
    module = make_module(workload.schema)
    asker = AdxAsker(module, 1)
    stored = Stored(workload, [StoredPart(0, 0, 1000)])
    names: set[str] = set()
    count = 0
    for query in workload.schema.descriptions:
        if not query.is_drawn:
            continue
        bounds = draw_block(query, stored, 3, 5, 20)
        for question, bound in zip(asker.encode(bounds), bounds, strict=True):
            compiled = module.compile(bound)
            body = json.loads(question.request.body)
            assert (body["db"], body["csl"]) == ("it\\'s", compiled.text)
            options = json.loads(body["properties"])["Options"]
            assert options == {"notruncation": True, "servertimeout": "0:01:30"}
            assert len(question.reads) == len(compiled.reads)
            assert question.request.headers is not None
            names.add(question.request.headers["x-ms-client-request-id"])
            count += 1
    assert len(names) == count > 60


# --- answers --------------------------------------------------------------------------------------

BEGIN = (
    b'[{"FrameType":"DataSetHeader","IsProgressive":false,"Version":"v2.0"},'
    b'{"FrameType":"DataTable","TableId":0,"TableKind":"QueryProperties","TableName":"p","Columns":[],'
    b'"Rows":[[1,"Visualization","{\\"Rows\\":[[null]]}"]]},'
    b'{"FrameType":"DataTable","TableId":1,"TableKind":"PrimaryResult","TableName":"PrimaryResult",'
    b'"Columns":[{"ColumnName":"v0","ColumnType":"string"}],"Rows":['
)
END = (
    b']},{"FrameType":"DataTable","TableId":2,"TableKind":"QueryCompletionInformation","Columns":[],'
    b'"Rows":[["x",4,"Info"],["y",6,"Stats"]]},'
    b'{"FrameType":"DataSetCompletion","HasErrors":false,"Cancelled":false}]'
)


def make_error(permanent: bool) -> bytes:
    error = {
        "code": "LimitsExceeded",
        "message": "no",
        "@message": "too much",
        "@permanent": permanent,
    }
    return json.dumps({"OneApiErrors": [{"error": error}]}).encode()


def answer_of(body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\n\r\n%b" % (more, len(body), body)


@contextmanager
def asking(*bodies: bytes) -> Iterator[AdxAsker]:
    """An open asker of a server that answers with these bodies."""
    tables = answer_of(
        b'{"Tables":[{"TableName":"t","Columns":[],"Rows":[]}]}', b"connection: close\r\n"
    )
    reached = answer_of(b"{}")
    # The client's connection, and ours.
    scripts = (answers(tables), answers(reached, *map(answer_of, bodies)))
    with closing(Scripted(*scripts)) as server:
        module = make_module(Temperature.schema, f"http://{server.address}")
        with closing(AdxAsker(module, 1)) as asker:
            asker.open()
            yield asker


COMPILED = Compiled("T", [lambda value: value, lambda value: value])

WHOLE: list[tuple[bytes, list[tuple[Any, ...]]]] = [
    (b"", []),
    (b'["a",1],["],[",2],["[[",null]', [("a", 1), ("],[", 2), ("[[", None)]),
    (b'["\\"],[\\"",1], ["\\\\",2]', [('"],["', 1), ("\\", 2)]),
]


@pytest.mark.parametrize(("rows", "found"), WHOLE)
def test_rows_are_counted_whatever_texts_look_like(
    rows: bytes, found: list[tuple[Any, ...]]
) -> None:
    body = BEGIN + rows + END
    with asking(body) as asker:
        received = asker.ask(asker.encode_statement(COMPILED))
        assert received[:2] == (len(found), len(body))
        assert asker.decode(received) == found


BROKEN: list[tuple[bytes, type[Exception], str]] = [
    # In the middle of the rows, and at the end.
    (BEGIN + b'["a",1],' + make_error(True) + END, SimulatorError, "LimitsExceeded: too much"),
    (BEGIN + b'["a",1],' + make_error(False) + END, Retryable, "LimitsExceeded: too much"),
    (
        (BEGIN + END).replace(
            b'"HasErrors":false,"Cancelled":false}',
            b'"HasErrors":true,"Cancelled":false,' + make_error(True)[1:],
        ),
        SimulatorError,
        "LimitsExceeded: too much",
    ),
    (
        (BEGIN + END).replace(b'"HasErrors":false', b'"HasErrors":true'),
        SimulatorError,
        "unreadable or incomplete answer",
    ),
    ((BEGIN + END)[:-1], SimulatorError, "incomplete answer"),
    (BEGIN + b'["a",1]', SimulatorError, "incomplete answer"),
    (
        b'[{"FrameType":"DataSetCompletion","HasErrors":false}]',
        SimulatorError,
        "unreadable or incomplete answer",
    ),
    (b"<html>", SimulatorError, "incomplete answer"),
]


@pytest.mark.parametrize(("body", "kind", "said"), BROKEN)
def test_an_answer_that_is_no_success_ends_its_own_question(
    body: bytes, kind: type[Exception], said: str
) -> None:
    with asking(body, BEGIN + b'["a",1]' + END) as asker:
        question = asker.encode_statement(COMPILED)
        with pytest.raises(kind, match=said) as refused:
            asker.ask(question)
        assert "\n" not in str(refused.value)
        # And no other.
        assert asker.decode(asker.ask(question)) == [("a", 1)]
