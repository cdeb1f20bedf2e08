"""Defines the columns of the tables of inserts, of readers and of a search's steps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, log10
from operator import attrgetter
from statistics import fmean
from typing import Generic, TypeVar

from simulator.contract import GroupResult

from .answers import CapacityStep
from .entries import Entry
from .figures import FIGURES, Form
from .model import InsertSummary
from .rules import limit_of_clients_part
from .statistics import Summary
from .summaries import find_offered_rate, find_slowest


@dataclass(frozen=True)
class Runs:
    """The subject of a row: the runs of a worker count, or the step at a fill level."""

    entries: Sequence[Entry]
    rates: Summary | InsertSummary | None
    """Of the valid runs, or of all if none is valid."""
    counts: bool
    """Whether any is valid; otherwise the rates are struck through."""
    events_per_cost: float | None = None
    """Events per unit of currency."""

    @property
    def valid(self) -> list[GroupResult]:
        """The measurements of the valid runs."""
        return [entry.group for entry in self.entries if entry.group.valid]

    @property
    def counted(self) -> list[GroupResult]:
        """The same, but of all runs if none is valid."""
        return self.valid or [entry.group for entry in self.entries]

    @cached_property
    def slowest(self) -> GroupResult | None:
        """The valid run with the highest p99, which an average would hide."""
        return find_slowest([group for group in self.valid if group.client])

    @cached_property
    def slowest_readers(self) -> GroupResult | None:
        """For readers, the counted run with the highest p99."""
        return find_slowest(self.counted)


@dataclass(frozen=True)
class Tried:
    """The subject of a row: a step of a search for a capacity."""

    number: int
    """0: the closed loop."""
    step: CapacityStep
    entry: Entry
    """The writers' measurements."""


RowT = TypeVar("RowT", Runs, Tried)


@dataclass(frozen=True)
class Column(Generic[RowT]):
    """A column of a table whose rows cover several runs, or a step."""

    heading: str
    about: str
    show: Callable[[RowT], str]
    key: str | None = None
    """Key of the single-run figure that it summarizes, if any."""
    struck: bool = False
    """Whether it is struck through if no run is valid."""


def _of_rates(name: str, form: Form, *, always: bool = False) -> Callable[[Runs], str]:
    """Shows a figure of the rates; unless `always`, only if they count."""

    def show(runs: Runs) -> str:
        return form.show(
            getattr(runs.rates, name) if runs.rates and (always or runs.counts) else None
        )

    return show


def _of_interval(form: Form, *, always: bool = False) -> Callable[[Runs], str]:
    def show(runs: Runs) -> str:
        ends = runs.rates.ci95 if runs.rates and (always or runs.counts) else None
        return "-" if ends is None else " to ".join(map(form.show, ends))

    return show


def _of_slowest(find: Callable[[Runs], GroupResult | None], *path: str) -> Callable[[Runs], str]:
    def show(runs: Runs) -> str:
        value: object = find(runs)
        for name in path:
            value = None if value is None else getattr(value, name)
        return Form.DIGITS.show(value)

    return show


def _show_achieved(runs: Runs) -> str:
    saturated = any(group.offered and group.offered.saturated for group in runs.valid)
    return _AVG(runs) + (" saturated" if saturated else "")


def _show_client(groups: Sequence[GroupResult]) -> str:
    """CPU of the busiest client of some runs, and whether it was the limit, or else the maximum speed-up with
    an ideal client."""
    clients = [group.client for group in groups if group.client]
    text = f"{max((client.cpu_share for client in clients), default=0.0):.0%}"
    if any(client.bound for client in clients):
        return f"{text} bound"
    limits = [limit for group in groups if (limit := limit_of_clients_part(group))]
    return f"{text} (≤ {max(limits):.2f}×)" if limits else text


def _show_offered_to_readers(runs: Runs) -> str:
    groups = [entry.group for entry in runs.entries]
    rates = [
        group.offered.due / group.window_s for group in groups if group.offered and group.window_s
    ]
    return Form.FINE_RATE.show(fmean(rates) if rates else None)


def format_cost(events_per_cost: float) -> str:
    """The cost of a million events: two decimals, or two significant digits of small amounts."""
    cost = 1e6 / events_per_cost
    return f"{cost:,.{max(2, 1 - floor(log10(cost)))}f}"


_AVG = _of_rates("avg", Form.RATE, always=True)
_WRITER, _READER = attrgetter("slowest"), attrgetter("slowest_readers")
COST = "Cost/million"

