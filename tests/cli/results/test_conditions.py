"""Conditions: what a setting changes is declared where it is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cli.results.conditions import Difference, compare_conditions
from cli.results.model import Result
from cli.show.comparison import list_differences
from simulator.conditions import Condition, find_conditions
from simulator.modules import load_module, module_names

from ..made import ENVIRONMENT, inserts, queries

RATES = {1: [100.0, 101.0, 99.0]}


def environment(**changes: Any) -> dict[str, Any]:
    """The usual one with parts of it replaced: `client={"cpus": 4}`."""
    return {part: (ENVIRONMENT[part] or {}) | changes.get(part, {}) or None for part in ENVIRONMENT}


def of_module(
    module: str,
    options: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """A result of a database module, with options of its own and the server's settings."""
    return inserts(
        RATES,
        module=module,
        options={"module": dict(options or {})},
        environment=environment(database={"version": "1", "settings": dict(settings or {})}),
    )


def find(results: Sequence[Result]) -> dict[str, Condition]:
    return {
        difference.name: difference.condition
        for difference in compare_conditions(results).differences
    }


@pytest.mark.parametrize(
    ("changes", "condition", "name"),
    [
        ({"environment": environment(database={"settings": {"fsync": "off"}})}, "durability", "fsync"),
        ({"options": {"batch": 1000}}, "batch", "batch"),
        ({"options": {"insert_mode": "values_lists"}}, "batch", "insert_mode"),
        ({"options": {"primary_key": "none"}}, "schema", "primary_key"),
        ({"executor": "kubernetes"}, "client", "executor"),
        ({"environment": environment(client={"python": "3.11.0"})}, "client", "Python"),
        ({"environment": environment(tool={"commit": "other"})}, "client", "tool commit"),
        ({"environment": environment(client={"cpu_model": "Fast CPU"})}, "hardware", "cpu_model"),
        (
            {"environment": environment(
                kubernetes={"nodes": {"n": {"instance_type": "m5.large"}}}
            )},
            "hardware",
            "nodes: instance_type",
        ),
        ({"options": {"disturbances": ["2s kill-server"]}}, "load", "disturbances"),
        ({"options": {"num_inserts": 7}}, "workload", "num_inserts"),
        ({"environment": environment(database={"version": "17"})}, "database", "version"),
    ],
)  # fmt: skip
def test_each_condition_that_differs_is_named(
    changes: dict[str, Any], condition: str, name: str
) -> None:
    results = [inserts(RATES), inserts(RATES, **changes)]
    assert find(results)[name] is Condition(condition)
    lines = list_differences(["a", "b"], results)
    word = "note" if condition in ("workload", "database") else "warning"
    assert any(line.startswith(f"{word}: {condition} differs") and name in line for line in lines)


def test_questions_in_flight_are_a_condition_and_one_where_nothing_is_said() -> None:
    def asked(**own: int) -> Result:
        return queries({"q": [0.5]}, options={"workers": 1, "runs": 3, "module": {}, **own})

    eight, single, older = asked(reader_in_flight=8), asked(reader_in_flight=1), asked()
    assert find([single, eight]) == {"reader_in_flight": Condition.CLIENT}
    assert find([older, eight]) == {"reader_in_flight": Condition.CLIENT}
    assert find([older, single]) == {}
    beside = [
        inserts(RATES, options={"readers": 2, **own}) for own in ({}, {"reader_in_flight": 1})
    ]
    assert find(beside) == {}
    # Writers alone have none.
    assert find([inserts(RATES), inserts(RATES)]) == {}


# What a name alone can't tell: regular expressions over names had filed these options wrongly.
@pytest.mark.parametrize(
    ("part", "module", "name", "condition"),
    [
        ("options", "cratedb", "concurrent_requests", "client"),
        ("options", "cassandra", "max_sync_calls", "client"),
        ("options", "elasticsearch", "max_in_flight", "client"),
        ("options", "arangodb", "insert_method", "batch"),
        ("options", "arangodb", "sync", "durability"),
        ("options", "cassandra", "consistency_level", "durability"),
        ("options", "cassandra", "replication_factor", "replication"),
        ("options", "cratedb", "shards", "replication"),
        ("options", "influxdb", "shard_group_duration_h", "database"),
        ("options", "questdb", "o3_max_lag", "database"),
        ("options", "timescaledb", "insert_mode", "batch"),
        ("options", "postgres", "primary_key_constraint", "schema"),
        ("settings", "cassandra", "batch_size_fail_threshold", "database"),
        ("settings", "cassandra", "commitlog_sync", "durability"),
        ("settings", "postgres", "synchronous_commit", "durability"),
        ("settings", "postgres", "max_wal_size", "database"),
        ("settings", "timescaledb", "synchronous_standby_names", "replication"),
        ("settings", "elasticsearch", "index.translog.durability", "durability"),
        ("settings", "influxdb", "storage-wal-fsync-delay", "durability"),
        ("settings", "influxdb", "storage-wal-max-concurrent-writes", "database"),
        ("settings", "azure_data_explorer", "ingestionbatching policy", "batch"),
        ("settings", "questdb", "cairo.commit.mode", "durability"),
    ],
)
def test_options_and_settings_are_of_the_kind_that_their_module_declares(
    part: str, module: str, name: str, condition: str
) -> None:
    results = [of_module(module, **{part: {name: value}}) for value in ("1", "2")]
    assert find(results) == {name: Condition(condition)}


