"""How often a difference is called where there is none, with runs in turns and in blocks.

    python -m benchmarks.false_alarms [--pairs N]

On a machine that isn't idle, runs of the same load vary, and neighbours vary alike. Two candidates that
are equally fast are simulated on such a machine: one series of 2n rates is dealt to both, in the order
in which their runs would be made, and `estimate_ratio` says whether they differ, as in `compare`,
`mixed --baseline`, `tune` and `campaign`. Whatever it calls a difference is a false alarm. Orders:

* turns: A B, B A, A B, …, as `tune` compares its finalists
* chance: both in each turn, which of them first by chance, as `campaign` has it
* blocks: all runs of A, then all of B, as two commands one after the other, or a campaign without repetitions

The series are simulated from those in data/false_alarms.json, which were measured; the file says how. The
logarithm of a rate is a straight line over the number of the run (drift) plus an autoregressive process
of order 3: x(t) = a1·x(t−1) + a2·x(t−2) + a3·x(t−3) + e(t). Its coefficients follow from the measured
autocorrelations by the Yule-Walker equations, so that those at distances of 1 to 3 runs are kept as
measured (Box & Jenkins, Time Series Analysis, chapter 3). e is drawn from what these coefficients leave
of the measured series, so outliers stay as frequent and as large as they were.

The verdict's interval is Welch's, which takes runs for independent. In turns that makes it too wide rather
than too narrow: what both sides have in common is counted as spread of each, so fewer than 5 % are
false alarms, and small differences need more runs. In blocks it is too narrow.

Columns: share of false alarms of all pairs, with its 95 % interval (Wilson). The goal: with six runs of
each in turns, <= 6 % on each series. What blocks do is printed, not judged.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from cli.results.statistics import estimate_ratio
from cli.run.campaign.definition import Order
from cli.run.campaign.plan import Candidate, order_turns
from cli.run.experiments.tuning import plan_final

from .support import conclude, show

SERIES = Path(__file__).parent / "data" / "false_alarms.json"
LAGS = 3
RUNS = (3, 6, 10)
JUDGED_RUNS, GOAL = 6, 0.06
PAIRS = 1_000
SETTLING = 100
"""Steps of the process before the series begins, so that where it starts doesn't matter."""
SEED = 16

Values = NDArray[np.floating[Any]]


class Series(BaseModel):
    """Rates of runs that differ in nothing, in the order in which they were made."""

    name: str
    conditions: str
    inserts_per_s: list[float]


class Machine:
    """A process whose rates drift and hang together as those of a measured series do."""

    def __init__(self, rates: Sequence[float]) -> None:
        logs = np.log(np.asarray(rates, dtype=float))
        runs = np.arange(len(logs))
        line = np.polyfit(runs, logs, 1)
        self.drift = float(line[0])
        """How much the logarithm changes from run to run."""
        rest = logs - np.polyval(line, runs)
        self.spread = float(rest.std(ddof=2))
        self.correlations = autocorrelate(rest, LAGS)
        """About the line, at distances of 1 run and up."""
        self.coefficients = solve_yule_walker(self.correlations)
        errors = rest[LAGS:] - sum(
            coefficient * rest[LAGS - lag : -lag]
            for lag, coefficient in enumerate(self.coefficients, 1)
        )
        self.errors: Values = errors - errors.mean()

    def simulate(self, series: int, runs: int, chance: np.random.Generator) -> Values:
        """`series` rows of `runs` rates each, around 1."""
        logs = np.zeros((LAGS + SETTLING + runs, series))
        for step in range(LAGS, len(logs)):
            before = logs[step - LAGS : step][::-1]
            logs[step] = self.coefficients @ before + chance.choice(self.errors, series)
        drift = self.drift * np.arange(runs)[:, np.newaxis]
        rates: Values = np.exp(logs[-runs:] + drift).T
        return rates


def autocorrelate(values: Values, lags: int) -> list[float]:
    """Autocorrelations at distances 1 to `lags`; the estimate whose denominator is that of distance 0."""
    centred = values - values.mean()
    whole = float(centred @ centred)
    return [float(centred[lag:] @ centred[:-lag]) / whole for lag in range(1, lags + 1)]


