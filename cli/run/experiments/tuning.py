"""`tune`: which settings suit a database. What `--over` names, and which combinations continue.

Successive halving: many combinations get a little time each, the better half twice as much, and so on.
Jamieson & Talwalkar, Non-stochastic best arm identification and hyperparameter optimization, AISTATS 2016,
https://arxiv.org/abs/1502.07943.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

from pydantic import ValidationError

from simulator.contract import DataSet, Load, RunResult
from simulator.errors import OptionError
from simulator.modules.options import Options, parse_options
from simulator.units import format_count, format_span, parse_amount

from ...plan.planning import PlannedRun, PlannedSeries, check_capabilities, share_devices
from ...plan.requests import CapacityRequest, TuneRequest
from ...results.answers import Trial, TunedSetting, Tuning, mean
from ...results.naming import format_options
from ...system.errors import ConfigError, RunFailed
from ...system.output import note
from .capacity import CapacitySearch, find_answer
from .experiment import Experiment, Plan, describe_outcome
from .session import Session

ROUGH_PRECISION, ROUGH_STEPS = 0.25, 6
"""For a capacity search before the last stage, which only has to tell the halves apart."""


def list_loads(request: TuneRequest, tuning: Tuning) -> list[Load]:
    """For each run that may be needed, the load that determines its length."""
    count = len(tuning.candidates)
    loads: list[Load] = []
    stages = count_stages(count)
    for stage in range(1, stages + 1):
        loads += [stretch_load(request.load, stage)] * count * _count_runs(request, final=False)
        count = halve(count)
    # With a single setting, the best with that setting at its default is the defaults.
    reset = len(tuning.over) if len(tuning.over) > 1 else 0
    finalists = min(len(tuning.candidates), LEFT) + 1 + reset
    final = stretch_load(request.load, stages + 1)
    return loads + [final] * (finalists * request.runs) * _count_runs(request, final=True)


def _count_runs(request: TuneRequest, final: bool) -> int:
    """How many runs a measurement has: a capacity search has several."""
    if not request.limits:
        return 1
    return 1 + (request.max_steps if final else min(request.max_steps, ROUGH_STEPS))


def stretch_load(load: Load, stage: int) -> Load:
    """The longer load of a later stage."""
    assert load.duration_s is not None
    times = stretch(stage)
    longer = {"duration_s": load.duration_s * times, "warm_up_s": load.warm_up_s * times}
    return load.model_copy(update=longer)


class TuneExperiment(Experiment[TuneRequest]):
    """Trials of combinations: one run each or, with limits, a capacity search."""

    at_most: ClassVar = True
    """The defaults, or the best with one setting at its default, may already be among the finalists."""

    def __init__(self, request: TuneRequest, session: Session) -> None:
        super().__init__(request, session)
        self._search: CapacitySearch | None = None
        """The search of the trial under way, if there are limits."""

    @cached_property
    def tuning(self) -> Tuning:
        """What is varied, and what was tried so far. ConfigError if a setting can't be varied like this."""
        request, session = self.request, self.session
        options, values = session.assume_options(), session.complete_values()
        over = read_over(request.over, request.load, options, values)
        candidates = combine(over)
        if len(candidates) > MOST_COMBINATIONS:
            raise ConfigError(
                f"--over gives {len(candidates):,} combinations: at most {MOST_COMBINATIONS} are possible;"
                " vary the settings that matter most first"
            )
        return Tuning(over=over, candidates=candidates, limits=list(request.limits))

    @cached_property
    def lengths(self) -> Sequence[Load]:
        return list_loads(self.request, self.tuning)

    def check(self) -> None:
        super().check()
        request, session = self.request, self.session
        for settings in [*self.tuning.candidates, self.tuning.defaults]:
            load, values = self._apply(settings, session.complete_values())
            try:
                checked = session.module.options_model.model_validate(values)
                check_capabilities(request, session.module, checked, load)
            except ConfigError as error:
                raise ConfigError(f"--over, {format_options(settings)}: {error.message}") from error

    def _apply(
        self, settings: dict[str, Any], values: Mapping[str, Any] | None = None
    ) -> tuple[Load, dict[str, Any]]:
        """Load and options of a combination. `values`: the module's options; None: those that its processes
        get."""
        model, session = self.session.module.options_model, self.session
        return apply_settings(settings, self.request.load, values or session.values, model)

    @property
    def workers(self) -> list[int]:
        return [self._apply(settings)[0].workers for settings in self.tuning.candidates]

    def describe_length(self) -> str:
        all_s = sum(load.duration_s or 0.0 for load in self.lengths)
        count = len(self.tuning.candidates)
        return (
            f"{format_count(count, 'combination')} in {format_count(count_stages(count), 'stage')}, and"
            f" {format_count(self.request.runs, 'run')} of each that is compared at the end:"
            f" {format_span(all_s)} at most, plus the time before and after each run"
        )

    def plan(self) -> Plan:
        tuning, request = self.tuning, self.request
        remaining = list(range(len(tuning.candidates)))
        stages = count_stages(len(remaining))
        for stage in range(1, stages + 1):
            title = f"stage {stage} of {stages + 1}"
            for place, candidate in enumerate(shuffle(remaining, request.data.seed, stage), 1):
                yield from self._try(candidate, stage, f"{title}, {place} of {len(remaining)}")
            remaining = choose_better_half(tuning, remaining)
            if not remaining:
                raise RunFailed("no combination gave a figure: see the errors above")
        tuning.candidates, tuning.finalists = choose_finalists(tuning, remaining)
        turns = plan_final(tuning.finalists, request.runs)
        for place, candidate in enumerate(turns, 1):
            label = f"comparison, {place} of {len(turns)}"
            yield from self._try(candidate, stages + 1, label, final=True)

    def _try(self, candidate: int, stage: int, label: str, final: bool = False) -> Plan:
        """One measurement, kept in the tuning. A combination that fails has no figure."""
        settings = self.tuning.candidates[candidate]
        load, options = self._apply(settings)
        load = stretch_load(load, stage)
        label = f"{label}: {format_options(settings)}"
        trial = Trial(candidate=candidate, stage=stage)
        self.tuning.trials.append(trial)
        try:
            if self.request.limits:
                yield from self._search_capacity(trial, load, options, label, final)
            else:
                number = len(self.runs) + 1
                run = PlannedRun(label, number, self._make_data(load, number), (load,), options)
                # Named after the trial, so that a failed one has its own folder, too.
                yield PlannedSeries(f"trial-{len(self.tuning.trials):03d}", [run])
        except RunFailed as error:
            trial.reasons.append(error.message)
            if self.request.limits:
                note(f"{label}: failed: {error.message}")

    def _search_capacity(
        self, trial: Trial, load: Load, options: Mapping[str, Any], label: str, final: bool
    ) -> Plan:
        tuned, number = self.request, len(self.tuning.trials)
        request = CapacityRequest(
            target=tuned.target,
            limits=tuned.limits,
            precision=tuned.precision if final else max(tuned.precision, ROUGH_PRECISION),
            max_steps=tuned.max_steps if final else min(tuned.max_steps, ROUGH_STEPS),
        ).with_work(load, self._make_data(load, number))
        search = self._search = CapacitySearch(
            request,
            command=self.command,
            of=(self.session.target.name, self.session.request.label),
            name=f"trial {number}",
            options=options,
            runs_before=len(self.runs),
        )
        yield from search.plan()
        trial.rate_per_s = find_answer(search).events_per_s
        if trial.rate_per_s is None:
            trial.reasons.append("no rate that was tried holds")
        rate = f"{trial.rate_per_s:,.10g} events/s" if trial.rate_per_s else "no rate holds"
        if not self.session.request.quiet:
            note(f"{label}: {rate}")

    def absorb(self, planned: PlannedRun, run: RunResult, failure: RunFailed | None) -> str:
        trial = self.tuning.trials[-1]
        trial.runs.append(run.run)
        if self._search is not None:
            return self._search.absorb(planned, run, failure)
        if failure:
            return f"failed: {failure.message}"
        if run.valid and run.writers:
            trial.rate_per_s = run.writers.rate_per_s
        trial.reasons += run.invalid_reasons
        return describe_outcome(run)

    def _make_data(self, load: Load, number: int) -> DataSet:
        """The data of one run: with its own seed, and its devices divided among its workers."""
        data = share_devices(self.request.data, load.workers)
        return data.model_copy(update={"seed": (data.seed + number) % 2**64})

    def list_options(self) -> dict[str, Any]:
        return self.request.list_options()

    def summarize(self) -> dict[str, Any]:
        return {"tuning": self.tuning}


