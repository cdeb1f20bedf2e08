"""The work of `tune`: try combinations, keep the result, print what suits."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simulator.contract import DataSet, InsertRun, Load
from simulator.units import format_count, format_span

from ...errors import ConfigError, RunFailed
from ...output import note, print_prose, say, terminal_width
from ...plan import Sweep, check_capabilities, public_data, public_load, share_devices
from ...render.notes import summarize_notes
from ...render.progress import Display
from ...render.tuning import advise, describe_tuning, tabulate_tuning
from ...results.capacity import CapacityLimit
from ...results.model import Result
from ...results.naming import format_options
from ...results.tuning import Trial, Tuning
from ...signals import Interrupts
from ..capacity.state import CapacityRequest, SearchState
from ..capacity.steps import find_capacity
from ..context import RunContext
from ..experiment import Experiment, run_experiment
from ..insert import join_environments
from ..session import CommonOptions, Session, open_session
from .halving import (
    LEFT,
    MOST_COMBINATIONS,
    choose_better_half,
    choose_finalists,
    combine,
    count_stages,
    halve,
    plan_final,
    shuffle,
    stretch,
)
from .settings import apply_settings, read_over

ROUGH_PRECISION, ROUGH_STEPS = 0.25, 6
"""Of a search for the capacity before the last stage, which only has to tell halves apart."""


@dataclass(frozen=True)
class TuneRequest:
    """What `tune` is asked for."""

    load: Load
    """Of a run of the first stage, but for what is varied: with a duration."""
    data: DataSet
    over: Sequence[str]
    limits: Sequence[CapacityLimit] = ()
    runs: int = 3
    """Of each finalist."""
    precision: float = 0.05
    max_steps: int = 16
    given: Collection[str] = ()
    """Names of the options that stood on the command line."""


def run_tuning(wanted: TuneRequest, request: CommonOptions, interrupts: Interrupts) -> int:
    """Try all combinations; the exit status. What is done when something goes wrong is kept."""
    session = open_session(request)
    session.disturbances = ()
    wanted = replace(wanted, data=session.complete(wanted.data, existing=False))
    over = read_over(wanted.over, wanted.load, session.assume_options(), session.complete_values())
    candidates = combine(over)
    if len(candidates) > MOST_COMBINATIONS:
        raise ConfigError(
            f"--over gives {len(candidates):,} combinations: {MOST_COMBINATIONS} are the most;"
            " tune the settings that matter most first"
        )
    tuning = Tuning(over=over, candidates=candidates, limits=list(wanted.limits))
    made = _TuneExperiment(wanted, tuning, session)
    made.check()
    return run_experiment(made, "tune", session, list_loads(wanted, tuning), interrupts)


def list_loads(wanted: TuneRequest, tuning: Tuning) -> list[Load]:
    """Of all runs that may be needed, the load that says how long they go on."""
    count = len(tuning.candidates)
    loads: list[Load] = []
    stages = count_stages(count)
    for stage in range(1, stages + 1):
        loads += [stretch_load(wanted.load, stage)] * count * _count_runs(wanted, final=False)
        count = halve(count)
    # With its only setting at its default, the best is the defaults.
    reset = len(tuning.over) if len(tuning.over) > 1 else 0
    finalists = min(len(tuning.candidates), LEFT) + 1 + reset
    final = stretch_load(wanted.load, stages + 1)
    return loads + [final] * (finalists * wanted.runs) * _count_runs(wanted, final=True)


def _count_runs(wanted: TuneRequest, final: bool) -> int:
    """Of one measurement: a search for the capacity has several."""
    if not wanted.limits:
        return 1
    return 1 + (wanted.max_steps if final else min(wanted.max_steps, ROUGH_STEPS))


def stretch_load(load: Load, stage: int) -> Load:
    """The load of a later stage: longer."""
    assert load.duration_s is not None
    times = stretch(stage)
    longer = {"duration_s": load.duration_s * times, "warm_up_s": load.warm_up_s * times}
    return load.model_copy(update=longer)


class _TuneExperiment(Experiment):
    """The trials made so far."""

    def __init__(self, wanted: TuneRequest, tuning: Tuning, session: Session) -> None:
        self._wanted = wanted
        self.prefill = wanted.data.prefill
        self._tuning = tuning
        self._session = session
        self._runs: list[InsertRun] = []
        self._environment: dict[str, Any] = {}

    @property
    def count(self) -> int:
        return len(self._runs)

    def check(self) -> None:
        """ConfigError if the module can't do a combination, before any is tried."""
        module, session = self._session.module, self._session
        for settings in [*self._tuning.candidates, self._tuning.defaults]:
            load, values = self._apply(settings, session.complete_values())
            options = module.options_model.model_validate(values)
            sweep = Sweep(
                load, self._wanted.data, [load.workers], given=frozenset(self._wanted.given)
            )
            try:
                check_capabilities(sweep, session.module, options)
            except ConfigError as error:
                raise ConfigError(f"--over, {format_options(settings)}: {error.message}") from error

    def _apply(
        self, settings: dict[str, Any], given: Mapping[str, Any] | None = None
    ) -> tuple[Load, dict[str, Any]]:
        """Load and options of a combination. `given`: the module's options; None: what its processes are
        told."""
        model = self._session.module.options_model
        return apply_settings(settings, self._wanted.load, given or self._session.values, model)

    def make(self, context: RunContext, display: Display) -> None:
        most = max(self._apply(own)[0].workers for own in self._tuning.candidates)
        context.executor.check_capacity([most])
        note(self._describe_length())
        # Of the defaults and of settings left at theirs, some are among the finalists already.
        display.expect(list_loads(self._wanted, self._tuning), at_most=True)
        left = list(range(len(self._tuning.candidates)))
        stages = count_stages(len(left))
        for stage in range(1, stages + 1):
            title = f"stage {stage} of {stages + 1}"
            for place, candidate in enumerate(shuffle(left, self._wanted.data.seed, stage), 1):
                label = f"{title}, {place} of {len(left)}"
                self._try(candidate, stage, label, context, display, final=False)
            left = choose_better_half(self._tuning, left)
            if not left:
                raise RunFailed("no combination gave a figure: see the errors above")
        candidates, finalists = choose_finalists(self._tuning, left)
        self._tuning.candidates, self._tuning.finalists = candidates, finalists
        turns = plan_final(finalists, self._wanted.runs)
        for place, candidate in enumerate(turns, 1):
            label = f"comparison, {place} of {len(turns)}"
            self._try(candidate, stages + 1, label, context, display, final=True)

    def _try(
        self,
        candidate: int,
        stage: int,
        label: str,
        context: RunContext,
        display: Display,
        final: bool,
    ) -> None:
        """One measurement, kept in the tuning; a combination that fails is one without a figure."""
        settings = self._tuning.candidates[candidate]
        load, values = self._apply(settings)
        load = stretch_load(load, stage)
        tried = replace(context, values=values | _keep_server(context, self._session))
        label = f"{label}: {format_options(settings)}"
        trial = Trial(candidate=candidate, stage=stage)
        self._tuning.trials.append(trial)
        try:
            if self._wanted.limits:
                self._search(trial, load, label, tried, display, final)
            else:
                self._insert(trial, load, label, tried, display)
        except RunFailed as error:
            trial.reasons.append(error.message)
            display.end(f"failed: {error.message}")

    def _insert(
        self, trial: Trial, load: Load, label: str, context: RunContext, display: Display
    ) -> None:
        number = len(self._runs) + 1
        display.begin(label)
        settings = context.make_settings(self._make_data(load, number), load)
        # By the trial: one that failed has made a folder and kept no run.
        logs = f"trial-{len(self._tuning.trials):03d}"
        with context.series(logs, [settings]) as series:
            report = context.run(series, settings, display.update)
        run = report.insert
        assert run is not None
        run.run, run.phases_s = number, report.phases_s
        self._keep(trial, [run], report.environment)
        if run.valid:
            trial.rate_per_s = run.inserts_per_s
        trial.reasons += run.invalid_reasons
        rate = f"{run.inserts_per_s:,.0f} inserts/s" if run.inserts_per_s else "no figure"
        display.end(rate if run.valid else f"invalid ({'; '.join(run.invalid_reasons)}): {rate}")

    def _search(
        self,
        trial: Trial,
        load: Load,
        label: str,
        context: RunContext,
        display: Display,
        final: bool,
    ) -> None:
        wanted, number = self._wanted, len(self._tuning.trials)
        precision = wanted.precision if final else max(wanted.precision, ROUGH_PRECISION)
        steps = wanted.max_steps if final else min(wanted.max_steps, ROUGH_STEPS)
        data = self._make_data(load, number)
        course = SearchState(CapacityRequest(load, data, wanted.limits, None, precision, steps))
        try:
            found = find_capacity(course, context, display, f"trial {number}")
        finally:
            first = len(self._runs)
            for place, run in enumerate(course.runs, 1):
                run.run = first + place
            self._keep(trial, course.runs, course.environment)
        trial.rate_per_s = found.events_per_s
        if found.events_per_s is None:
            trial.reasons.append("no rate that was tried holds")
        rate = f"{found.events_per_s:,.10g} events/s" if found.events_per_s else "no rate holds"
        note(f"{label}: {rate}")

    def _make_data(self, load: Load, number: int) -> DataSet:
        """The data of one run: with a seed of its own, and its devices shared out over its workers."""
        data = share_devices(self._wanted.data, load.workers)
        return data.model_copy(update={"seed": (data.seed + number) % 2**64})

    def _keep(self, trial: Trial, runs: Sequence[InsertRun], environment: dict[str, Any]) -> None:
        self._runs += runs
        trial.runs += [run.run for run in runs]
        if environment:
            self._environment = join_environments(self._environment, environment)

    def result(self, context: RunContext, complete: bool) -> Result:
        wanted = self._wanted
        options = {
            "workers": [wanted.load.workers],
            "runs": wanted.runs,
            "limits": [str(limit) for limit in wanted.limits],
            **public_load(wanted.load),
            **public_data(wanted.data),
        }
        return context.make_result(
            "tune",
            self._session,
            options,
            self._environment,
            complete=complete,
            cost_per_hour=self._session.target.cost_per_hour,
            runs=self._runs,
            tuning=self._tuning,
        )

    def show(self, result: Result) -> None:
        say(tabulate_tuning(result).text(width=terminal_width()))
        for line in ["", *describe_tuning(result), *summarize_notes(result, sys.stdout.isatty())]:
            print_prose(line)
        say(advise(result))

    def _describe_length(self) -> str:
        all_s = sum(load.duration_s or 0.0 for load in list_loads(self._wanted, self._tuning))
        count = len(self._tuning.candidates)
        return (
            f"{format_count(count, 'combination')} in {format_count(count_stages(count), 'stage')}, and"
            f" {format_count(self._wanted.runs, 'run')} of each that is compared at the end:"
            f" {format_span(all_s)} at most, without what is before and after each run"
        )


def _keep_server(context: RunContext, session: Session) -> dict[str, Any]:
    """What a server that the tool has started is reached by."""
    return {
        name: value for name, value in context.values.items() if session.values.get(name) != value
    }
