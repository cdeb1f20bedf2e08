"""The figures as Prometheus reads them. Pure.

Names follow https://prometheus.io/docs/practices/naming/: base units, `_total` for what only rises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest

from simulator import __version__
from simulator.contract import GroupStatus, Phase, Role

from .state import LIVE, Figures, LiveFigure

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_PREFIX = "iot_benchmark_"
_UNITS = {Role.WRITE: "events", Role.FILL: "events", Role.READ: "queries"}

_Sample = tuple[Mapping[str, str], float]
"""Labels and value."""


class _Collector:
    """What the library asks for metrics; those without a sample are left out."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        return (metric for metric in _list_metrics(self._figures) if metric.samples)


def write_metrics(figures: Figures) -> str:
    """All metrics, in the text format."""
    return generate_latest(_Collector(figures)).decode()


def _list_metrics(figures: Figures) -> Iterator[Metric]:
    own = {"version": __version__, "command": figures.command, "target": figures.target}
    yield _make_metric("info", "gauge", "Which command runs, always 1.", [(own, 1)])
    yield from _list_totals(figures)
    status = figures.status
    phases = [] if status is None else [({"phase": p}, p is status.phase) for p in Phase]
    yield _make_metric("phase", "gauge", "1 for the current phase, 0 for others.", phases)
    if status is not None:
        yield from _list_groups(status.groups if status.phase in (Phase.PREFILL, Phase.RUN) else [])
        yield _make_metric(
            "quiet_seconds", "gauge", "Time without an answer from the database.",
            [({}, status.quiet_s)],
        )  # fmt: skip
        yield _make_metric(
            "elapsed_seconds", "gauge", "Time since the workers of the run started together.",
            _list_known({}, status.elapsed_s),
        )  # fmt: skip
        database = status.database
        yield _make_metric(
            "database_cpus_used", "gauge", "CPUs that the database uses.",
            _list_known({}, database.cpus_used if database else None),
        )  # fmt: skip
        yield _make_metric(
            "database_cpus_limit", "gauge", "CPUs that the database may use.",
            _list_known({}, database.cpus if database else None),
        )  # fmt: skip
    jobs = [({"state": state}, number) for state, number in figures.jobs.items()]
    yield _make_metric("campaign_jobs", "gauge", "Jobs of the campaign in each state.", jobs)


def _list_totals(figures: Figures) -> Iterator[Metric]:
    texts = {
        Role.FILL: ("prefilled_events_total", "Events that prefills have stored."),
        Role.WRITE: ("events_total", "Events that the database has acknowledged."),
        Role.READ: ("queries_total", "Queries that the database has answered."),
    }
    for role, (name, text) in texts.items():
        totals = [figures.totals[role]] if role in figures.totals else []
        yield _make_metric(name, "counter", text, [({}, total["done"]) for total in totals])
    yield _make_metric(
        "retries_total", "counter", "Requests that were sent again after an error.",
        [({"role": role}, total["retries"]) for role, total in figures.totals.items()],
    )  # fmt: skip
    yield _make_metric(
        "failed_queries_total", "counter", "Queries without an answer.",
        [({}, total["failed"]) for role, total in figures.totals.items() if role is Role.READ],
    )  # fmt: skip
    yield _make_metric(
        "runs_total", "counter", "Runs that have ended, valid or not.",
        [({}, figures.runs_ended)],
    )  # fmt: skip
    yield _make_metric(
        "disturbances_total", "counter", "What was done to the database during the run.",
        [({}, figures.marks)],
    )  # fmt: skip


def _list_groups(groups: Sequence[GroupStatus]) -> Iterator[Metric]:
    """The figures of groups: those of events and of queries apart where they have names of their own."""
    for unit in dict.fromkeys(_UNITS.values()):
        own = [group for group in groups if _UNITS[group.role] == unit]
        yield from (_list_live(figure, own, unit) for figure in LIVE if "{unit}" in figure.metric)
    yield from (_list_live(figure, groups, "") for figure in LIVE if "{unit}" not in figure.metric)


def _list_live(figure: LiveFigure, groups: Sequence[GroupStatus], unit: str) -> Metric:
    values = [(group.role, value) for group in groups if (value := figure.read(group)) is not None]
    samples = [({"role": role}, figure.scale * value) for role, value in values]
    about = figure.about.format(Unit=unit.title())
    return _make_metric(figure.metric.format(unit=unit), "gauge", about, samples)


def _list_known(labels: Mapping[str, str], value: float | None) -> list[_Sample]:
    return [] if value is None else [(labels, value)]


def _make_metric(name: str, kind: str, text: str, samples: Iterable[_Sample]) -> Metric:
    metric = Metric(_PREFIX + name.removesuffix("_total"), text, kind)
    for labels, value in samples:
        metric.add_sample(_PREFIX + name, dict(labels), float(value))
    return metric
