"""Options and target -> the runs to make."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from cli.plan.fields import find_options
from cli.plan.planning import (
    LONGEST_SERIES,
    PlannedRun,
    check_capabilities,
    check_query,
    merge_options,
    plan_inserts,
    split_options,
)
from cli.plan.request import Request
from cli.plan.requests import REQUESTS, InsertRequest
from cli.plan.target import ExecutorName, Target
from cli.run.experiments.context import make_settings
from cli.system.errors import ConfigError
from simulator.contract import DataSet, Load, PrimaryKey, Tables, Timestamps
from simulator.errors import OptionError
from simulator.modules import load_module
from simulator.modules.base import AnyModule, Capabilities, Support
from simulator.modules.blackhole import Blackhole, BlackholeOptions
from simulator.modules.options import Options, parse_options
from simulator.modules.postgres import Postgres
from simulator.modules.postgres.encoding import PostgresOptions
from simulator.workloads.cpu import Cpu
from simulator.workloads.queries import Shape
from simulator.workloads.schema import ColumnType
from simulator.workloads.temperature import Temperature

TARGET = Target("x", "postgres", ExecutorName.LOCAL, {"user": "me", "device_spread": 1})
POSTGRES = parse_options(PostgresOptions, {"connection_string": "host=x"}, str)


CANT_MAP = (
    "module limited can't do workload cpu: it has a column of type json, tags, which the module"
    " doesn't map"
)


@pytest.mark.parametrize("kind", REQUESTS.values(), ids=REQUESTS)
def test_a_request_has_the_options_of_all_that_it_inherits(kind: type[Request]) -> None:
    """Where two of its classes have a field, the first one's counts, and may be no option."""
    inherited = {
        name for base in kind.__mro__ if issubclass(base, Request) for name in find_options(base)
    }
    assert inherited == find_options(kind).keys()


def planned(workers: int, run: int, which: str, clean: bool = True) -> PlannedRun:
    label = f"{workers} worker{'' if workers == 1 else 's'}, {which}"
    return PlannedRun(label, run, DataSet(clean=clean), (Load(workers=workers),))


def list_runs(sweep: InsertRequest) -> list[PlannedRun]:
    return [run for series in plan_inserts(sweep) for run in series.runs]


def check(sweep: InsertRequest, module: type[AnyModule], settings: Options | None) -> None:
    most = sweep.load.model_copy(update={"workers": max(sweep.workers)})
    check_capabilities(sweep, module, settings, most)


def sweep_of(**changes: Any) -> InsertRequest:
    """`given`: the options that stand on the command line at their defaults."""
    fields = InsertRequest.model_fields
    own = {"workers": (2,)} | {name: fields[name].default for name in changes.pop("given", ())}
    own |= {name: changes.pop(name) for name in list(changes) if name in fields}
    request = InsertRequest(target="x", **own)
    return request.with_work(request.load, request.data.model_copy(update=changes))


# --- which runs -----------------------------------------------------------------------------------


def test_a_sweep_makes_all_runs_of_each_worker_count() -> None:
    assert list_runs(sweep_of(workers=(1, 4), runs=2)) == [
        planned(workers, run, f"run {run} of 2") for workers in (1, 4) for run in (1, 2)
    ]


def test_series_have_one_worker_count_and_are_not_too_long_for_a_secret() -> None:
    plan = plan_inserts(sweep_of(workers=(1, 16), runs=LONGEST_SERIES + 1))
    series = {run_series.name: run_series.runs for run_series in plan}
    assert list(series) == ["workers-01", "workers-01-part-2", "workers-16", "workers-16-part-2"]
    assert [len(runs) for runs in series.values()] == [LONGEST_SERIES, 1] * 2
    assert [run.run for run in series["workers-01-part-2"]] == [LONGEST_SERIES + 1]
    longest = [
        make_settings("x", "postgres", {"x": "y" * 1000}, run.data, run.load)
        for run in series["workers-01"]
    ]
    assert sum(len(settings.model_dump_json()) for settings in longest) < 2**20 / 2


def test_without_cleaning_each_run_goes_on_behind_the_last() -> None:
    """The first finds what is there; for the others, the run before says where it ended."""
    plan = list_runs(sweep_of(workers=(1, 4), runs=2, clean=False))
    assert [run.data.clean for run in plan] == [False] * 4


def test_steps_clean_once_and_go_on() -> None:
    assert list_runs(sweep_of(workers=(16,), runs=1, steps=3)) == [
        replace(planned(16, step, f"step {step} of 3", clean=step == 1), is_level=True)
        for step in (1, 2, 3)
    ]


def test_steps_on_existing_data_never_clean() -> None:
    plan = list_runs(sweep_of(workers=(16,), runs=1, steps=2, clean=False))
    assert [run.data.clean for run in plan] == [False, False]