@pytest.mark.parametrize("module", module_names())
def test_every_module_declares_options_that_it_has(module: str) -> None:
    """It also declares which of them are the client's, and which say where the database is."""
    loaded = load_module(module)
    declared = find_conditions(loaded.options_model)
    assert set(declared) <= set(loaded.options_model.model_fields)
    for name in ("max_in_flight", "max_sync_calls", "concurrent_requests"):
        assert declared.get(name, Condition.CLIENT) is Condition.CLIENT
    for name in ("endpoint", "connection_string", "password", "token", "request_timeout_s"):
        assert declared.get(name, Condition.NONE) is Condition.NONE


def holding(in_flight: int, result: Result) -> Result:
    """The result of runs with so many requests in flight."""
    for group_run in result.writers:
        assert group_run.group.client is not None
        group_run.group.client.in_flight = in_flight
    return result


@pytest.mark.parametrize(
    ("module", "option"),
    [
        ("cassandra", "max_sync_calls"),
        ("cratedb", "concurrent_requests"),
        ("elasticsearch", "max_in_flight"),
    ],
)
def test_requests_in_flight_count_by_what_was_in_effect(module: str, option: str) -> None:
    """Not by the option that sets it, which has several names."""

    def asked(in_flight: int) -> Result:
        result = of_module(module, {})
        result.options["in_flight"] = in_flight
        return holding(in_flight, result)

    by_target = holding(8, of_module(module, {option: 8}, {option: 8}))
    assert find([asked(8), by_target]) == {}
    assert find([by_target, asked(4)])["in_flight"] is Condition.CLIENT
    assert option not in find([by_target, asked(4)])
    other = holding(1, of_module("postgres", {}))
    [difference] = [
        difference
        for difference in compare_conditions([by_target, other]).differences
        if difference.condition is Condition.CLIENT
    ]
    assert difference == Difference(Condition.CLIENT, "in_flight", [8, 1])


def test_between_two_databases_only_what_both_have_is_compared() -> None:
    relational = of_module(
        "postgres", {"copy_format": "binary"}, {"fsync": "on", "shared_buffers": "128MB"}
    )
    ring = of_module(
        "cassandra", {"replication_factor": 3, "insert_mode": "batch"}, {"commitlog_sync": "batch"}
    )
    assert find([relational, ring]) == {"insert_mode": Condition.BATCH}
    lines = list_differences(["a", "b"], [relational, ring])
    assert lines[-3:] == [
        "note: durability, each in its own terms: a: fsync=on; b: commitlog_sync=batch",
        "note: replication, each in its own terms: a: not stated; b: replication_factor=3",
        "note: each database has its own settings for batches: results show lists them",
    ]


def test_drivers_of_two_databases_are_no_difference() -> None:
    results = [
        inserts(RATES, module=module, environment=environment(client={"packages": packages}))
        for module, packages in (
            ("postgres", {"numpy": "1", "psycopg2-binary": "2"}),
            ("cassandra", {"numpy": "2", "cassandra-driver": "3"}),
        )
    ]
    conditions = find(results)
    assert conditions["numpy"] is Condition.CLIENT
    assert not {"psycopg2-binary", "cassandra-driver"} & set(conditions)


def test_of_one_name_in_two_databases_the_graver_meaning_counts() -> None:
    results = [of_module("arangodb", {}, {"sync": 1}), of_module("postgres", {}, {"sync": 2})]
    assert find(results) == {"sync": Condition.DURABILITY}


