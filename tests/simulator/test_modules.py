"""Finding modules, and the one that discards."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from pkgutil import resolve_name
from typing import Any

import pytest
from pydantic import Field

from simulator import modules
from simulator.contract import (
    CommaList,
    Load,
    PrimaryKey,
    Role,
    RunSettings,
    Tables,
    make_groups,
    share,
)
from simulator.errors import OptionError
from simulator.modules import build, list_ignored_keys, load_module, load_whole_module, module_names
from simulator.modules.base import AnyModule, Job, Module, Support, await_count, require
from simulator.modules.blackhole import Blackhole, BlackholeOptions
from simulator.modules.options import Options, parse_options, parse_payload_options
from simulator.modules.postgres import Postgres
from simulator.testing.events import insert_with, most_at_once
from simulator.workloads.cpu import Cpu
from simulator.workloads.defined import define
from simulator.workloads.schema import Column, ColumnType
from simulator.workloads.temperature import Temperature
from simulator.workloads.yaml_source import parse_definition

from ..helpers import begin_definition, settings

JOB = Job(Temperature.schema, Load(batch=10))


# --- counting -------------------------------------------------------------------------------------


def counted(answers: list[int | None], expected: int, settle_s: float) -> int | None:
    """`await_count` of a database that gives these answers, and then always the last."""

    def count() -> int | None:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    return await_count(count, expected, settle_s)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.modules.base._COUNT_INTERVAL_S", 0.001)


@pytest.mark.usefixtures("quick")
def test_a_count_is_awaited_while_it_grows() -> None:
    assert counted([0, 0, 5, 9, 10, 11], 10, 30) == 10


@pytest.mark.usefixtures("quick")
def test_a_count_that_stands_still_is_believed() -> None:
    assert counted([0, 7], 10, 0.05) == 7


@pytest.mark.parametrize("found", [10, 12, None])
def test_a_count_that_needs_no_waiting(found: int | None) -> None:
    began = time.monotonic()
    assert counted([found, 99], 10, 600) == found
    assert time.monotonic() - began < 60


def test_a_database_that_counts_what_it_acknowledged_is_asked_once() -> None:
    assert counted([7, 10], 10, 0) == 7


# --- registry -------------------------------------------------------------------------------------


def test_every_module_can_be_loaded_by_its_name() -> None:
    assert {"postgres", "blackhole", "elasticsearch"} <= set(module_names())
    for name in module_names():
        assert load_module(name).name == name


@pytest.mark.parametrize("name", module_names())
def test_writers_and_askers_are_where_their_module_says(name: str) -> None:
    """Those of official clients are imported by runs alone, and most need a server."""
    clients = load_module(name).CLIENTS.values()
    for path in filter(
        None, [path for client in clients for path in (client.writer, client.asker)]
    ):
        assert callable(resolve_name(path))


def test_an_unknown_module_names_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(OptionError) as refused:
        load_module("postgress")
    assert str(refused.value).startswith("there is no module 'postgress' in this version")
    assert str(refused.value).endswith("; did you mean postgres?")
    assert "blackhole" in str(refused.value)


def test_drivers_are_imported_by_whoever_connects_alone() -> None:
    code = (
        "import sys\n"
        "from simulator.modules import load_module, module_names\n"
        "late = {one for name in module_names() for one in load_module(name).IMPORTED_LATE}\n"
        "print(*late, '/', *late & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    late, early = result.stdout.split("/")
    assert {"elasticsearch", "influxdb_client", "cassandra.cluster"} <= set(late.split())
    assert early.split() == []


def test_what_is_imported_late_is_imported_before_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "xml.dom.expatbuilder"
    monkeypatch.setattr(Blackhole, "IMPORTED_LATE", (late,))
    monkeypatch.delitem(sys.modules, late, raising=False)
    assert load_whole_module("blackhole") is Blackhole
    assert late in sys.modules


def test_who_takes_part_in_a_run_imports_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "xml.dom.expatbuilder"
    monkeypatch.setattr(Blackhole, "IMPORTED_LATE", (late,))
    monkeypatch.delitem(sys.modules, late, raising=False)
    build(settings())
    assert late in sys.modules


def test_a_module_whose_driver_is_absent_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Blackhole, "IMPORTED_LATE", ("no_such_driver",))
    with pytest.raises(ModuleNotFoundError) as missing:
        load_module("blackhole")
    assert missing.value.name == "no_such_driver"


def test_another_package_can_add_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "simulator.modules.blackhole:Blackhole", modules.ENTRY_POINTS)

    def entry_points(group: str, name: str | None = None) -> EntryPoints:
        assert group == "iot_database_benchmark.modules"
        return EntryPoints([point] if name in (None, "theirs") else [])

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    assert "theirs" in module_names()
    assert load_module("theirs") is Blackhole
    with pytest.raises(OptionError, match="theirs"):
        load_module("their")


@pytest.mark.parametrize(
    ("support", "text"),
    [
        (Support.UNSUPPORTED, "module m: the database has no such thing"),
        (Support.MISSING, "module m can't do such thing yet"),
        (None, "module m can't do such thing yet"),
    ],
)
def test_what_is_not_there_is_told_apart(support: Support | None, text: str) -> None:
    require(Support.FULL, "such thing", "m")
    with pytest.raises(OptionError) as refused:
        require(support, "such thing", "m")
    assert str(refused.value) == text


@pytest.mark.parametrize("name", module_names())
def test_capabilities_speak_of_everything(name: str) -> None:
    can = load_module(name).CAPABILITIES
    assert set(can.primary_keys) == set(PrimaryKey)
    assert {*can.column_types, *can.tag_types} == set(ColumnType)
    assert not set(can.column_types) & set(can.tag_types)
    assert can.missing_values


@pytest.mark.parametrize(
    ("column", "missing_values", "support"),
    [
        (Column("x", ColumnType.FLOAT64), True, Support.MISSING),
        (Column("x", ColumnType.FLOAT32), False, Support.FULL),
        (Column("x", ColumnType.FLOAT32, nullable=True), False, Support.MISSING),
        (Column("x", ColumnType.FLOAT32, nullable=True), True, Support.FULL),
    ],
)
def test_a_workload_depends_on_types_and_on_missing_values(
    column: Column, missing_values: bool, support: Support
) -> None:
    can = replace(
        Postgres.CAPABILITIES,
        column_types=set(ColumnType) - {ColumnType.FLOAT64},
        missing_values=missing_values,
    )
    schema = replace(Temperature.schema, columns=(*Temperature.schema.columns, column))
    assert can.workload(schema) is support


def test_all_that_a_database_cannot_store_is_told_by_its_name_in_the_file() -> None:
    odd = [
        Column(name, ColumnType.FLOAT64, not_finite=count, source=source)
        for name, source, count in (("oil_temp", "Oil Temp", 3), ("level", "level", 1200))
    ]
    schema = replace(Cpu.schema, columns=(*Cpu.schema.columns, *odd), repeated_instants=2)
    for name in ("postgres", "clickhouse"):
        load_module(name).CAPABILITIES.require_workload(schema, "mine", name)
    with pytest.raises(OptionError) as refused:
        load_module("influxdb").CAPABILITIES.require_workload(schema, "mine", "influxdb")
    first, *others = refused.value.problems
    assert first.endswith(
        "it has 2 events of a device and time that it had before, of which the database keeps one: set"
        " recorded.duplicates to drop"
    )
    assert others == [
        f"module influxdb can't do workload mine: it has {count} NaN or infinite numbers in {name}, which the"
        f" database can't store: set recorded.columns.{source} to `missing: [NaN, inf, -inf]`, or skip it"
        for count, name, source in (("3", "oil_temp", "Oil Temp"), ("1,200", "level", "level"))
    ]


EMPTY = (
    begin_definition("mine", "thing")
    + """\
  - {name: level, type: int32, signal: {kind: uniform, low: 0, high: 9}}
  - {name: note, type: text, missing: 1%, signal: {kind: choice, values: [open, ""]}}
