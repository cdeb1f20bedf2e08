"""Questions to InfluxDB and VictoriaMetrics without a server: what is asked, rows that are counted, answers
of status 200 that are none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest

from simulator.contract import Load, Role, StoredPart
from simulator.errors import SimulatorError
from simulator.modules import load_module
from simulator.modules.base import Job
from simulator.modules.influxdb.flux import count_lines, parse_results
from simulator.modules.influxdb.server import InfluxAsker
from simulator.modules.kit.module import MissingTable
from simulator.modules.options import parse_options
from simulator.modules.victoriametrics.forms import (
    Form,
    count_parts,
    count_samples,
    write_form,
    write_line_begin,
)
from simulator.modules.victoriametrics.server import VictoriaMetricsAsker
from simulator.testing.events import Sundry
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.drawing import BoundQuery, Stored, draw_block
from simulator.workloads.queries import Query
from simulator.workloads.schema import Schema
from simulator.workloads.temperature import Temperature

from .bounds import draw_blocks
from .test_http import Script, Scripted, answers
from .test_http_asking import answer_of

OPTIONS: dict[str, dict[str, str]] = {
    "influxdb": {"org": "o", "token": "t"},
    "victoriametrics": {},
}
WORKLOADS = [Temperature(device_spread=9), Sundry(), load_workload("machines")(device_spread=9)]
workloads = pytest.mark.parametrize(
    "workload", WORKLOADS, ids=["temperature", "sundry", "machines"]
)


def make_module(
    name: str, schema: Schema, endpoint: str = "http://nowhere", role: Role = Role.WRITE
) -> Any:
    kind = load_module(name)
    options = parse_options(kind.options_model, {"endpoint": endpoint, **OPTIONS[name]}, str)
    return kind(options, Job(schema, Load(role=role)))


def read_flux(body: bytes) -> str:
    query: str = orjson.loads(body)["query"]
    return query


@workloads
def test_flux_asks_what_is_compiled(workload: Workload) -> None:
    """Of each execution, as if it were compiled alone."""
    module = make_module("influxdb", workload.schema)
    asker = InfluxAsker(module, 1)
    differing = 0
    for bounds in draw_blocks(workload):
        requests = list(asker.encode(bounds))
        bodies = [http.body for _, http in requests]
        assert list(map(read_flux, bodies)) == [module.compile(bound).text for bound in bounds]
        differing += len(set(bodies)) > 1
    assert differing > 3


def describe_form(form: Form) -> tuple[Any, ...]:
    """The traits by which an answer is read."""
    return form.path, form.bucket_ms, form.step_ms


@pytest.mark.parametrize(
    "workload", [Temperature(device_spread=9), load_workload("cpu")(device_spread=9)]
)
def test_forms_ask_what_is_compiled(workload: Workload) -> None:
    """Of each execution, as if it were compiled alone, and its answer is read as that would be."""
    module = make_module("victoriametrics", workload.schema)
    shapes = frozenset(module.CAPABILITIES.shapes)
    asker = VictoriaMetricsAsker(module, 1)
    stored = Stored(workload, [StoredPart(0, 0, 1000)])
    differing = 0
    for query in workload.schema.descriptions:
        if not query.is_drawn or not workload.schema.shapes_of(query) <= shapes:
            continue
        # Devices whose names mean something, alone or as one of several.
        bounds = draw_block(query, stored, 3, 5, 20)
        if bounds.devices is not None:
            names = np.char.add(bounds.devices, 'a.b"|\\ &+%ä'.encode())
            bounds = replace(bounds, devices=names)
        requests = list(asker.encode(bounds))
        for bound, (asked, bodies) in zip(bounds, requests, strict=True):
            question = module.compile(bound)
            assert list(bodies) == [write_form(form) for form in question.forms]
            assert list(map(describe_form, asked.forms)) == list(map(describe_form, question.forms))
        differing += len({tuple(bodies) for _, bodies in requests}) > 1
    assert differing > 3


def test_names_are_quoted_as_flux_wants_it() -> None:
    query = Query.model_validate(
        {"name": "awkward", "events": ["timestamp"], "devices": ['a "b" \\', "${x} 100 % ä"]}
    )
    schema = Temperature.schema
    query = query.model_copy(update={"events": (schema.time,)})
    assert isinstance(query.devices, tuple)
    module = make_module("influxdb", schema)
    statement = module.compile(BoundQuery(query, query.devices))
    assert '"a \\"b\\" \\\\"' in statement.text and '"\\${x} 100 % ä"' in statement.text
    _, http = InfluxAsker(module, 1).encode_statement(statement)
    assert read_flux(http.body) == statement.text


# --- InfluxDB's answers ---------------------------------------------------------------------------

HEAD = b"#datatype,string,long,long,string\r\n,result,table,a,b\r\n"
CSV = (
    HEAD + b',0,0,1,"x,\r\n,0,""\r\n"\r\n,0,0,2,\r\n\r\n' + HEAD + b",1,0,3,y\r\n"
    b"#datatype,string,long,string\r\n,result,table,b\r\n,1,1,z\r\n\r\n"
)
FAILURE = b'#datatype,string,string\r\n,error,reference\r\n,"it can\'t, ""x""",\r\n'


