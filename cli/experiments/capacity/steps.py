"""The runs of a search: made one after the other, as the search asks for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil

from simulator.contract import InsertRun, Load, ReadRun, Report, Role

from ...errors import RunFailed
from ...plan import share_devices
from ...render.progress import Display
from ...results.capacity import Capacity, CapacityStep
from ...results.rules import DURATION_OPTIONS
from ..context import RunContext
from ..insert import join_environments
from .answer import find_answer
from .limits import count_needed, judge_run
from .search import FIRST_SHARE, choose_next
from .state import SearchState

MOST_FAILURES = 2
"""A rate may be too much for a database; if so many runs in a row give no figures, it is something else."""


def find_capacity(
    state: SearchState,
    context: RunContext,
    display: Display,
    name: str = "",
    after: Sequence[Load] = (),
) -> Capacity:
    """Search until the capacity is sure, or all steps are made; RunFailed if it can't be found out.

    The settings are those of `context.values` (the module's options: `dataclasses.replace(running,
    values=…)` for others) and of the quest. `name` tells labels and logs of several searches apart;
    `after`: what the command does behind this one, for the time that is left.
    """
    searching = _Searching(state, context, display, name, after)
    searching.measure_closed_loop()
    while (rate := searching.choose()) is not None:
        searching.measure(rate)
    return find_answer(state, context.target.cost_per_hour)


def derive_seed(*names: object) -> int:
    """A seed that follows from these: of its own for each step of each search, so that chance in when
    requests are due meets no two of them alike. Below 2^48, so that every JSON reader has it whole."""
    text = json.dumps([str(name) for name in names])
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest())


class _Searching:
    """One search."""

    def __init__(
        self,
        state: SearchState,
        context: RunContext,
        display: Display,
        name: str,
        after: Sequence[Load],
    ) -> None:
        self._state = state
        self._context = context
        self._display = display
        self._name = name
        self._after = after
        self._failures = 0

    def choose(self) -> float | None:
        """The rate of the next step; None: there is none."""
        goal, state = self._state.goal, self._state
        assert goal is not None
        if len(state.offered) >= goal.max_steps:  # some may have no verdict
            return None
        return choose_next(goal, state.tried)

    def measure_closed_loop(self) -> None:
        """Find out what the workers reach without a rate. RunFailed if that gives no figure."""
        report = self._run(self._state.wanted.closed_loop, "closed loop")
        run = report.insert
        assert run is not None
        if not run.inserts_per_s:
            reasons = "; ".join(run.invalid_reasons) or "nothing was acknowledged"
            self._display.end("no figure")
            raise RunFailed(f"the closed loop at the beginning gave no rate to go by: {reasons}")
        self._state.steps.append(CapacityStep(run=run.run))
        self._display.end(f"{run.inserts_per_s:,.0f} inserts/s")
        self._require_requests()

    def _require_requests(self) -> None:
        """RunFailed if steps at the first rate to try have too few requests for a verdict."""
        goal, wanted = self._state.goal, self._state.wanted
        assert goal is not None
        first = FIRST_SHARE * goal.closed_loop_per_s
        if goal.lowest_per_s <= first:
            return
        load = wanted.writers
        assert load.duration_s is not None
        window_s, batch = load.duration_s - load.warm_up_s, load.events_per_request
        option = DURATION_OPTIONS.get(self._context.command, "--duration")
        # Twice that of the first rate, so that there are lower ones to try.
        enough_s = ceil(2 * load.duration_s * goal.lowest_per_s / first)
        raise RunFailed(
            f"at {first:,.0f} events/s, the first rate to try, a step measures"
            f" {first * window_s / batch:,.0f} requests in {window_s:g} s: too few for a verdict, which needs"
            f" {count_needed(wanted.limits):,} and some for chance\n"
            f"Give {option} {enough_s}s or longer, a smaller --batch (now {batch:,}), or more --workers."
        )

    def measure(self, rate: float) -> None:
        """Find out whether a rate holds."""
        wanted = self._state.wanted
        load = wanted.writers.model_copy(update={"rate_per_s": rate})
        number = len(self._state.offered) + 1
        label = f"step {number} of at most {wanted.max_steps}, {rate:,.10g} events/s"
        try:
            report = self._run(load, label, rate)
        except RunFailed as error:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                raise
            self._display.end(f"failed: {error.message}")
            return
        assert report.insert is not None
        verdict = judge_run(report.insert, report.read, wanted.limits, load.events_per_request)
        self._state.steps.append(
            CapacityStep(
                run=report.insert.run,
                rate_per_s=rate,
                seed=self._find_seed(report.insert.run),
                holds=verdict.holds,
                reasons=list(verdict.reasons),
                figures=dict(verdict.figures),
                client_bound=verdict.client_bound,
            )
        )
        reasons = "; ".join(verdict.reasons)
        self._failures = self._failures + 1 if verdict.holds is None else 0
        if verdict.holds is None:
            self._display.end(f"no verdict: {reasons}")
        else:
            self._display.end("holds" if verdict.holds else f"doesn't hold: {reasons}")
        if self._failures >= MOST_FAILURES:
            option = DURATION_OPTIONS.get(self._context.command, "--duration")
            more = ", or a higher --query-rate" if wanted.readers else ", or a smaller --batch"
            raise RunFailed(f"{reasons}\nGive a longer {option}{more}.")

    def _run(self, load: Load, label: str, rate: float | None = None) -> Report:
        """One run, kept in the course, even if it fails."""
        state, wanted = self._state, self._state.wanted
        number = len(state.runs) + 1
        begun = len(state.offered) + (rate is not None)
        coming = [wanted.writers] * (wanted.max_steps - begun)
        self._display.expect([load, *coming, *self._after], at_most=True)
        self._display.begin(f"{self._name}, {label}" if self._name else label)
        loads = (
            [load] if wanted.readers is None else [load, self._make_readers(load, wanted.readers)]
        )
        data = share_devices(wanted.data, wanted.writers.workers)
        data = data.model_copy(update={"seed": self._find_seed(number)})
        settings = self._context.make_settings(data, *loads, loads_by_prefill=True)
        prefix = f"{self._name.replace(' ', '-')}-" if self._name else ""
        try:
            with self._context.series(f"{prefix}step-{number:02d}", [settings]) as series:
                report = self._context.run(series, settings, self._display.update)
        except RunFailed as error:
            self._keep_failure(number, rate, error)
            raise
        state.environment = join_environments(state.environment, report.environment)
        assert report.insert is not None
        report.insert.run, report.insert.phases_s = number, report.phases_s
        state.runs.append(report.insert)
        if report.read is not None:
            report.read.run, report.read.phases_s = number, report.phases_s
            state.reads.append(report.read)
        return report

    def _find_seed(self, number: int) -> int:
        """That of a run: searches of other targets, labels or combinations of settings have others."""
        context, seed = self._context, self._state.wanted.data.seed
        return derive_seed(seed, context.target.name, context.request.label, self._name, number)

    def _make_readers(self, load: Load, readers: Load) -> Load:
        """The readers beside writers with this load: for as long."""
        return readers.model_copy(
            update={"duration_s": load.duration_s, "warm_up_s": load.warm_up_s, "role": Role.READ}
        )

    def _keep_failure(self, number: int, rate: float | None, error: RunFailed) -> None:
        wanted, reasons = self._state.wanted, [error.message]
        failed = {"run": number, "valid": False, "invalid_reasons": reasons}
        workers = wanted.writers.workers
        self._state.runs.append(
            InsertRun.model_validate(
                {**failed, "workers": workers, "fill_level": wanted.data.prefill}
            )
        )
        if wanted.readers is not None:
            self._state.reads.append(
                ReadRun.model_validate({**failed, "workers": wanted.readers.workers})
            )
        if rate is not None:
            self._state.steps.append(
                CapacityStep(run=number, rate_per_s=rate, holds=False, reasons=reasons)
            )