"""
)


def test_an_empty_text_beside_a_missing_one_is_refused_where_they_are_the_same() -> None:
    """Answers about them couldn't be told right from wrong."""
    never_missing, never_empty = EMPTY.replace("missing: 1%, ", ""), EMPTY.replace('""', "shut")
    schema, *unambiguous = (
        define(parse_definition(text, "mine.yaml"))().schema
        for text in (EMPTY, never_missing, never_empty)
    )
    refusing = {"influxdb", "azure_data_explorer"}
    for name in module_names():
        can = load_module(name).CAPABILITIES
        if ColumnType.TEXT in can.tag_types:
            continue
        for accepted in unambiguous if name in refusing else (schema, *unambiguous):
            can.require_workload(accepted, "mine", name)
    for name in refusing:
        with pytest.raises(OptionError) as refused:
            load_module(name).CAPABILITIES.require_workload(schema, "mine", name)
        assert str(refused.value) == (
            f"module {name} can't do workload mine: it has both empty and missing texts in note,"
            " which the database can't distinguish: use another value for one of them"
        )


def test_blackhole_takes_what_the_encoders_module_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    without_texts = replace(Postgres.CAPABILITIES, column_types=set(ColumnType) - {ColumnType.TEXT})
    monkeypatch.setattr(Postgres, "CAPABILITIES", without_texts)
    with pytest.raises(OptionError, match="module postgres can't do events with columns of"):
        blackhole(encoder="postgres")


