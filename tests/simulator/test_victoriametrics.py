"""VictoriaMetrics without a server: lines, questions, flags, and what can't be stored."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from simulator.contract import Load, Tables
from simulator.errors import OptionError, SimulatorError
from simulator.modules.base import Job, Support
from simulator.modules.options import parse_options
from simulator.modules.sending import Request
from simulator.modules.victoriametrics import Victoriametrics
from simulator.modules.victoriametrics.encoding import (
    ChoosingEncoder,
    CsvEncoder,
    ImportEncoder,
    SeriesEncoder,
    Span,
)
from simulator.modules.victoriametrics.forms import Form, any_of, quote_label, select_series
from simulator.modules.victoriametrics.queries import compile_query
from simulator.modules.victoriametrics.server import (
    find_span,
    parse_metrics,
    removes_duplicates,
)
from simulator.testing.events import make_schema
from simulator.workloads import load_workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import Query
from simulator.workloads.schema import Column, ColumnType, EventBlock
from simulator.workloads.temperature import Temperature

SCHEMA = make_schema(
    "things",
    Column("kind", ColumnType.TEXT, tag=True),
    Column("weight", ColumnType.FLOAT64, tag=True),
    Column("heat", ColumnType.FLOAT32, nullable=True),
    Column("open", ColumnType.BOOL),
    Column("big", ColumnType.INT64, nullable=True),
    Column("exact", ColumnType.FLOAT64, decimals=3),
    device="thing",
)
BLOCK = EventBlock(
    SCHEMA, 0, 5,
    {
        "at": np.array([1, 2, 3]),
        "thing": np.array([b"a", b"b, \"c\"", b"a"]),
        "kind": np.array([b"x,y", b"", b"x,y"]),
        "weight": np.array([1500.5, 2.0, 1500.5]),
        "heat": np.array([0.5, 9, -2.5], np.float32),
        "open": np.array([True, False, True]),
        "big": np.array([2**53, -(2**53), 7]),
        "exact": np.array([0.125, 1e5, -2]),
    },
    np.array([b"a", b"b, \"c\"", b"a"]),
    {"heat": np.array([False, True, False]), "big": np.array([False, False, True])},
)  # fmt: skip


def encode(
    block: EventBlock = BLOCK, batch: int = 3, db: str | None = None, **load: Any
) -> list[Request]:
    encoder = CsvEncoder(Job(block.schema, Load(batch=batch, **load)), False, db)
    return encoder.encode(block)


def format_of(payload: Request) -> list[str]:
    """What each field of a line is said to be, in order."""
    [text] = parse_qs(urlsplit(payload.data[0].target).query)["format"]
    fields = [field.split(":", 1) for field in text.split(",")]
    assert [int(place) for place, _ in fields] == list(range(1, len(fields) + 1))
    return [meaning for _, meaning in fields]


def test_a_line_has_labels_time_and_numbers() -> None:
    [payload] = encode()
    assert format_of(payload) == [
        "label:thing", "label:kind", "label:weight", "time:unix_ms",
        "metric:things:open", "metric:things:exact", "metric:things:heat", "metric:things:big",
    ]  # fmt: skip
    assert payload.data[0].body.decode().split("\n") == [
        'a,"x,y",1500.5,1,1,0.125,0.5,9007199254740992',
        '"b, ""c""",,2,2,0,100000.000,,-9007199254740992',
        'a,"x,y",1500.5,3,1,-2.000,-2.5,',
    ]


def test_with_several_tables_a_line_has_fields_for_all() -> None:
    """The block's first event is the worker's fifth, so the second table's."""
    schema = replace(
        SCHEMA,
        columns=tuple(
            column for column in SCHEMA.columns if column.name in ("at", "thing", "open")
        ),
    )
    block = EventBlock(schema, 0, 5, BLOCK.columns, BLOCK.devices)
    [payload] = encode(block, tables=Tables.MULTIPLE)
    assert format_of(payload)[2:] == [f"metric:things{number}:open" for number in range(4)]
    assert payload.data[0].body.decode().split("\n") == [
        "a,1,,1,,", '"b, ""c""",2,,,0,', "a,3,,,,1",
    ]  # fmt: skip