def test_devices_in_all_are_shared_out_over_the_workers() -> None:
    """A run that goes on with the events of another worker count must share them out as that one did."""

    def shared(**changes: Any) -> list[int]:
        sweep = sweep_of(workers=(1, 4), runs=1, workload="machines", **changes)
        return [run.data.workload_options["sharing_workers"] for run in list_runs(sweep)]

    assert shared() == [1, 4]
    assert shared(clean=False) == [4, 4]
    assert shared(workload_options={"sharing_workers": 3}) == [3, 3]
    assert list_runs(sweep_of(runs=1))[0].data.workload_options == {}


def test_more_workers_than_devices_are_refused_before_the_run() -> None:
    sweep = sweep_of(workers=(2, 8), workload="machines", workload_options={"devices": 5})
    with pytest.raises(ConfigError, match="5 devices in all, too few for 8 workers"):
        check(sweep, Blackhole, None)


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"workers": (1, 4), "runs": 1}, "--workers"),
        ({"runs": 3}, "--runs 1"),
        ({"runs": 1, "prefill": 10}, "--prefill"),
    ],
)
def test_what_does_not_go_with_steps(changes: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValidationError, match=remedy):
        sweep_of(steps=2, **changes)


@pytest.mark.parametrize(
    ("changes", "given", "said"),
    [
        (
            {"duration_s": 60},
            {"duration_s", "events"},
            "--num-inserts and --duration both say when a run ends: give one of them",
        ),
        (
            {"duration_s": 5, "warm_up_s": 5},
            {"duration_s", "warm_up_s"},
            "--warm-up 5s leaves nothing of --duration 5s to measure",
        ),
        ({}, {"arrivals"}, "--arrivals says how the requests of --rate follow each other"),
    ],
)
def test_loads_that_contradict_themselves(
    changes: dict[str, Any], given: set[str], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        sweep_of(given=given, **changes)


def test_with_a_retention_the_clock_is_compressed_as_far_as_it_takes() -> None:
    def plan_factor(**changes: Any) -> int:
        (run,) = list_runs(sweep_of(runs=1, **changes))
        return int(run.data.workload_options["clock_factor"])

    events = {"events": 10_000, "retention_s": 90 * 86_400.0}
    factor = plan_factor(**events)
    assert factor == pytest.approx(2 * 90 * 86_400 / (10_000 * 0.45), rel=0.01)
    # The prefill passes a part of it.
    assert plan_factor(**events, prefill=20_000) == pytest.approx(factor / 2, rel=0.01)
    assert plan_factor(**events, workload_options={"clock_factor": 7}) == 7
    assert plan_factor(events=10_000, retention_s=600.0) == 1
    at_rate = plan_factor(retention_s=90 * 86_400.0, duration_s=10, rate_per_s=2000)
    assert at_rate == pytest.approx(factor, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"duration_s": 10}, "with --retention give --rate"),
        ({"clean": False}, "leave --no-clean and --steps out"),
        ({"steps": 2, "events": 100}, "leave --no-clean and --steps out"),
        ({"prefill_span_s": 600.0, "prefill_every_s": 60.0}, "leave --prefill-span out"),
        ({"events": 100_000}, "would pass --retention 60 s 750 times, and 50 is the most"),
        ({"events": 10, "retention_s": 1e9}, "is too long for 20 events"),
    ],
)
def test_what_does_not_go_with_a_retention(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_inserts(sweep_of(runs=1, **({"retention_s": 60.0} | changes)))


def test_what_is_kept_of_a_load_is_what_it_had_an_effect() -> None:
    closed = sweep_of(events=50).list_options()
    assert (closed["num_inserts"], closed["duration_s"]) == (50, None)
    assert "arrivals" not in closed
    offered = sweep_of(rate_per_s=100, duration_s=60).list_options()
    assert (offered["rate_per_s"], offered["arrivals"], offered["duration_s"]) == (
        100,
        "poisson",
        60,
    )
    assert "num_inserts" not in offered


# --- options of the module ------------------------------------------------------------------------


def test_extra_options_go_over_the_targets() -> None:
    values = merge_options(TARGET, ["device_spread=5", " queries = a=b ", "empty="])
    assert values == {"user": "me", "device_spread": "5", "queries": " a=b ", "empty": ""}
    assert TARGET.options == {"user": "me", "device_spread": 1}


@pytest.mark.parametrize("option", ["device_spread", "=5", " =5", ""])
def test_an_extra_option_needs_key_and_value(option: str) -> None:
    with pytest.raises(ConfigError, match="write it as key=value"):
        merge_options(TARGET, [option])


def test_a_targets_options_are_sorted_by_whom_they_concern() -> None:
    values = {"user": "me", "device_spread": 3, "extra_tags": 2, "queries": "a, b"}
    cpu = split_options(values, Cpu, insisted=())
    assert (cpu.module, cpu.workload) == ({"user": "me"}, {"device_spread": 3, "extra_tags": 2})
    assert cpu.queries == ["a", "b"]


def test_a_target_serves_all_workloads_but_a_command_line_means_one() -> None:
    """What the file says for another workload is left out; what was just typed is refused."""
    values = {"extra_tags": 2}
    assert split_options(values, Temperature, insisted=()).module == {}
    with pytest.raises(OptionError, match="extra_tags is an option of workload cpu, not of temp"):
        split_options(values, Temperature, insisted=["extra_tags"])


# --- what a module can do -------------------------------------------------------------------------


class Limited(Postgres):
    """A database that can do little."""

    name = "limited"
    CAPABILITIES = Capabilities(
        insert_modes={},
        primary_keys={
            PrimaryKey.DB: Support.UNSUPPORTED,
            PrimaryKey.SQL: Support.MISSING,
            PrimaryKey.NONE: Support.FULL,
        },
        multiple_tables=Support.MISSING,
        queries={"count-events": Support.FULL},
        indices=Support.UNSUPPORTED,
        column_types=[
            column_type for column_type in ColumnType if column_type is not ColumnType.JSON
        ],
        repeated_timestamps=Support.UNSUPPORTED,
    )


@pytest.mark.parametrize("key", PrimaryKey)
@pytest.mark.parametrize("tables", Tables)
@pytest.mark.parametrize("workload", ["temperature", "cpu"])
def test_what_is_supported_passes(key: PrimaryKey, tables: Tables, workload: str) -> None:
    options = sweep_of(
        primary_key=key, tables=tables, workload=workload, batch=10,
    )  # fmt: skip
    check(options, Postgres, POSTGRES)


def test_a_default_that_the_database_has_no_notion_of_is_no_error() -> None:
    check(sweep_of(), Limited, POSTGRES)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"given": {"primary_key"}},
            "module limited: the database has no --primary-key db",
        ),
        (
            {"primary_key": PrimaryKey.SQL},
            "module limited can't do --primary-key sql yet",
        ),
        (
            {"primary_key": PrimaryKey.UUID},
            "module limited can't do --primary-key uuid yet",
        ),
        ({"tables": Tables.MULTIPLE}, "module limited can't do --tables multiple yet"),
        (
            {"workload_options": {"tags": "table"}},
            "module limited can't do joins, for tags=table yet",
        ),
        (
            {"workload": "cpu"},
            CANT_MAP,
        ),
    ],
)
def test_what_is_not_supported_is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check(sweep_of(**changes), Limited, POSTGRES)
    assert refused.value.message == text