# --- options --------------------------------------------------------------------------------------


class Listing(Options):
    """Options with a list."""

    names: CommaList = Field(default_factory=list)


@pytest.mark.parametrize(
    ("given", "names"),
    [("a, b", ["a", "b"]), ("a", ["a"]), ("", []), (" ,a,, ", ["a"]), (["a,b"], ["a,b"])],
)
def test_lists_can_be_written_with_commas(given: object, names: list[str]) -> None:
    assert parse_options(Listing, {"names": given}, str).names == names


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"device_spread": 0}, "option device_spread: input should be greater than or equal to 1"),
        ({"device_spread": 10**7}, "option device_spread: input should be less than or equal to"),
        ({"max_retries": -1}, "option max_retries: input should be greater than or equal to 0"),
        ({"extra_tags": "x"}, "option extra_tags: input should be a valid integer"),
    ],
)
def test_limits(values: dict[str, object], text: str) -> None:
    model = Options if "max_retries" in values else Cpu.options_model
    with pytest.raises(OptionError, match=text):
        parse_options(model, values, str)


def test_options_from_a_command_line_are_texts() -> None:
    assert parse_options(Options, {"max_retries": "0"}, str).max_retries == 0
    assert parse_options(Temperature.options_model, {"device_spread": "7"}, str).device_spread == 7


# --- blackhole ------------------------------------------------------------------------------------


def blackhole(job: Job = JOB, **values: Any) -> Blackhole:
    return Blackhole(parse_options(BlackholeOptions, values, str), job)


@pytest.mark.parametrize("mode", ["copy", "values_lists", "transaction"])
@pytest.mark.parametrize("key", PrimaryKey)
@pytest.mark.parametrize("tables", Tables)
def test_it_builds_the_other_modules_payloads(mode: str, key: PrimaryKey, tables: Tables) -> None:
    job = Job(Cpu.schema, Load(batch=10, primary_key=key, tables=tables))
    own = blackhole(job, insert_mode=mode).writer().encoder
    options = parse_payload_options(Postgres.options_model, {"insert_mode": mode})
    original = Postgres.encoder(options, job)
    block = Cpu(device_spread=3).block(0, 0, 25)
    payloads = [(payload.data, payload.events) for payload in own.encode(block)]
    assert payloads == [(payload.data, payload.events) for payload in original.encode(block)]