def test_many_lines_are_those_of_few() -> None:
    """Numpy formats from some hundred rows on, Python fewer."""
    block = Temperature(seed=3, device_spread=7).block(0, 11, 1000)
    [whole] = encode(block, batch=1000, tables=Tables.MULTIPLE)
    parts = encode(block, batch=10, tables=Tables.MULTIPLE)
    assert whole.data[0].body == b"\n".join(part.data[0].body for part in parts)


def test_each_key_of_a_document_is_a_label() -> None:
    cpu = Cpu(device_spread=3, extra_tags=1)
    [payload] = encode(cpu.block(0, 0, 3))
    labels = [field for field in format_of(payload) if field.startswith("label:")]
    assert labels == sorted(labels) and "label:hostname" in labels and "label:tag_00" in labels
    line = payload.data[0].body.decode().split("\n")[1].split(",")
    assert line[labels.index("label:hostname")] == "w00000d000001"
    assert len(line) == len(format_of(payload))


def test_a_document_with_other_keys_has_labels_of_its_own() -> None:
    columns = tuple(
        replace(column, type=ColumnType.JSON) if column.name == "thing" else column
        for column in SCHEMA.columns
    )
    schema = replace(SCHEMA, columns=columns, device_path="name")
    documents = np.array([b'{"name":"a"}', b'{"floor":2,"name":"b"}', b'{"name":"c"}'])
    block = EventBlock(schema, 0, 0, {**BLOCK.columns, "thing": documents}, BLOCK.devices)
    [payload] = encode(block)
    assert format_of(payload)[:2] == ["label:floor", "label:name"]
    lines = payload.data[0].body.decode().split("\n")
    assert [line[:3] for line in lines] == [",a,", "2,b", ",c,"]


def test_the_label_db_is_said_once() -> None:
    [payload] = encode(db="a & b")
    assert parse_qs(urlsplit(payload.data[0].target).query)["extra_label"] == ["_db=a & b"]


@pytest.mark.parametrize("compressed", [False, True])
def test_what_is_stored_already_is_cut_out(compressed: bool) -> None:
    encoder = CsvEncoder(Job(SCHEMA, Load(batch=3)), compressed, None)
    [payload] = encoder.encode(BLOCK)
    payload.data[0].cut([1], payload)
    lines = CsvEncoder(Job(SCHEMA), compressed, None).encode(BLOCK)
    assert payload.data[0].body == lines[1].data[0].body


# --- lines of JSON ----------------------------------------------------------------------------------


def read_series(body: bytes) -> dict[str, dict[int, float]]:
    """Name and labels of each series -> its samples."""
    series: dict[str, dict[int, float]] = {}
    for line in body.split(b"\n"):
        document = json.loads(line)
        samples = dict(zip(document["timestamps"], document["values"], strict=True))
        name = json.dumps(document["metric"], sort_keys=True)
        assert len(samples) == len(document["values"]) > 0
        assert not samples.keys() & series.setdefault(name, {}).keys()
        series[name] |= samples
    return series


def read_lines(payload: Request) -> dict[str, dict[int, float]]:
    """The same for a request of CSV whose labels need no quotes."""
    series: dict[str, dict[int, float]] = {}
    meanings = [field.split(":", 1) for field in format_of(payload)]
    for line in payload.data[0].body.decode().split("\n"):
        fields = list(zip(meanings, line.split(","), strict=True))
        labels = {name: text for (kind, name), text in fields if kind == "label"}
        [at] = [int(text) for (kind, _), text in fields if kind == "time"]
        for (kind, name), text in fields:
            if kind == "metric" and text:
                key = json.dumps({"__name__": name, **labels}, sort_keys=True)
                series.setdefault(key, {})[at] = float(text)
    return series