def test_lines_are_counted() -> None:
    assert count_lines(b"\r\n", None) == 0
    for result, count in ((None, 4), ("0", 2), ("1", 2), ("2", 0)):
        assert count_lines(CSV, result) == count
        results = [name for name, _ in parse_results(CSV.decode(), ["a"])]
        assert count == len([name for name in results if result in (None, name)])


@pytest.mark.parametrize("before", [b"", HEAD + b",0,0,1,x\r\n", HEAD + b",0,0,1,x\r\n\r\n\r\n"])
def test_an_error_in_the_middle_of_csv_is_one(before: bytes) -> None:
    with pytest.raises(SimulatorError, match=r"InfluxDB aborted a query: it can't, \"x\""):
        count_lines(before + FAILURE, None)


@pytest.mark.parametrize("size", [0, 20, len(HEAD), len(CSV) - 2, len(CSV) - 30])
def test_csv_that_is_cut_off_is_no_answer(size: int) -> None:
    with pytest.raises(SimulatorError, match="ended an answer early"):
        count_lines(CSV[:size], None)


def test_rows_of_nullable_columns_are_read_to_be_counted() -> None:
    module = make_module("influxdb", Sundry.schema)
    nullable = next(
        column.name for column in Sundry.schema.columns if column.nullable and column.is_number
    )

    def compile_with(*functions: dict[str, str]) -> Any:
        query = Query.model_validate(
            {"name": "q", "compute": list(functions), "per": [Sundry.schema.device]}
        )
        return module.compile(BoundQuery(query))

    alone = compile_with({"function": "max", "column": nullable})
    assert not alone.is_scanned
    assert alone.find_missing([]) is not None
    counted = compile_with({"function": "max", "column": nullable}, {"function": "count"})
    assert counted.is_scanned and counted.counted == "1"


# --- VictoriaMetrics's answers --------------------------------------------------------------------

SPLIT = rb'"],[\"__part__\":\"0\"{\"metric\":'
VECTOR = (
    b'{"status":"success","data":{"resultType":"vector","result":['
    b'{"metric":{"__part__":"0","d":"%s"},"value":[1,"5"]},'
    b'{"metric":{"__part__":"1","d":"z"},"value":[1,"6"]}'
    b']},"stats":{"seriesFetched": "2","executionTimeMsec":0}}' % SPLIT.replace(b'"],', b'\\"],')
)
MATRIX = (
    b'{"status":"success","isPartial":false,"data":{"resultType":"matrix","result":['
    b'{"metric":{"__part__":"0","d":"%s"},"values":[[1,"5"],[2,"6"],[3,"7"]]},'
    b'{"metric":{"__part__":"0","d":"z"},"values":[[1,"5"]]},'
    b'{"metric":{"__part__":"1","d":"z"},"values":[[1,"5"],[2,"6"]]}'
    b"]}}" % SPLIT.replace(b'"],', b'\\"],')
)
LINES = (
    b'{"metric":{"__name__":"t_a","d":"x[1,2]\\n"},"values":[1,2,3],"timestamps":[10,20,30]}\n'
    b'{"metric":{"__name__":"t_b","d":"x"},"values":[1,2],"timestamps":[10,20]}\n'
    b'{"metric":{"__name__":"t_a","d":"y"},"values":[1],"timestamps":[10]}\n'
)


def test_parts_and_samples_are_counted() -> None:
    assert orjson.loads(VECTOR) and orjson.loads(MATRIX)
    assert [count_parts(VECTOR, place) for place in range(3)] == [1, 1, 0]
    assert [count_parts(MATRIX, place) for place in range(3)] == [4, 2, 0]
    begins = [write_line_begin(name) for name in ("t_a", "t_b", "t")]
    assert [count_samples(LINES, begin or b"") for begin in begins] == [4, 2, 0]
    # Its name isn't sure to be written so.
    assert write_line_begin('t_"a') is None


def closes(text: bytes) -> Script:
    """Answers a request with this text, then ends the connection."""

    def script(server: Scripted, stream: Any) -> None:
        if server.reads(stream):
            stream.sendall(text)

    return script