def solve_yule_walker(correlations: Sequence[float]) -> Values:
    """The coefficients of the autoregressive process with these autocorrelations at distances 1 and up."""
    autocorrelations = [1.0, *correlations[:-1]]
    matrix = [
        [autocorrelations[abs(row - column)] for column in range(len(autocorrelations))]
        for row in range(len(autocorrelations))
    ]
    return np.linalg.solve(np.array(matrix), np.array(correlations))


def deal_in_turns(runs: int, chance: random.Random) -> list[int]:
    """The candidate (0 or 1) of each run, dealt as `tune` compares two finalists."""
    return plan_final(chance.sample([0, 1], 2), runs)


def deal_by_chance(runs: int, chance: random.Random) -> list[int]:
    """As `campaign` interleaves: one of each in every turn, which first by chance."""
    return _deal_as_campaign(Order.INTERLEAVED, runs, chance)


def deal_in_blocks(runs: int, chance: random.Random) -> list[int]:
    """All of one, then all of the other."""
    return _deal_as_campaign(Order.BLOCKS, runs, chance)


def _deal_as_campaign(order: Order, runs: int, chance: random.Random) -> list[int]:
    pair = [Candidate("one"), Candidate("other")]
    turns = order_turns(pair, runs, order, chance.getrandbits(32))
    return [pair.index(candidate) for candidate, _ in turns]


ORDERS: dict[str, Callable[[int, random.Random], list[int]]] = {
    "turns": deal_in_turns,
    "chance": deal_by_chance,
    "blocks": deal_in_blocks,
}


def is_called_different(rates: Sequence[float], order: Sequence[int]) -> bool:
    """The verdict on two candidates, whose runs had these rates in this order."""
    sides: tuple[list[float], list[float]] = ([], [])
    for rate, side in zip(rates, order, strict=True):
        sides[side].append(rate)
    return bool(estimate_ratio(*sides).differs)


def count_false_alarms(machine: Machine, order: str, runs: int, pairs: int) -> int:
    """How many of `pairs` pairs of equal candidates are called different."""
    # All orders meet the same series.
    rates = machine.simulate(pairs, 2 * runs, np.random.Generator(np.random.PCG64([SEED, runs])))
    chance = random.Random(SEED)
    return sum(
        is_called_different(series, ORDERS[order](runs, chance)) for series in rates.tolist()
    )


def find_share_interval(count: int, total: int) -> tuple[float, float]:
    """95 % interval of a share: Wilson, Journal of the American Statistical Association 22 (1927)."""
    z = 1.959964
    share = count / total
    middle = share + z * z / (2 * total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    whole = 1 + z * z / total
    return max(0.0, (middle - half) / whole), (middle + half) / whole


def load_series(path: Path = SERIES) -> list[Series]:
    """The measured series."""
    return [Series.model_validate(document) for document in json.loads(path.read_text("utf-8"))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help=f"of each kind; default: {PAIRS:,}"
    )
    pairs = parser.parse_args().pairs
    worst = 0.0
    for series in load_series():
        machine = Machine(series.inserts_per_s)
        correlations = ", ".join(f"{correlation:.2f}" for correlation in machine.correlations)
        print(
            f"\n{series.name}: {len(series.inserts_per_s)} runs. {series.conditions}\n"
            f"drift {machine.drift:+.2%} a run, spread {machine.spread:.0%}, autocorrelation {correlations}\n"
        )
        rows = []
        for order in ORDERS:
            cells = []
            for runs in RUNS:
                count = count_false_alarms(machine, order, runs, pairs)
                low, high = find_share_interval(count, pairs)
                cells.append(f"{count / pairs:.1%} ({low:.1%} to {high:.1%})")
                if order != "blocks" and runs == JUDGED_RUNS:
                    worst = max(worst, count / pairs)
            rows.append([order, *cells])
        show(["False alarms", *(f"{runs} runs each" for runs in RUNS)], rows)
    return conclude(
        f"interleaved, {JUDGED_RUNS} runs each: {worst:.1%} false alarms (goal <= {GOAL:.0%})",
        worst <= GOAL,
    )


if __name__ == "__main__":
    sys.exit(main())