def sweep_with(**column: Any) -> InsertRequest:
    """An insert of a workload with this column of numbers."""
    columns = [{"name": "at", "type": "timestamp_ms"}, {"name": "it", "type": "text"}]
    signal = {"kind": "uniform", "low": 0, "high": 1}
    definition = {
        "name": "own",
        "about": "x",
        "table": "t",
        "time": "at",
        "device": "it",
        "devices": 3,
        "interval": "1s",
        "columns": [*columns, {"type": "int32", "signal": signal, **column}],
    }
    return sweep_of(workload="own", definition=definition, workers=(1,))


def test_more_columns_than_a_table_of_the_database_has_are_refused() -> None:
    for repeat, problem in ((1597, None), (1598, "has 1,600 columns, but a table has 1,599 at")):
        with nullcontext() if problem is None else pytest.raises(ConfigError, match=problem):
            check(sweep_with(name="x", repeat=repeat), Postgres, POSTGRES)


def test_a_column_that_the_database_has_itself_is_refused() -> None:
    problem = "has a column xmin, which is the database's own: give it another name"
    for module in (Postgres, load_module("timescaledb")):
        with pytest.raises(ConfigError, match=problem):
            check(sweep_with(name="xmin"), module, None)
    check(sweep_with(name="xmin"), load_module("questdb"), None)


def test_a_combination_that_the_module_refuses() -> None:
    settings = parse_options(
        PostgresOptions, {"connection_string": "host=x", "insert_mode": "copy"}, str
    )
    with pytest.raises(ConfigError, match="needs --batch N"):
        check(sweep_of(), Postgres, settings)
    check(sweep_of(batch=10), Postgres, settings)


def test_timestamps_can_start_again_only_where_events_are_numbered() -> None:
    options = sweep_of(timestamps=Timestamps.RESTART)
    check(options, Postgres, POSTGRES)
    with pytest.raises(ConfigError, match="--timestamps restart would repeat events"):
        check(sweep_of(timestamps=Timestamps.RESTART, workload="cpu"), Postgres, POSTGRES)