# --- what is varied -------------------------------------------------------------------------------

LOAD_SETTINGS = ("workers", "batch", "in_flight", "primary_key", "tables")
"""Fields of the load that can be varied: those that an application could choose."""


def read_over(
    texts: Sequence[str], load: Load, options: Options, values: Mapping[str, Any]
) -> list[TunedSetting]:
    """The settings of `batch=100,1000` and so on. ConfigError for an unknown setting or a wrong value.

    `load`, `options`: what is given otherwise; `values`: the module's options as they are given.
    """
    settings: list[TunedSetting] = []
    for text in texts:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        parts = [part.strip() for part in listed.split(",")]
        if not equals or not all(parts):
            raise ConfigError(
                f"--over {text!r}: write a setting and values, as in batch=100,1000,10000"
            )
        if name in LOAD_SETTINGS:
            setting = _read_load_setting(name, parts, load, options)
        else:
            setting = _read_option(name, parts, options, values)
        if any(other.name == setting.name for other in settings):
            raise ConfigError(f"--over names {setting.name} twice: give all its values at once")
        twice = [value for value in setting.values if setting.values.count(value) > 1]
        if twice:
            raise ConfigError(f"--over {setting.name} has the value {twice[0]} twice")
        settings.append(setting)
    if not settings:
        raise ConfigError("tune needs a setting to vary: --over batch=100,1000,10000")
    return settings


