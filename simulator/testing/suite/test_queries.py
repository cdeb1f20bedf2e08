"""The queries' answers follow from the seed, also for a workload's own statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ...collector.database import Indexing
from ...contract import Load, Role, RunSettings, StoredPart, make_groups
from ...errors import OptionError, SimulatorError
from ...modules.base import AnyModule, Support, await_count, connect
from ...oracle.answers import Answer, answer, answer_all, compare_answers
from ...workloads import WORKLOADS, load_workload
from ...workloads.base import Workload
from ...workloads.cpu import HIGH_CPU_UNTIL_MS, MAX_ALL_HOSTS, MAX_ALL_UNTIL_MS, QUERIES, Cpu
from ...workloads.drawing import Stored, bind, draw_block
from ...workloads.queries import Query
from ...workloads.schema import Schema
from ...workloads.temperature import Temperature
from ..events import TESTED, Awkward, insert_with
from ..server import ServerUnderTest, new_job

SEED, DEVICES = 9, 7
# Ranges of events (worker, first, count). For temperature, from two workers. For cpu, whose events are a
# second apart, from the first hours, around the end of a query's range, and from hosts that it excludes.
TEMPERATURE_PARTS = ((0, 0, 400), (1, 0, 400))
CPU_PARTS = (
    (0, 0, 120),
    (0, 3590, 40),
    (0, 8 * 3600 - 25, 50),
    (0, 12 * 3600 - 40, 80),
    (1, 0, 100),
    (1, 8 * 3600 - 25, 50),
)
PARTS = {Temperature: TEMPERATURE_PARTS, Cpu: CPU_PARTS}


def workload_of(query: str) -> Workload:
    """The workload with this query; a module's own variant is named after it."""
    kind = next(
        kind for kind in (Temperature, Cpu) if query.removesuffix("-tuned") in kind.schema.queries
    )
    # More hosts than `cpu-max-all` covers, so that the choice matters.
    return kind(seed=SEED, device_spread=DEVICES if kind is Temperature else 10)


def fill(
    server: ServerUnderTest, workload: Workload, parts: Sequence[tuple[int, int, int]] | None = None
) -> None:
    """Store these parts, by default all of the workload's."""
    parts = parts or PARTS[type(workload)]
    job = new_job(workload.schema, batch=200)
    with server.prepare(job) as module:
        for worker, first, count in parts:
            insert_with(server.module(job), workload, count, worker=worker, first=first)
        # However the database does it, the events are then visible to queries.
        expected = sum(count for _, _, count in parts)
        assert await_count(module.count, expected, module.settle_s) == expected


@contextmanager
def prepare_queries(
    server: ServerUnderTest, workload: Workload, options: Mapping[str, Any] | None = None
) -> Iterator[AnyModule]:
    """The module, prepared for queries."""
    job = new_job(workload.schema, role=Role.READ)
    with connect(server.module(job, options=options)) as module:
        module.prepare_queries()
        find_indexing(module).prepare_queries()
        yield module


def make_settings(module: str, load: Load) -> RunSettings:
    """The settings of a run with this load."""
    groups = make_groups(load)
    return RunSettings(
        run_id="suite", token="t", target="t", module=module, options={}, groups=groups
    )


def find_indexing(module: AnyModule) -> Indexing:
    """The collector's index handling in a run with the module's job."""
    return Indexing(make_settings(module.name, module.job.load), module)


def find_right(query: Query) -> Answer:
    """The right answer to a query on the parts of its workload."""
    workload = workload_of(query.name)
    stored = Stored(workload, [StoredPart(*part) for part in PARTS[type(workload)]])
    return answer(bind(query, workload.schema.epoch_ms), stored)


def check_answer(module: AnyModule, name: str) -> None:
    """Run a query on the stored parts of its workload: the answer is right."""
    description = module.describe_query(name)
    assert description is not None
    rows = module.fetch(module.queries()[name])
    problem = compare_answers(find_right(description), rows)
    assert not problem, f"{name}: {problem}"


def test_the_parts_try_the_limits_of_the_queries() -> None:
    """Each condition of a query excludes something, or its test would prove nothing."""
    workload = workload_of("cpu-max-all")
    blocks = [workload.block(*part) for part in CPU_PARTS]
    hosts = {host.decode() for block in blocks for host in block.devices.tolist()}
    times = [time for block in blocks for time in block.columns["ts"].tolist()]
    queries = {query.name: query for query in QUERIES}
    assert set(MAX_ALL_HOSTS) < hosts
    assert len(find_right(queries["cpu-max-all"])) == 3
    assert MAX_ALL_UNTIL_MS in times
    assert HIGH_CPU_UNTIL_MS in times
    assert 0 < len(find_right(queries["high-cpu"])) < len(times) / 2


# --- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PARTS)
def test_answers(server: ServerUnderTest, kind: type[Workload]) -> None:
    """Without indexes and with them; some queries then run in another way."""
    names = [
        name
        for name in server.queries_of(server.module_type)
        if name.removesuffix("-tuned") in kind.schema.queries
    ]
    if not names:
        pytest.skip("the module has no queries of it")
    workload = workload_of(names[0])
    fill(server, workload)
    plain = [name for name in names if not name.endswith("-tuned")]
    rounds: list[tuple[dict[str, Any], list[str]]] = [({}, plain)]
    if server.module_type.CAPABILITIES.indices is Support.FULL:
        rounds.append(({"create_indices": "after"}, names))
    else:
        assert plain == names
    for options, chosen in rounds:
        with prepare_queries(server, workload, options) as module:
            for name in chosen:
                check_answer(module, name)


