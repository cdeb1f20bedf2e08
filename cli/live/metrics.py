"""The figures as Prometheus reads them. Pure.

Names follow https://prometheus.io/docs/practices/naming/: base units, `_total` for what only rises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest

from simulator import __version__
from simulator.contract import Phase, Role

from .state import Figures

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_PREFIX = "iot_benchmark_"
_UNITS = {Role.WRITE: "events", Role.FILL: "events", Role.READ: "queries"}
_DONE = {
    Role.FILL: ("prefilled_events_total", "Events that prefills have stored."),
    Role.WRITE: ("events_total", "Events that the database has acknowledged."),
    Role.READ: ("queries_total", "Queries that the database has answered."),
}
_RECENT = "of the last seconds: response times, in a closed loop service times."
_MS = 1000.0

_Sample = tuple[Mapping[str, str], float | None]
"""Labels and value; None: it isn't known, which Prometheus draws as a gap."""


class _Collector:
    """What the library asks for metrics; those without a sample are left out."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        metrics = (_make_metric(*described) for described in _describe_metrics(self._figures))
        return (metric for metric in metrics if metric.samples)


def write_metrics(figures: Figures) -> str:
    """All metrics, in the text format."""
    return generate_latest(_Collector(figures)).decode()


def _describe_metrics(figures: Figures) -> Iterator[tuple[str, str, Iterable[_Sample]]]:
    """Name, description and samples of each."""
    totals, status = figures.totals, figures.status
    own = {"version": __version__, "command": figures.command, "target": figures.target}
    yield "info", "Which command runs, always 1.", [(own, 1)]
    for role, (name, text) in _DONE.items():
        yield name, text, [({}, totals[role].done)] if role in totals else []
    retries: list[_Sample] = [({"role": role}, one.retries) for role, one in totals.items()]
    yield "retries_total", "Requests that were sent once more after an error.", retries
    failed = totals[Role.READ].failed if Role.READ in totals else None
    yield "failed_queries_total", "Queries without an answer.", [({}, failed)]
    yield "runs_total", "Runs that have ended, valid or not.", [({}, figures.runs_ended)]
    text = "What was done to the database during the run."
    yield "disturbances_total", text, [({}, figures.marks)]
    jobs: list[_Sample] = [({"state": state}, number) for state, number in figures.jobs.items()]
    yield "campaign_jobs", "Jobs of the campaign in each state.", jobs
    if status is None:
        return
    phases: list[_Sample] = [({"phase": phase}, phase is status.phase) for phase in Phase]
    yield "phase", "1 for the phase in which the run is, 0 for others.", phases
    yield "quiet_seconds", "Time without an answer of the database.", [({}, status.quiet_s)]
    text = "Time since the workers of the run began together."
    yield "elapsed_seconds", text, [({}, status.elapsed_s)]
    if status.database is not None:
        used, limit = status.database.cpus_used, status.database.cpus
        yield "database_cpus_used", "CPUs that the database uses.", [({}, used)]
        yield "database_cpus_limit", "CPUs that the database may use.", [({}, limit)]
    if status.phase not in (Phase.PREFILL, Phase.RUN):
        return
    labelled = [({"role": one.role}, one) for one in status.groups]
    for unit in dict.fromkeys(_UNITS.values()):
        of = [(role, one) for role, one in labelled if _UNITS[one.role] == unit]
        text = f"{unit.title()} per second over the last seconds."
        yield f"{unit}_per_second", text, [(role, one.rate_per_s) for role, one in of]
        text = f"{unit.title()} that are due and not done (open loop)."
        yield f"backlog_{unit}", text, [(role, one.backlog) for role, one in of]
    p50s: list[_Sample] = [(role, one.recent_p50_ms) for role, one in labelled]
    p99s: list[_Sample] = [(role, one.recent_p99_ms) for role, one in labelled]
    for percentile, times in (("p50", p50s), ("p99", p99s)):
        seconds = [(role, None if ms is None else ms / _MS) for role, ms in times]
        yield f"recent_{percentile}_seconds", f"{percentile} {_RECENT}", seconds


def _make_metric(name: str, text: str, samples: Iterable[_Sample]) -> Metric:
    kind = "counter" if name.endswith("_total") else "gauge"
    metric = Metric(_PREFIX + name.removesuffix("_total"), text, kind)
    for labels, value in samples:
        if value is not None:
            metric.add_sample(_PREFIX + name, dict(labels), float(value))
    return metric