def test_a_series_has_a_line_of_json_with_all_its_samples() -> None:
    [payload] = SeriesEncoder(Job(SCHEMA, Load(batch=3)), False, "a & b").encode(BLOCK)
    assert payload.data[0].target == "/api/v1/import?extra_label=_db=a%20%26%20b"
    first = '{"__name__":"things:%s","thing":"a","kind":"x,y","weight":"1500.5"}'
    second = '{"__name__":"things:%s","thing":"b, \\"c\\"","kind":"","weight":"2"}'
    assert payload.data[0].body.decode().split("\n") == [
        f'{{"metric":{labels % name},"values":[{values}],"timestamps":[{times}]}}'
        for labels, name, values, times in (
            (first, "open", "1,1", "1,3"), (second, "open", "0", "2"),
            (first, "exact", "0.125,-2.000", "1,3"), (second, "exact", "100000.000", "2"),
            (first, "heat", "0.5,-2.5", "1,3"),
            (first, "big", "9007199254740992", "1"), (second, "big", "-9007199254740992", "2"),
        )
    ]  # fmt: skip


@pytest.mark.parametrize("tables", Tables)
@pytest.mark.parametrize("batch", [0, 7, 500])
def test_json_has_the_samples_of_csv(batch: int, tables: Tables) -> None:
    for workload in (
        Temperature(seed=3, device_spread=7),
        Cpu(device_spread=3),
        load_workload("trucks")(),
    ):
        block = workload.block(0, 11, 500)
        job = Job(block.schema, Load(batch=batch, tables=tables))
        series = SeriesEncoder(job, False, None).encode(block)
        lines = CsvEncoder(job, False, None).encode(block)
        for as_json, as_csv in zip(series, lines, strict=True):
            assert (as_json.events, as_json.last) == (as_csv.events, as_csv.last)
            assert read_series(as_json.data[0].body) == read_lines(as_csv)


@pytest.mark.parametrize(
    ("batch", "kind"), [(89, CsvEncoder), (90, SeriesEncoder), (0, CsvEncoder)]
)
def test_json_is_chosen_for_many_events_of_each_device(
    batch: int, kind: type[ImportEncoder]
) -> None:
    """Thirty events of each of three devices, two numbers each. Whichever encoder is chosen checks times."""
    options = parse_options(Victoriametrics.options_model, {"endpoint": "http://vm:8428"}, str)
    job = Job(Temperature.schema, Load(batch=batch))
    block = Temperature(device_spread=3).block(0, 0, 120)
    chosen = Victoriametrics.encoder(options, job)
    bodies = [payload.data[0].body for payload in chosen.encode(block)]
    assert bodies == [payload.data[0].body for payload in kind(job, False, None).encode(block)]
    assert isinstance(chosen, ChoosingEncoder)
    chosen.taken = Span(1, 1)
    with pytest.raises(SimulatorError, match="would drop"):
        chosen.encode(block)


def test_samples_of_a_series_in_two_months_do_not_follow_each_other() -> None:
    """Else the server may take the latter for a deleted series'."""
    new_year_ms = 1_704_067_200_000
    times = np.array([new_year_ms - 1, new_year_ms, new_year_ms + 1])
    columns = {**BLOCK.columns, "at": times, "thing": np.array([b"a", b"a", b"a"])}
    block = EventBlock(SCHEMA, 0, 0, columns, columns["thing"])
    [payload] = SeriesEncoder(Job(SCHEMA, Load(batch=3)), False, None).encode(block)
    documents = [json.loads(line) for line in payload.data[0].body.split(b"\n")]
    names = ["things:open", "things:exact", "things:heat", "things:big"]
    assert [document["metric"]["__name__"] for document in documents] == names * 2
    expected = [[new_year_ms - 1]] * 4 + [[new_year_ms, new_year_ms + 1]] * 4
    assert [document["timestamps"] for document in documents] == expected