def test_all_queries_are_there_in_order(server: ServerUnderTest, workload_name: str) -> None:
    """Those that the module claims to support, in the workload's order, followed by variants."""
    schema = TESTED[workload_name].schema
    if workload_name not in WORKLOADS:
        pytest.skip("its queries are described, and claimed by shape")
    claimed = server.queries_of(server.module_type)
    names = [name for name in claimed if name.removesuffix("-tuned") in schema.queries]
    indexed = {"create_indices": "before"} if len(names) > len(schema.queries) else {}
    assert list(server.module(new_job(schema), options=indexed).queries()) == names
    plain = [name for name in names if not name.endswith("-tuned")]
    assert plain == [name for name in schema.queries if name in plain]


@pytest.mark.parametrize(
    "chosen", ["newest-per-device, count-events", ["newest-per-device", "count-events"]]
)
def test_a_choice_of_queries(server: ServerUnderTest, chosen: object) -> None:
    module = server.module(new_job(Temperature.schema, queries=chosen))
    assert list(module.queries()) == ["count-events", "newest-per-device"]


def test_an_unknown_query_is_refused_and_the_known_are_named(server: ServerUnderTest) -> None:
    module = server.module(new_job(Temperature.schema, queries=["newest-per-devise"]))
    with pytest.raises(OptionError, match=r"mean newest-per-device\? \(known: count-events, "):
        module.queries()


def test_a_workload_without_queries_is_refused(server: ServerUnderTest) -> None:
    with pytest.raises(OptionError, match="no queries for this workload"):
        server.module(new_job(Awkward.schema)).queries()


def test_nothing_to_query_says_what_to_do(server: ServerUnderTest) -> None:
    """Also after an insert of another workload: the command names the workload of the query."""
    job = new_job(Temperature.schema, role=Role.READ, target="mine", workload="temperature")
    refusal = pytest.raises(SimulatorError, match=r"no table \S*events to query: run insert")
    with connect(server.module(job)) as module, refusal as refused:
        module.prepare_queries()
    assert "insert --target mine --workload temperature" in str(refused.value)


def test_a_query_that_fails_says_why(server: ServerUnderTest) -> None:
    workload = workload_of("count-events")
    fill(server, workload)
    with prepare_queries(server, workload) as module:
        queries = module.queries()
        server.clear()
        with pytest.raises(SimulatorError, match="events"):
            module.fetch(queries["count-events"])


OWN_EXECUTIONS = 4
OWN_PARTS = ((0, 0, 300), (1, 0, 100))
MACHINES = load_workload("machines")(seed=SEED, device_spread=4)
MACHINES_FIELD = MACHINES.schema.fields[0]

_SQL = (
    'SELECT "{field}" FROM :table WHERE "{device}" = :device AND "{time}" >= :start AND "{time}" < :end'
    ' AND "{field}" > :above'
)
OWN_STATEMENTS = {
    "SQL": _SQL,
    "CQL": f"{_SQL} ALLOW FILTERING;",
    "AQL": "FOR e IN :table FILTER e.`{device}` == :device AND e.`{time}` >= :start AND e.`{time}` < :end"
    " AND e.`{field}` > :above RETURN [e.`{field}`]",
    "KQL": ":table | where ['{time}'] >= :start and ['{time}'] < :end | where ['{device}'] == :device"
    " | where ['{field}'] > :above | project v0 = ['{field}']",
}
"""Language -> a statement with the same meaning as the description below."""


def write_text(server: ServerUnderTest, schema: Schema) -> str:
    """The statement for the server's module."""
    language = server.module_type.CAPABILITIES.statements
    assert language is not None
    time = server.time_column or schema.time
    return OWN_STATEMENTS[language].format(field=MACHINES_FIELD, device=schema.device, time=time)


def describe_own(module: str, text: str) -> Query:
    """A query with the workload's own statement."""
    return Query.model_validate(
        {
            "name": "own",
            "devices": 1,
            "window": {"span": "10m"},
            "where": {"column": MACHINES_FIELD, "above": 45.1},
            "events": [MACHINES_FIELD],
            "statement": {module: text},
        }
    )


def ask_own(server: ServerUnderTest, query: Query, stored: Stored) -> list[str | None]:
    """What is wrong with the answer of each execution: in a reader's way, and then by itself."""
    bounds = draw_block(query, stored, 0, 0, OWN_EXECUTIONS)
    rights = answer_all(list(bounds), stored)
    assert any(len(right) for right in rights)
    with prepare_queries(server, MACHINES) as module, closing(module.asker()) as asker:
        requests = list(asker.encode(bounds))
        asker.open()
        prepared = [asker.decode(asker.ask(request)) for request in requests]
        alone = [module.fetch(module.make_statement(bound)) for bound in bounds]
    return [
        compare_answers(right, rows)
        for answers in (prepared, alone)
        for right, rows in zip(rights, answers, strict=True)
    ]


def test_a_workloads_own_statement(server: ServerUnderTest) -> None:
    can, name = server.module_type.CAPABILITIES, server.module_type.name
    if can.statements is None or not server.takes_statements:
        query = describe_own(name, "SELECT 1")
        schema = replace(MACHINES.schema, descriptions=(query,))
        with pytest.raises(OptionError, match="query own: statement: "):
            server.module(new_job(schema))
        return
    if not server.can_hold(MACHINES.schema):
        pytest.skip("the module doesn't store it")
    fill(server, MACHINES, OWN_PARTS)
    stored = Stored(MACHINES, [StoredPart(*part) for part in OWN_PARTS])
    text = write_text(server, MACHINES.schema)
    assert ask_own(server, describe_own(name, text), stored) == [None] * 2 * OWN_EXECUTIONS
    wrong = text.replace(":end", ":start")
    assert any(ask_own(server, describe_own(name, wrong), stored))
