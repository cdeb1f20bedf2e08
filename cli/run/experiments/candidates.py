"""The combinations that are tried: what `--over` names, and which of them go on.

Successive halving: many combinations get a little time each, the better half twice as much, and so on.
Jamieson & Talwalkar, Non-stochastic best arm identification and hyperparameter optimization,
AISTATS 2016, https://arxiv.org/abs/1502.07943. Pure.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from pydantic import ValidationError

from simulator.contract import Load
from simulator.errors import OptionError
from simulator.modules.options import Options, parse_options
from simulator.units import parse_amount

from ...results.tuning import TunedSetting, Tuning, mean
from ...system.errors import ConfigError

LOAD_SETTINGS = ("workers", "batch", "in_flight", "primary_key", "tables")
"""Fields of the load that can be varied: what an application could choose."""


def read_over(
    texts: Sequence[str], load: Load, options: Options, values: Mapping[str, Any]
) -> list[TunedSetting]:
    """The settings of `batch=100,1000` and so on; ConfigError if one is none, or can't have a value.

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
        _check_distinct(setting, settings)
        settings.append(setting)
    if not settings:
        raise ConfigError("tune needs a setting to vary: --over batch=100,1000,10000")
    return settings


def _check_distinct(setting: TunedSetting, before: Sequence[TunedSetting]) -> None:
    if any(other.name == setting.name for other in before):
        raise ConfigError(f"--over names {setting.name} twice: give all its values at once")
    twice = [value for value in setting.values if setting.values.count(value) > 1]
    if twice:
        raise ConfigError(f"--over {setting.name} has the value {twice[0]} twice")


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
        # The load says it, and must not be contradicted.
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


# --- which go on ----------------------------------------------------------------------------------

MOST_COMBINATIONS = 512
LEFT = 2
"""Combinations that are compared at the end, besides the defaults."""
MOST_TIMES_LONGER = 8
"""How many times as long as in the first stage a run of the last stages takes."""


def combine(over: Sequence[TunedSetting]) -> list[dict[str, Any]]:
    """All combinations."""
    names = [setting.name for setting in over]
    return [
        dict(zip(names, values, strict=True))
        for values in product(*(setting.values for setting in over))
    ]


def count_stages(candidates: int) -> int:
    """How often the better half is chosen until `LEFT` are left; once at least, so that it is known which
    is better."""
    stages = 1
    while (candidates := halve(candidates)) > LEFT:
        stages += 1
    return stages


def halve(candidates: int) -> int:
    """How many of so many candidates go on to the next stage."""
    return max(LEFT, -(-candidates // 2))


def stretch(stage: int) -> int:
    """How many times as long as in the first stage a run of this one takes."""
    return int(min(2 ** (stage - 1), MOST_TIMES_LONGER))


def shuffle(candidates: Sequence[int], seed: int, stage: int) -> list[int]:
    """The order of a stage: by chance, so that drift favours none."""
    order = list(candidates)
    random.Random(f"{seed} {stage}").shuffle(order)
    return order


def choose_better_half(tuning: Tuning, candidates: Sequence[int]) -> list[int]:
    """The candidates that go on, the best first, by the geometric mean of all their figures; one without a
    figure doesn't go on."""
    rates = {candidate: tuning.find_rates(candidate) for candidate in candidates}
    measured = [candidate for candidate in candidates if rates[candidate]]
    ranked = sorted(measured, key=lambda candidate: -mean(rates[candidate]))
    return ranked[: halve(len(candidates))]


def choose_finalists(tuning: Tuning, best: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """What is compared at the end: the best, the runner-up, the defaults, and the best with each setting
    in turn at its default. Returns all candidates, with those that are new, and the finalists."""
    candidates = [dict(own) for own in tuning.candidates]
    chosen = [candidates[candidate] for candidate in best[:LEFT]]
    chosen += [tuning.defaults, *_reset_each(candidates[best[0]], tuning.defaults)]
    finalists: list[int] = []
    for settings in chosen:
        if settings not in candidates:
            candidates.append(settings)
        place = candidates.index(settings)
        if place not in finalists:
            finalists.append(place)
    return candidates, finalists


def _reset_each(best: Mapping[str, Any], defaults: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in best:
        yield {**best, name: defaults[name]}


def plan_final(finalists: Sequence[int], runs: int) -> list[int]:
    """The finalists in turns, each turn beginning with another."""
    count = len(finalists)
    return [finalists[(turn + place) % count] for turn in range(runs) for place in range(count)]