@pytest.mark.parametrize("tables", Tables)
def test_series_leave_out_what_is_stored_already(tables: Tables) -> None:
    job = Job(SCHEMA, Load(batch=3, tables=tables))
    encoder = SeriesEncoder(job, True, None)
    [payload] = encoder.encode(BLOCK)
    payload.data[0].keep([1, 2], payload)
    payload.data[0].keep([1], payload)
    assert (payload.data[0].stored, list(payload.data[0].rows)) == (2, [2])
    [_, _, third] = SeriesEncoder(job.change(batch=0), True, None).encode(BLOCK)
    assert gzip.decompress(payload.data[0].body) == gzip.decompress(third.data[0].body)


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        (
            "kind",
            np.array([b"x\ny", b"", b""]),
            "label kind: a line of CSV can't contain a line break",
        ),
        ("big", np.array([2**53 + 1, 0, 0]), r"big is 9007199254740993.* would round"),
        ("big", np.array([-(2**63), 0, 0]), r"big is -9223372036854775808.* would round"),
    ],
)
def test_what_samples_can_not_hold_is_refused(name: str, values: Any, text: str) -> None:
    block = EventBlock(SCHEMA, 0, 0, {**BLOCK.columns, name: values}, BLOCK.devices)
    with pytest.raises(SimulatorError, match=text):
        encode(block)


@pytest.mark.parametrize("kind", [CsvEncoder, SeriesEncoder])
def test_events_of_times_that_would_be_dropped_are_refused(kind: type[ImportEncoder]) -> None:
    day_ms, now_ms = 86_400_000, int(time.time() * 1000)
    encoder = kind(Job(SCHEMA, Load(batch=3)), False, None)
    encoder.taken = Span(30 * day_ms, 2 * day_ms)
    for days, taken in ((-29, True), (-31, False), (1, True), (3, False)):
        times = np.array([now_ms, now_ms + days * day_ms, now_ms])
        block = EventBlock(SCHEMA, 0, 0, {**BLOCK.columns, "at": times}, BLOCK.devices)
        if taken:
            encoder.encode(block)
        else:
            with pytest.raises(SimulatorError, match=r"would drop.*-retentionPeriod"):
                encoder.encode(block)


# --- what can be stored ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (Column("note", ColumnType.TEXT), "a column of type text, note, which the database can't"),
        (Column("note", ColumnType.JSON), "a column of type json, note, which the database can't"),
        (Column("long", ColumnType.FLOAT64), "up to 17 digits in long, but the database keeps only 12"),
    ],
)  # fmt: skip
def test_columns_that_series_have_not_are_unsupported(column: Column, text: str) -> None:
    can = Victoriametrics.CAPABILITIES
    assert can.workload(SCHEMA) is Support.FULL
    schema = replace(SCHEMA, columns=(*SCHEMA.columns, column))
    assert can.workload(schema) is Support.UNSUPPORTED
    with pytest.raises(OptionError, match=text):
        can.require_workload(schema, "things", "victoriametrics")


def test_shipped_workloads() -> None:
    supports = {
        name: Victoriametrics.CAPABILITIES.workload(load_workload(name).schema)
        for name in ("temperature", "cpu", "trucks", "wide", "machines")
    }
    assert supports.pop("machines") is Support.UNSUPPORTED
    assert set(supports.values()) == {Support.FULL}


# --- questions ------------------------------------------------------------------------------------


def describe_form(form: Form) -> tuple[Any, ...]:
    """The times that it asks for, in ms, and a window or a step."""
    fields = form.fields
    if form.step_ms is not None:
        return read_ms(fields["start"]), read_ms(fields["end"]), form.step_ms
    return read_ms(fields["time"]), fields["query"].partition("[")[2].partition("]")[0]


def read_ms(seconds: str) -> int:
    return round(float(seconds) * 1000)


