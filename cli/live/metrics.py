"""The figures as Prometheus reads them. Pure.

The text format is https://prometheus.io/docs/instrumenting/exposition_formats/, names follow
https://prometheus.io/docs/practices/naming/: base units, `_total` for what only rises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from simulator import __version__
from simulator.contract import GroupStatus, Phase, Role

from .state import Figures

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX = "iot_benchmark_"
_UNITS = {Role.WRITE: "events", Role.FILL: "events", Role.READ: "queries"}
_MS = 1000.0


@dataclass(frozen=True)
class _Sample:
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class _Family:
    """A metric with its samples; without any it is left out."""

    name: str
    kind: str
    help: str
    samples: Sequence[_Sample]


def write_metrics(figures: Figures) -> str:
    """All metrics, in the text format."""
    lines: list[str] = []
    for family in _list_families(figures):
        if family.samples:
            name = _PREFIX + family.name
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
            lines += [
                f"{name}{_write_labels(one.labels)} {_write_value(one.value)}"
                for one in family.samples
            ]
    return "\n".join(lines) + "\n"


def _list_families(figures: Figures) -> Iterator[_Family]:
    own = {"version": __version__, "command": figures.command, "target": figures.target}
    yield _Family("info", "gauge", "Which command runs, always 1.", [_Sample(own, 1)])
    yield from _list_totals(figures)
    status = figures.status
    phases = [] if status is None else [_Sample({"phase": p}, p is status.phase) for p in Phase]
    yield _Family("phase", "gauge", "1 for the phase in which the run is, 0 for others.", phases)
    if status is not None:
        yield from _list_groups(status.groups if status.phase in (Phase.PREFILL, Phase.RUN) else [])
        yield _Family(
            "quiet_seconds", "gauge", "Time without an answer of the database.",
            [_Sample({}, status.quiet_s)],
        )  # fmt: skip
        yield _Family(
            "elapsed_seconds", "gauge", "Time since the workers of the run began together.",
            _list_known({}, status.elapsed_s),
        )  # fmt: skip
        database = status.database
        yield _Family(
            "database_cpus_used", "gauge", "CPUs that the database uses.",
            _list_known({}, database.cpus_used if database else None),
        )  # fmt: skip
        yield _Family(
            "database_cpus_limit", "gauge", "CPUs that the database may use.",
            _list_known({}, database.cpus if database else None),
        )  # fmt: skip
    jobs = [_Sample({"state": state}, number) for state, number in figures.jobs.items()]
    yield _Family("campaign_jobs", "gauge", "Jobs of the campaign in each state.", jobs)


def _list_totals(figures: Figures) -> Iterator[_Family]:
    texts = {
        Role.FILL: ("prefilled_events_total", "Events that prefills have stored."),
        Role.WRITE: ("events_total", "Events that the database has acknowledged."),
        Role.READ: ("queries_total", "Queries that the database has answered."),
    }
    for role, (name, text) in texts.items():
        known = [figures.totals[role]] if role in figures.totals else []
        yield _Family(name, "counter", text, [_Sample({}, one.done) for one in known])
    yield _Family(
        "retries_total", "counter", "Requests that were sent once more after an error.",
        [_Sample({"role": role}, one.retries) for role, one in figures.totals.items()],
    )  # fmt: skip
    yield _Family(
        "failed_queries_total", "counter", "Queries without an answer.",
        [_Sample({}, one.failed) for role, one in figures.totals.items() if role is Role.READ],
    )  # fmt: skip
    yield _Family(
        "runs_total", "counter", "Runs that have ended, valid or not.",
        [_Sample({}, figures.runs_ended)],
    )  # fmt: skip
    yield _Family(
        "disturbances_total", "counter", "What was done to the database during the run.",
        [_Sample({}, figures.marks)],
    )  # fmt: skip


def _list_groups(groups: Sequence[GroupStatus]) -> Iterator[_Family]:
    for unit in dict.fromkeys(_UNITS.values()):
        own = [one for one in groups if _UNITS[one.role] == unit]
        yield _Family(
            f"{unit}_per_second", "gauge", f"{unit.title()} per second over the last seconds.",
            [s for one in own for s in _list_known({"role": one.role}, one.rate_per_s)],
        )  # fmt: skip
        yield _Family(
            f"backlog_{unit}", "gauge", f"{unit.title()} that are due and not done (open loop).",
            [s for one in own for s in _list_known({"role": one.role}, one.backlog)],
        )  # fmt: skip
    for percentile, name in (("p50", "recent_p50_ms"), ("p99", "recent_p99_ms")):
        times = [(one.role, ms) for one in groups if (ms := getattr(one, name)) is not None]
        yield _Family(
            f"recent_{percentile}_seconds", "gauge",
            f"{percentile} of the last seconds: response times, in a closed loop service times.",
            [_Sample({"role": role}, ms / _MS) for role, ms in times],
        )  # fmt: skip


def _list_known(labels: Mapping[str, str], value: float | None) -> list[_Sample]:
    return [] if value is None else [_Sample(labels, value)]


def _write_labels(labels: Mapping[str, str]) -> str:
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _write_value(value: float) -> str:
    return repr(float(value)) if isinstance(value, float) else str(int(value))