_C = Column
_WRITERS: tuple[Column[Runs], ...] = (
    _C("Workers", "concurrent writers", lambda runs: f"{runs.entries[0].group.workers:,}", "workers"),
    _C("Level", "events in the database before the step",
       lambda runs: Form.COUNT.show(runs.entries[0].group_run.run.fill_level), "fill_level"),
    _C("Min", "the lowest of the runs", _of_rates("min", Form.RATE, always=True), "inserts_per_s", True),
    _C("Max", "the highest", _of_rates("max", Form.RATE, always=True), "inserts_per_s", True),
    _C("Avg", "the mean over the runs", _AVG, "inserts_per_s", True),
    _C("Median", "their median", _of_rates("median", Form.RATE), "inserts_per_s"),
    _C("95% interval", "the mean's", _of_interval(Form.RATE)),
    _C("CV", "standard deviation ÷ mean", _of_rates("cv", Form.EXACT_SHARE)),
    _C("Inserts/s", "the step's rate, rounded to tens", _AVG, "inserts_per_s", True),
    _C("Offered/s", "what was due per second, the mean over the runs",
       lambda runs: Form.RATE.show(find_offered_rate([entry.group_run for entry in runs.entries]))),
    _C("Achieved/s", "the mean rate, and whether the database didn't keep up", _show_achieved,
       "inserts_per_s", True),
    _C("Response p50 ms", "of the slowest run, from when a request was due",
       _of_slowest(_WRITER, "latency_ms", "p50"), "latency_p50_ms"),
    _C("p50 ms", "of the slowest run", _of_slowest(_WRITER, "latency_ms", "p50"), "latency_p50_ms"),
    _C("p99 ms", "of the slowest run: the one with the highest p99",
       _of_slowest(_WRITER, "latency_ms", "p99"), "latency_p99_ms"),
    _C("Service p99", "of the slowest run, from when a request was sent",
       _of_slowest(_WRITER, "service_ms", "p99"), "service_p99_ms"),
    _C("Client CPU", "of the busiest worker; how many times as fast an ideal client could be at most",
       lambda runs: _show_client([group for group in runs.valid if group.latency_ms and group.client])
       if runs.slowest else "-", "client_cpu_share"),
    _C(COST, "what a million events cost, in the currency of `cost_per_hour`",
       lambda runs: format_cost(runs.events_per_cost) if runs.events_per_cost else "-", "events_per_cost"),
)  # fmt: skip
WRITERS = {column.heading: column for column in _WRITERS}
"""Heading -> column of the table of inserts."""

_READERS: tuple[Column[Runs], ...] = (
    _C("Readers", "how many asked at once", lambda runs: f"{runs.entries[0].group.workers:,}", "workers"),
    _C("Min", "the lowest of the runs", _of_rates("min", Form.FINE_RATE, always=True), "queries_per_s", True),
    _C("Max", "the highest", _of_rates("max", Form.FINE_RATE, always=True), "queries_per_s", True),
    _C("Avg", "the mean over the runs", _of_rates("avg", Form.FINE_RATE, always=True), "queries_per_s", True),
    _C("95% interval", "the mean's", _of_interval(Form.FINE_RATE, always=True), None, True),
    _C("CV", "standard deviation ÷ mean", _of_rates("cv", Form.EXACT_SHARE, always=True), None, True),
    _C("Offered", "what was due per second, the mean over the runs", _show_offered_to_readers),
    _C("Response p50 ms", "of the slowest run, from when a query was due",
       _of_slowest(_READER, "latency_ms", "p50"), "latency_p50_ms"),
    _C("Latency p50 ms", "of the slowest run", _of_slowest(_READER, "latency_ms", "p50"), "latency_p50_ms"),
    _C("p99 ms", "of the slowest run: the one with the highest p99",
       _of_slowest(_READER, "latency_ms", "p99"), "latency_p99_ms"),
    _C("Failed", "queries without an answer",
       lambda runs: f"{sum(q.errors for entry in runs.entries for q in entry.group.queries):,}", "failed"),
    _C("Client CPU", "of the busiest reader", lambda runs: _show_client(runs.counted), "client_cpu_share"),
)  # fmt: skip
READERS = {column.heading: column for column in _READERS}
"""Heading -> column of the table of readers."""


def _of_step(heading: str, about: str, key: str) -> Column[Tried]:
    return Column(heading, about, lambda tried: FIGURES[key].show(tried.entry), key, struck=True)


def _show_client_of_step(tried: Tried) -> str:
    client = tried.entry.group.client
    return "-" if client is None else f"{client.cpu_share:.0%}{' bound' * client.bound}"


STEPS: tuple[Column[Tried], ...] = (
    _C("Step", "its number; `-`: the closed loop that comes first",
       lambda tried: f"{tried.number:,}" if tried.number else "-"),
    _C("Rate", "events per second that were asked for",
       lambda tried: f"{rate:,.10g}" if (rate := tried.step.rate_per_s) is not None else "closed loop"),
    _C("Offered/s", "what was due per second",
       lambda tried: Form.RATE.show(find_offered_rate([tried.entry.group_run]))),
    _of_step("Achieved/s", "what was done", "inserts_per_s"),
    _of_step("p50 ms", "from when a request was due", "latency_p50_ms"),
    _of_step("p99 ms", "the same", "latency_p99_ms"),
    _of_step("p99.9 ms", "the same", "latency_p99_9_ms"),
    _of_step("Service p99", "from when a request was sent", "service_p99_ms"),
    _C("Client CPU", "of the busiest worker", _show_client_of_step, "client_cpu_share"),
)  # fmt: skip
"""The columns of a capacity's steps, before those of its other limits and the verdict."""
