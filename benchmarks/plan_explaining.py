"""What a database says about how it answers a statement."""

from __future__ import annotations

from copy import copy
from typing import Any

from cassandra.cluster import Cluster
from cassandra.policies import RoundRobinPolicy

from simulator.modules.base import AnyModule
from simulator.modules.cassandra.queries import Plan as CassandraPlan
from simulator.modules.influxdb.flux import parse_csv
from simulator.modules.iotdb.queries import Computation
from simulator.worker import connect

from .plan_searches import explain_search

_ANALYZE = "EXPLAIN (ANALYZE, BUFFERS) "
_PREFIXES = {
    "postgresql-copy": _ANALYZE,
    "timescaledb": _ANALYZE,
    "questdb": "EXPLAIN ",
    "cratedb": "EXPLAIN ",
    "clickhouse": "EXPLAIN indexes = 1 ",
    "iotdb": "EXPLAIN ANALYZE ",
}
_PROFILER = 'import "profiler"\noption profiler.enabledProfilers = ["query", "operator"]\n'
_PROFILED = ("_measurement", "Type", "Label", "Count", "DurationSum", "TotalDuration")


def explain(name: str, module: AnyModule, statement: Any) -> str:
    """A statement's plan; "" for VictoriaMetrics, which shows none."""
    if name in _PREFIXES:
        text = _find_text(statement)
        return "\n".join(str(row[0]) for row in module.fetch(_PREFIXES[name] + text))
    if name in ("elasticsearch", "opensearch"):
        return explain_search(module, statement)
    if name == "influxdb":
        return _profile_flux(module, statement)
    return _trace(module, statement) if name == "cassandra" else ""


def _find_text(statement: Any) -> str:
    """The text that is asked first."""
    if isinstance(statement, Computation):
        return next(statement.begin())
    return statement if isinstance(statement, str) else str(statement.text)


def _profile_flux(module: AnyModule, question: Any) -> str:
    """Flux's operators, and how long each took. https://docs.influxdata.com/flux/v0/stdlib/profiler/"""
    profiled = copy(question)
    profiled.text = _PROFILER + question.text
    # The profile's rows aren't part of the answer.
    profiled.is_scanned, profiled.counted = True, None
    asker: Any = module.asker()
    with connect(asker):
        received = asker.ask(asker.encode_statement(profiled))
    _, [answer, *_] = received.data
    rows = parse_csv(answer.decode(), _PROFILED)
    lines = [
        f"{kind} {label} {operator} x{count}: {(total or took) / 1e6:.2f} ms"
        for kind, operator, label, count, took, total in rows
        if kind in ("profiler/query", "profiler/operator")
    ]
    return "\n".join(lines)


def _trace(module: Any, statement: Any) -> str:
    """A node's trace of one of the executions that are asked first, in µs; CQL has no EXPLAIN."""
    if isinstance(statement, CassandraPlan):
        cql, executions, _ = next(module.begin(statement))
    else:
        cql, executions = statement
    options = module.options
    cluster = Cluster(
        options.contact_points,
        port=options.port,
        load_balancing_policy=RoundRobinPolicy(),
        protocol_version=5,
    )
    try:
        session = cluster.connect()
        values = session.prepare(cql.text).bind(executions[0])
        trace = session.execute(values, trace=True).get_query_trace()
        lines = [
            f"{event.source_elapsed.microseconds} {event.description}" for event in trace.events
        ]
    finally:
        cluster.shutdown()
    return "\n".join([f"one of {len(executions)}", *lines])