def test_a_setting_that_one_result_of_a_database_lacks_is_named() -> None:
    """Both could have it: it isn't set, or an older version didn't tell it."""
    results = [of_module("postgres", {}, settings) for settings in ({"fsync": "on"}, {})]
    assert compare_conditions(results).differences == [
        Difference(Condition.DURABILITY, "fsync", ["on", None])
    ]


def test_a_result_of_a_module_that_is_gone_can_be_compared() -> None:
    results = [of_module("gone", {"max_in_flight": n}, {"fsync": n}) for n in (1, 2)]
    assert find(results) == {"max_in_flight": Condition.DATABASE, "fsync": Condition.DATABASE}


def test_an_option_that_the_server_tells_as_well_is_named_once() -> None:
    results = [
        of_module("cassandra", {"consistency_level": level}, {"consistency_level": level})
        for level in ("ONE", "ALL")
    ]
    assert len(compare_conditions(results).differences) == 1


@pytest.mark.parametrize("option", ["device_spread", "extra_tags"])
def test_a_workloads_option_is_not_the_databases(option: str) -> None:
    """It stands among the module's; and between two databases it counts as within one."""
    for module in ("cratedb", "postgres"):
        results = [of_module(module, {option: 1}), of_module("postgres", {option: 2})]
        assert find(results) == {option: Condition.WORKLOAD}


def test_where_tags_are_is_a_condition_that_older_results_do_not_state() -> None:
    old, row, table = (
        of_module("postgres", options) for options in ({}, {"tags": "row"}, {"tags": "table"})
    )
    assert find([old, row]) == {}
    assert find([old, table]) == find([row, table]) == {"tags": Condition.SCHEMA}


def test_the_modules_batch_is_not_the_commands() -> None:
    """Azure Data Explorer has an option of the same name: one hid the other."""
    results = [of_module("azure_data_explorer", {"batch": True}) for _ in range(2)]
    results[1].options["batch"] = 7
    (only,) = compare_conditions(results).differences
    assert (only.condition, only.values) == (Condition.BATCH, [100, 7])


def test_the_same_conditions_need_no_word() -> None:
    results = [inserts(RATES), inserts(RATES | {4: [1.0]}, "beta")]
    assert compare_conditions(results).differences == []
    assert list_differences(["a", "b"], results) == []


def test_query_times_on_different_data_are_warned_of() -> None:
    results = [queries({"q": [1.0, 1.1]}, fill_level=level) for level in (500, 700)]
    [warning, _] = list_differences(["a", "b"], results)
    assert warning == "warning: data differs: fill level: 500 / 700"
    same = [queries({"q": [1.0, 1.1]}, fill_level=500) for _ in range(2)]
    assert find(same) == {}


def test_where_a_database_is_makes_no_difference() -> None:
    for module, option in (("postgres", "connection_string"), ("cratedb", "endpoint")):
        assert find([of_module(module, {option: place}) for place in ("one", "other")]) == {}


def test_a_warning_shows_all_values() -> None:
    results = [inserts(RATES, options={"batch": size}) for size in (10, 100, None)]
    (warning, order) = list_differences(["a", "b", "c"], results)
    assert warning == "warning: batch differs: batch: 10 / 100 / -"
    assert order == "(in the order a / b / c; -: not set or not known)"


def with_indexes(module: str, created: object, indexes: list[str] | None) -> Result:
    """A result whose tables have these indexes; None: an older one, which doesn't say."""
    result = of_module(module, {"create_indices": created})
    if indexes is not None:
        result.environment["database"]["schema"] = {"tags": "row", "indexes": indexes}
    return result


def test_tables_with_other_indexes_are_warned_of() -> None:
    """Whatever the option says: a query finds those that an insert has left."""
    plain = with_indexes("postgres", "no", ["events btree (id)"])
    indexed = with_indexes("postgres", "no", ["events btree (device_id)", "events btree (id)"])
    assert find([plain, indexed]) == {"indexes": Condition.SCHEMA}
    [line, *_] = list_differences(["a", "b"], [plain, indexed])
    assert line.startswith("warning: schema differs: indexes: events btree (id) / ")
    before = with_indexes("postgres", "before", ["events btree (device_id)", "events btree (id)"])
    assert find([indexed, before]) == {"create_indices": Condition.SCHEMA}


def test_other_databases_have_indexes_in_other_words() -> None:
    now = with_indexes("postgres", "no", ["events btree (id)"])
    assert "indexes" not in find([now, with_indexes("arangodb", "no", ["events primary (_key)"])])
    before = with_indexes("postgres", "before", ["events btree (id)"])
    assert find([before, now]) == {"create_indices": Condition.SCHEMA}