@contextmanager
def asking(*bodies: bytes, role: Role = Role.WRITE) -> Iterator[VictoriaMetricsAsker]:
    """An open asker of a VictoriaMetrics that answers with these bodies and status 200."""
    with closing(Scripted(closes(answer_of(VECTOR)), answers(*map(answer_of, bodies)))) as server:
        module = make_module(
            "victoriametrics", Temperature.schema, f"http://{server.address}", role
        )
        with closing(VictoriaMetricsAsker(module, 1)) as asker:
            asker.open()
            asker.database.close()
            yield asker


COUNTS = BoundQuery(Query.model_validate({"name": "c", "compute": [{"function": "count"}]}))
EVENTS = BoundQuery(Query.model_validate({"name": "e", "events": [Temperature.schema.time]}))


@pytest.mark.parametrize(
    ("bound", "body", "problem"),
    [
        (
            COUNTS,
            b'{"status":"error","errorType":"422","error":"too many"}',
            "aborted a query: .*too many",
        ),
        (COUNTS, MATRIX.replace(b"false", b"true"), r"partial data \(isPartial\)"),
        (COUNTS, VECTOR[:-60], "incomplete answer"),
        (COUNTS, b"", "incomplete answer"),
        (EVENTS, LINES[:-1], "ended an answer early"),
        (EVENTS, LINES + b"cannot read block\n", "ended an answer early.*cannot read block"),
        (EVENTS, LINES + b'{"status":"error","error":"gone"}\n', "ended an answer early.*gone"),
    ],
)
def test_a_200_without_a_whole_answer_is_an_error(
    bound: BoundQuery, body: bytes, problem: str
) -> None:
    with asking(body) as asker, pytest.raises(SimulatorError, match=problem):
        asker.ask(asker.encode_statement(asker.module.compile(bound)))


NOTHING = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
NO_NAMES = b'{"status":"success","data":[]}'


def test_series_that_are_gone_are_an_error_to_readers_alone() -> None:
    with asking(NOTHING) as asker:
        received = asker.ask(asker.encode_statement(asker.module.compile(COUNTS)))
        assert received[:2] == (1, len(NOTHING)) and asker.decode(received) == [(0,)]
    with (
        asking(NOTHING, NO_NAMES, role=Role.READ) as asker,
        pytest.raises(MissingTable, match="has no series of events"),
    ):
        asker.ask(asker.encode_statement(asker.module.compile(COUNTS)))


# --- VictoriaMetrics's forms ----------------------------------------------------------------------


def bind_machines(name: str) -> tuple[Any, BoundQuery]:
    """A module for `machines`, and one of its queries."""
    workload = load_workload("machines")(device_spread=9)
    module = make_module("victoriametrics", workload.schema)
    [query] = [query for query in workload.schema.descriptions if query.name == name]
    return module, draw_block(query, Stored(workload, [StoredPart(0, 0, 1000)]), 0, 0, 1)[0]


@pytest.mark.parametrize(
    ("name", "is_of_series"),
    [("aggregate", True), ("top-devices", True), ("downsample", True), ("fleet-downsample", False)],
)
def test_a_devices_average_reads_its_samples_once(name: str, is_of_series: bool) -> None:
    """Those of several devices together are no average of averages."""
    module, bound = bind_machines(name)
    texts = [form.fields["query"] for form in module.compile(bound).forms]
    assert texts
    for text in texts:
        assert ("avg_over_time" in text) is is_of_series
        assert ("sum_over_time" in text) is not is_of_series


def test_fields_of_a_devices_newest_event_come_together() -> None:
    module, bound = bind_machines("last-value")
    assert bound.devices is not None
    question = module.compile(bound)
    [form] = question.forms
    assert form.fields["query"].count("last_over_time") == 3
    samples = [
        ("power", 0, 7.5), ("temperature", 1, 60), ("pressure", 1, 2), ("pieces", 1, 3), ("errors", 1, 0),
        ("power", 2, 90.0), ("temperature", 2, 80.0), ("pressure", 2, 90.0),
    ]  # fmt: skip
    body = orjson.dumps(
        {
            "status": "success",
            "data": {
                "resultType": "vector",
                "result": [
                    {
                        "metric": {
                            "__name__": f"machines:{field}",
                            "__part__": str(part),
                            "machine": bound.devices[0],
                        },
                        "value": [100, str(value)],
                    }
                    for field, part, value in samples
                ],
            },
        }
    )
    assert question.count([form], [body]) == 1
    # Of the temperature, the last value is an older event's; of the vibration there is none.
    assert question.read([form], [body]) == [(bound.devices[0], 90_000, None, 2.0, None, 7.5, 3, 0)]
