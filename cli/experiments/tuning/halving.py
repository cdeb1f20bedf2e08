"""Successive halving: many combinations get a little time each, the better half twice as much, and so on.

Jamieson & Talwalkar, Non-stochastic best arm identification and hyperparameter optimization,
AISTATS 2016, https://arxiv.org/abs/1502.07943. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ...results.tuning import TunedSetting, Tuning, mean

MOST_COMBINATIONS = 512
LEFT = 2
"""Combinations that are compared at the end, besides the defaults."""
MOST_TIMES_LONGER = 8
"""A run of the last stages beside one of the first."""


def combine(over: Sequence[TunedSetting]) -> list[dict[str, Any]]:
    """All combinations."""
    names = [setting.name for setting in over]
    return [
        dict(zip(names, values, strict=True)) for values in product(*(one.values for one in over))
    ]


def count_stages(candidates: int) -> int:
    """How often the better half is chosen until `LEFT` are left; once at least, so that it is known which
    is better."""
    stages = 1
    while (candidates := halve(candidates)) > LEFT:
        stages += 1
    return stages


def halve(candidates: int) -> int:
    """How many of so many go on to the next stage."""
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
    """Those that go on, the best first: by the geometric mean of all their figures; one without a figure
    doesn't go on."""
    found = {one: tuning.find_rates(one) for one in candidates}
    known = [one for one in candidates if found[one]]
    ranked = sorted(known, key=lambda one: -mean(found[one]))
    return ranked[: halve(len(candidates))]


def choose_finalists(tuning: Tuning, best: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """What is compared at the end: the best, the runner-up, the defaults, and the best with each setting
    in turn at its default. Returns all candidates, with those that are new, and the finalists."""
    candidates = [dict(own) for own in tuning.candidates]
    wanted = [candidates[one] for one in best[:LEFT]]
    wanted += [tuning.defaults, *_reset_each(candidates[best[0]], tuning.defaults)]
    finalists: list[int] = []
    for settings in wanted:
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
