"""`insert`, `query` and `mixed`: all their runs are known before the first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from simulator.contract import Load, RunLimit, RunResult
from simulator.errors import OptionError, did_you_mean

from ...plan.planning import (
    PlannedRun,
    PlannedSeries,
    add_chance,
    check_capabilities,
    check_query,
    plan_inserts,
    plan_mix,
    plan_queries,
    share_devices,
)
from ...plan.request import Request
from ...plan.requests import InsertRequest, MixedRequest, QueryRequest
from ...results.model import Result
from ...show.measured import ALL_COLUMNS, split_columns
from ...show.tables import INSERT_COLUMNS
from ...system.errors import ConfigError, RunFailed
from .experiment import Experiment, Plan
from .search import check_limits, conclude, find_asked, spread_limits
from .session import Session

_AnyRequest = TypeVar("_AnyRequest", bound=Request)


class _PlannedExperiment(Experiment[_AnyRequest]):
    """An experiment whose runs are all known before the first."""

    @cached_property
    @abstractmethod
    def _series(self) -> Sequence[PlannedSeries]:
        """The planned runs."""

    @cached_property
    def lengths(self) -> Sequence[Load]:
        return [planned.load for series in self._series for planned in series.runs]

    def check(self) -> None:
        super().check()
        data = self._series[-1].runs[-1].data
        if data.retention_s is not None:
            self.session.keep_clock(data)

    @property
    def prefills(self) -> list[int]:
        return [planned.prefill for series in self._series for planned in series.runs]

    @property
    def workers(self) -> list[int]:
        return [planned.workers for series in self._series for planned in series.runs]

    def plan(self) -> Plan:
        label, limited = self.session.request.label, self.request.abort_on_limit
        for series in self._series:
            runs = [add_chance(planned, label) for planned in series.runs]
            if limited:  # limits are about runs in which all groups work
                runs = [
                    replace(planned, abort_limits=self._limits)
                    if len(planned.at_work) == len(planned.loads)
                    else planned
                    for planned in runs
                ]
            yield replace(series, runs=runs)

    @property
    def _limits(self) -> Sequence[RunLimit]:
        """The limits of each run."""
        return self.request.limits

    def _check_limits(self, readers: Load | None) -> None:
        """ConfigError if the limits don't suit these readers."""
        request = self.request
        if request.abort_on_limit and not request.limits:
            raise ConfigError(
                "--abort-on-limit ends a run that can't keep its limits: give a --limit, as in p99=100ms"
            )
        try:
            if request.limits:
                asked = None if readers is None else find_asked(self.session, readers, request.data)
                check_limits(request.limits, asked)
        except OptionError as error:
            raise ConfigError(str(error)) from error

    def add_unfinished(self, result: Result, run: RunResult) -> None:
        result.runs.append(run)
        result.verdicts += self._judge([run]).get("verdicts", [])

    def _judge(self, runs: Sequence[RunResult]) -> dict[str, Any]:
        """The verdicts on the limits in these runs."""
        if not self._limits:
            return {}
        per_request = self.request.load.events_per_request
        return {"verdicts": [conclude(run, self._limits, per_request) for run in runs]}


class InsertExperiment(_PlannedExperiment[InsertRequest]):
    """How many events per second a database takes in, with several worker counts or as the data grows."""

    @cached_property
    def _series(self) -> Sequence[PlannedSeries]:
        return plan_inserts(self.request)

    def check(self) -> None:
        super().check()
        request, session = self.request, self.session
        most = request.load.model_copy(update={"workers": max(request.workers)})
        check_capabilities(request, session.module, session.options, most)
        for name in split_columns(request.columns or ALL_COLUMNS):
            if name not in (ALL_COLUMNS, *INSERT_COLUMNS):
                raise ConfigError(
                    f"--columns: there is no column {name!r}{did_you_mean(name, INSERT_COLUMNS)} (there"
                    f" are: all, {', '.join(INSERT_COLUMNS)})"
                )
        for limit in request.limits:
            if limit.query is not None:
                raise ConfigError(
                    f"--limit {limit} is for a query, and insert runs none: use mixed"
                )
        self._check_limits(None)

    def summarize(self) -> dict[str, Any]:
        return self._judge(self.runs)


class QueryExperiment(_PlannedExperiment[QueryRequest]):
    """How fast a database answers: one run that executes each query."""

    @cached_property
    def _series(self) -> Sequence[PlannedSeries]:
        return [plan_queries(self.request)]

    def check(self) -> None:
        super().check()
        request, session = self.request, self.session
        check_query(request.load, request.data, session.module, session.options)
        self._check_limits(request.load)

    @cached_property
    def _limits(self) -> Sequence[RunLimit]:
        request = self.request
        if not request.limits:
            return ()
        return spread_limits(request.limits, find_asked(self.session, request.load, request.data))

    def absorb(self, planned: PlannedRun, run: RunResult, failure: RunFailed | None) -> str:
        outcome = "done" if run.valid else "done, not all valid"
        return "failed" if failure else outcome

    def list_options(self) -> dict[str, Any]:
        return self.request.list_options()

    def summarize(self) -> dict[str, Any]:
        return self._judge(self.runs)


class MixedExperiment(_PlannedExperiment[MixedRequest]):
    """How fast a database takes in events while it answers queries, and how fast it answers meanwhile."""

    def __init__(self, request: MixedRequest, session: Session) -> None:
        super().__init__(request, session)
        self._together: list[RunResult] = []
        self._alone: list[RunResult] = []

    @cached_property
    def _series(self) -> Sequence[PlannedSeries]:
        return [plan_mix(self.request)]

    def check(self) -> None:
        super().check()
        mix, session = self.request, self.session
        check_capabilities(mix, session.module, session.options)
        data = share_devices(mix.data, mix.load.workers)
        assert mix.readers is not None
        check_query(mix.readers, data, session.module, session.options, "--prefill")
        self._check_limits(mix.readers)

    def absorb(self, planned: PlannedRun, run: RunResult, failure: RunFailed | None) -> str:
        alone = len(planned.at_work) < len(planned.loads)
        (self._alone if alone else self._together).append(run)
        return super().absorb(planned, run, failure)

    def add_unfinished(self, result: Result, run: RunResult) -> None:
        if run.writers is None or run.readers is None:
            result.baseline.append(run)
        else:
            super().add_unfinished(result, run)

    def summarize(self) -> dict[str, Any]:
        return {
            "runs": self._together,
            "baseline": self._alone,
            **self._judge(self._together),
        }