def test_timestamps_cannot_start_again_where_that_would_overwrite_events() -> None:
    with pytest.raises(
        ConfigError, match=r"overwrite events: module limited stores one per device"
    ):
        check(sweep_of(timestamps=Timestamps.RESTART), Limited, POSTGRES)
    check(sweep_of(timestamps=Timestamps.CONTINUE), Limited, POSTGRES)


@pytest.mark.parametrize(
    ("module", "settings", "workload", "text"),
    [
        (Blackhole, BlackholeOptions(), "temperature", "stores nothing to query"),
        (Limited, POSTGRES, "cpu", CANT_MAP),
        (
            Postgres,
            POSTGRES,
            "temperature",
            "there is no query 'last-point'; did you mean point. .known: count-events",
        ),
    ],
)
def test_queries_that_can_not_be_asked(
    module: type[AnyModule], settings: Options, workload: str, text: str
) -> None:
    queries = ["last-point"] if module is Postgres else None
    with pytest.raises(ConfigError, match=text):
        check_query(Load(queries=queries), DataSet(workload=workload), module, settings)


@pytest.mark.parametrize("workload", ["temperature", "cpu"])
def test_queries_that_can_be_asked(workload: str, capsys: pytest.CaptureFixture[str]) -> None:
    check_query(Load(), DataSet(workload=workload), Postgres, POSTGRES)
    assert not capsys.readouterr().err


class Unconditional(Postgres):
    """A module without conditions on values."""

    name = "unconditional"
    CAPABILITIES = replace(Postgres.CAPABILITIES, shapes=frozenset(Shape) - {Shape.WHERE})


def test_own_queries_that_are_not_asked_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    check_query(Load(), DataSet(workload="cpu"), Unconditional, POSTGRES)
    said = "can't run high-cpu yet: it supports no queries with a condition on a value"
    assert capsys.readouterr().err == f"warning: module unconditional {said}\n"
    check_query(Load(queries=["last-point"]), DataSet(workload="cpu"), Unconditional, POSTGRES)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    "changes", [{"prefill": 5}, {"clean": False}, {"prefill_span_s": 60.0, "prefill_every_s": 1.0}]
)
def test_queries_draw_from_what_is_stored_before(changes: dict[str, Any]) -> None:
    drawn, data = Load(queries=["range"]), DataSet(workload="machines")
    with pytest.raises(ConfigError, match=r"range draws devices .*: add --fill, as in"):
        check_query(drawn, data, Postgres, POSTGRES, "--fill")
    check_query(drawn, data.model_copy(update=changes), Postgres, POSTGRES, "--fill")
    check_query(drawn, data, Postgres, POSTGRES)
    check_query(Load(queries=["last-values"]), data, Postgres, POSTGRES, "--fill")


# --- what the processes are told ------------------------------------------------------------------


def test_settings_say_all_that_was_asked_for() -> None:
    sweep = sweep_of(
        workers=(4,), primary_key=PrimaryKey.UUID, tables=Tables.MULTIPLE, events=77, batch=7,
        prefill=5, clean=False, timestamps=Timestamps.RESTART, workload="cpu", seed=2**64 - 1,
    )  # fmt: skip
    run = list_runs(sweep)[1]
    settings = make_settings("x", "postgres", {"a": 1}, run.data, run.load, token="token")
    expected = {
        "token": "token", "target": "x", "module": "postgres", "options": {"a": 1},
        "workload": "cpu", "seed": 2**64 - 1, "role": "write", "workers": 4,
        "primary_key": "uuid", "tables": "multiple", "events": 77, "batch": 7, "prefill": 5,
        "clean": False, "timestamps": "restart",
    }  # fmt: skip
    values = settings.model_dump(mode="json")
    [group] = values["groups"]
    values |= values["data"] | group["load"]
    assert {key: values[key] for key in expected} == expected
    assert len(settings.run_id) == 8


@pytest.mark.parametrize(
    ("typed", "program"), [("/usr/bin/iotbench", "iotbench"), ("run.py", "python run.py")]
)
def test_a_run_is_told_how_the_user_calls_the_tool(
    monkeypatch: pytest.MonkeyPatch, typed: str, program: str
) -> None:
    monkeypatch.setattr("sys.argv", [typed])
    assert make_settings("x", "postgres", {}, DataSet(), Load()).program == program


def test_secrets_are_not_in_a_settings_repr() -> None:
    secret = {"connection_string": "password=hush-hush"}
    settings = make_settings("x", "postgres", secret, DataSet(), Load(), token="hush-token")
    assert "hush" not in repr(settings)