@pytest.mark.parametrize(
    ("start", "end", "asked"),
    [
        # Whole buckets, one cut at either end, and a window within one.
        (1000, 3000, [(1999, 2999, 1000)]),
        (1200, 3000, [(1999, "800ms"), (2999, 2999, 1000)]),
        (1000, 3001, [(1999, 2999, 1000), (3000, "1ms")]),
        (1200, 2300, [(1999, "800ms"), (2299, "300ms")]),
        (1200, 1300, [(1299, "100ms")]),
        (1000, 1300, [(1299, "300ms")]),
        (0, 25_000_000, [(999, 9_999_999, 1000), (10_000_999, 19_999_999, 1000),
                         (20_000_999, 24_999_999, 1000)]),
    ],
)  # fmt: skip
def test_buckets_of_a_window(start: int, end: int, asked: list[Any]) -> None:
    """The samples seen from t in a window w are those in (t - w, t]."""
    query = Query.model_validate(
        {"name": "q", "compute": [{"function": "count"}], "per": [{"every": "1s"}]}
    )
    asking = compile_query(BoundQuery(query, None, start, end), Temperature.schema, None, "events")
    assert list(map(describe_form, asking.forms)) == asked


def test_series_of_others_are_left_alone() -> None:
    selectors = [select_series(Temperature.schema, db, ["t"], ["heat"]) for db in (None, "mine")]
    assert selectors == ['{__name__="t:heat",_db=""}', '{__name__="t:heat",_db="mine"}']


def test_names_and_texts_are_quoted() -> None:
    assert any_of("device", ['no"body\\']) == 'device="no\\"body\\\\"'
    assert any_of("device", ["a.b", "c"]) == 'device=~"a\\\\.b|c"'
    assert quote_label("a-b c") == "a\\-b\\ c"


def metrics(**flags: str) -> str:
    lines = [
        f'flag{{name="{name.replace("_", ".")}", value="{value}", is_set="true"}} 1'
        for name, value in flags.items()
    ]
    return "\n".join([
        "# HELP x y",
        'vm_app_version{version="victoria-metrics-tags-v1.145.0-0-g1", short_version="v1.145.0"} 1',
        'go_info{version="go1.27.1"} 1',
        'vm_data_size_bytes{type="storage/small"} 1.5e+06',
        'vm_data_size_bytes{type="indexdb/file"} 7',
        "vm_active_force_merges 2",
        *lines,
    ])  # fmt: skip


def test_metrics_are_read() -> None:
    parsed = parse_metrics(metrics(retentionPeriod="2d", dedup_minScrapeInterval="1ms"))
    assert (parsed.version, parsed.built_by, parsed.merges) == ("v1.145.0", "go1.27.1", 2)
    assert parsed.sizes == {"storage/small": 1_500_000, "indexdb/file": 7}
    assert find_span(parsed) == Span(2 * 86_400_000, 2 * 86_400_000)
    assert removes_duplicates(parsed)
    for text in ("0s", "1s"):
        assert not removes_duplicates(parse_metrics(metrics(dedup_minScrapeInterval=text)))
    assert find_span(None) is None and not removes_duplicates(None)
    later = parse_metrics(metrics(retentionPeriod="1", futureRetention="5d"))
    assert find_span(later) == Span(31 * 86_400_000, 5 * 86_400_000)


def test_a_condition_on_a_value_is_unsupported() -> None:
    assert Victoriametrics.CAPABILITIES.queries["high-cpu"] is Support.UNSUPPORTED
    options = parse_options(Victoriametrics.options_model, {"endpoint": "http://vm:8428"}, str)
    module = Victoriametrics(options, Job(Temperature.schema, Load(queries=["threshold"])))
    with pytest.raises(
        OptionError, match="the database has no queries with a condition on a value"
    ):
        module.choose_queries()


def test_an_interval_that_drops_events_is_refused() -> None:
    options = parse_options(Victoriametrics.options_model, {"endpoint": "http://vm:8428"}, str)
    module = Victoriametrics(options, Job(Temperature.schema))
    module._check_flags(parse_metrics(metrics(dedup_minScrapeInterval="1ms")))
    with pytest.raises(SimulatorError, match=r"one sample per 30000 ms.*=1ms"):
        module._check_flags(parse_metrics(metrics(dedup_minScrapeInterval="30s")))