def test_it_takes_all_and_stores_nothing() -> None:
    module: AnyModule = blackhole()
    recorder = insert_with(module, Temperature(), 105)
    assert recorder.events == 105
    assert module.count() is None
    with pytest.raises(OptionError, match="stores nothing to query"):
        module.prepare_queries()
    with pytest.raises(OptionError, match="no queries"):
        module.queries()
    with module.lock():
        module.prepare()


def test_it_can_take_its_time_and_several_requests_at_once() -> None:
    """A database of known speed, by which the measurement is checked."""
    began = time.perf_counter()
    recorder = insert_with(blackhole(delay_ms="10", max_in_flight="4"), Temperature(), 160)
    took = time.perf_counter() - began
    assert recorder.events == 160
    # 16 requests of 10 ms, four at a time.
    assert took >= 4 * 0.0099
    assert 1 < most_at_once(recorder) <= 4
    assert all(answered - sent >= 0.0099 for sent, answered in recorder.spans)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"encoder": "postgress"}, "there is no module 'postgress'"),
        ({"insert_mod": "copy"}, r"unknown option 'insert_mod'; did you mean insert_mode\?"),
        ({"dellay_ms": 5}, r"unknown option 'dellay_ms'; did you mean delay_ms\?"),
        ({"insert_mode": "hush-hush"}, "option insert_mode: "),
        ({"insert_mode": "single"}, "leave --batch out"),
        # It doesn't matter here where the database is.
        ({"connection_string": "hush-hush"}, "unknown option 'connection_string'"),
    ],
)
def test_options_that_do_not_fit_the_encoder(values: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text) as refused:
        blackhole(**values)
    assert "hush-hush" not in str(refused.value)


# --- shares of a prefill --------------------------------------------------------------------------


@pytest.mark.parametrize(("total", "workers"), [(0, 3), (1, 3), (10, 3), (12, 3), (10, 1)])
def test_shares_add_up_and_differ_by_one_at_most(total: int, workers: int) -> None:
    shares = [share(total, workers, worker) for worker in range(workers)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


def test_modules_are_modules() -> None:
    with pytest.raises(TypeError):
        Module(Options(), JOB)  # type: ignore[abstract]


def test_keys_of_a_secret_that_are_no_options_are_ignored_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A Secret for a client has certificates and user names, too."""
    secret = {"max_retries": "3", "ca.crt": "PEM", "username": "me"}
    groups = make_groups(Load())
    run_settings = RunSettings(
        run_id="1", token="t", target="x", module="postgres", groups=groups, secret=secret,
        options={"connection_string": "host=db", "max_retries": 1},
    )  # fmt: skip
    _, module = build(run_settings)
    assert module.options.max_retries == 3
    assert "of the Secret that are not options: ca.crt, username" in caplog.text
    assert list_ignored_keys(run_settings, type(module.options)) == ["ca.crt", "username"]
    with pytest.raises(
        OptionError, match=r"connection_string is missing.*not options: ca\.crt, us"
    ):
        build(run_settings.model_copy(update={"options": {}}))


def test_an_option_for_inserts_in_flight_says_nothing_of_questions() -> None:
    """Readers have what their load says, whatever the target's option."""
    kind = load_module("cassandra")
    options = parse_options(
        kind.options_model, {"contact_points": "none", "max_sync_calls": "120"}, str
    )
    for in_flight, expected in ((None, 1), (1, 1), (8, 8)):
        load = Load(role=Role.READ, in_flight=in_flight)
        assert options.in_flight(load) == expected
        kind(options, Job(Temperature.schema, load))
    assert options.in_flight(Load()) == 120