def _read_load_setting(
    name: str, parts: Sequence[str], load: Load, options: Options
) -> TunedSetting:
    values = []
    for part in parts:
        amount = parse_amount(part)
        value: Any = part if amount is None or amount != int(amount) else int(amount)
        try:
            checked = Load.model_validate({**load.model_dump(by_alias=True), name: value})
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ConfigError(f"--over {name}={part}: {reason[:1].lower()}{reason[1:]}") from error
        values.append(checked.model_dump(mode="json")[name])
    default = load.model_dump(mode="json")[name]
    if name == "in_flight":
        default = options.in_flight(load)
    return TunedSetting(name=name, values=values, default=default)


def apply_settings(
    settings: Mapping[str, Any], load: Load, option_values: Mapping[str, Any], model: type[Options]
) -> tuple[Load, dict[str, Any]]:
    """The load and the module's options of a combination."""
    changed = {name: value for name, value in settings.items() if name in LOAD_SETTINGS}
    values = dict(option_values)
    if "in_flight" in changed and model.IN_FLIGHT is not None:
        # The load has it, and must not be contradicted.
        values.pop(model.IN_FLIGHT, None)
    values |= {name: value for name, value in settings.items() if name not in LOAD_SETTINGS}
    return Load.model_validate({**load.model_dump(by_alias=True), **changed}), values


def _read_option(
    name: str, parts: Sequence[str], options: Options, option_values: Mapping[str, Any]
) -> TunedSetting:
    model = type(options)
    field = model.model_fields.get(name)
    names = [*LOAD_SETTINGS, *(own for own, f in model.model_fields.items() if f.repr)]
    if field is None or not field.repr:
        near = difflib.get_close_matches(name, names, 1)
        hint = f"; did you mean {near[0]}?" if near else f" (known: {', '.join(sorted(names))})"
        raise ConfigError(f"--over: there is no setting {name!r} that could be varied{hint}")
    if name == model.IN_FLIGHT:
        raise ConfigError(f"--over {name}: write in_flight, which is its name in every module")
    values = [_parse_option(name, part, options, option_values) for part in parts]
    return TunedSetting(
        name=name, option=True, values=values, default=options.model_dump(mode="json")[name]
    )


def _parse_option(name: str, text: str, options: Options, option_values: Mapping[str, Any]) -> Any:
    try:
        parsed = parse_options(
            type(options), {**option_values, name: text}, lambda _: f"--over {name}={text}"
        )
    except OptionError as error:
        raise ConfigError(str(error)) from error
    return parsed.model_dump(mode="json")[name]


# --- which continue -------------------------------------------------------------------------------

MOST_COMBINATIONS = 512
LEFT = 2
"""How many combinations are compared at the end, besides the defaults."""
MOST_TIMES_LONGER = 8
"""A run of the last stages takes this many times as long as one of the first stage."""


def combine(over: Sequence[TunedSetting]) -> list[dict[str, Any]]:
    """All combinations."""
    names = [setting.name for setting in over]
    return [
        dict(zip(names, values, strict=True))
        for values in product(*(setting.values for setting in over))
    ]


def count_stages(candidates: int) -> int:
    """How many times to choose the better half until `LEFT` are left; at least once, so that it is known
    which is better."""
    stages = 1
    while (candidates := halve(candidates)) > LEFT:
        stages += 1
    return stages


def halve(candidates: int) -> int:
    """How many of this many candidates continue to the next stage."""
    return max(LEFT, -(-candidates // 2))


def stretch(stage: int) -> int:
    """How many times as long as in the first stage a run of this stage takes."""
    return int(min(2 ** (stage - 1), MOST_TIMES_LONGER))


def shuffle(candidates: Sequence[int], seed: int, stage: int) -> list[int]:
    """The order of a stage: random, so that drift favours none."""
    order = list(candidates)
    random.Random(f"{seed} {stage}").shuffle(order)
    return order


def choose_better_half(tuning: Tuning, candidates: Sequence[int]) -> list[int]:
    """The candidates that continue, the best first, by the geometric mean of all their figures. One without a
    figure doesn't continue."""
    rates = {candidate: tuning.find_rates(candidate) for candidate in candidates}
    measured = [candidate for candidate in candidates if rates[candidate]]
    ranked = sorted(measured, key=lambda candidate: -mean(rates[candidate]))
    return ranked[: halve(len(candidates))]


def choose_finalists(tuning: Tuning, best: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """The candidates to compare at the end: the best, the runner-up, the defaults, and the best with each
    setting in turn at its default. Returns all candidates, including new ones, and the finalists."""
    candidates = [dict(own) for own in tuning.candidates]
    chosen = [candidates[candidate] for candidate in best[:LEFT]]
    first = candidates[best[0]]
    chosen += [tuning.defaults, *({**first, name: tuning.defaults[name]} for name in first)]
    finalists: list[int] = []
    for settings in chosen:
        if settings not in candidates:
            candidates.append(settings)
        place = candidates.index(settings)
        if place not in finalists:
            finalists.append(place)
    return candidates, finalists


def plan_final(finalists: Sequence[int], runs: int) -> list[int]:
    """The finalists in turns; each turn begins with another one."""
    count = len(finalists)
    return [finalists[(turn + place) % count] for turn in range(runs) for place in range(count)]
