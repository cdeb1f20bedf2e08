"""What a client costs: from runs in turns to figures, intervals and a sentence."""

from __future__ import annotations

import pytest

from cli.results.client_costs import compare_clients, find_cpu_us
from cli.results.clients import ClientComparison, ClientTurn
from cli.results.model import Result
from cli.results.verdicts import find_weaknesses
from cli.results.weakness import Kind
from cli.show.clients import describe_clients, tabulate_clients, write_clients_headline
from cli.show.stored import tabulate_result
from simulator.contract import InsertRun, LatencyMs

from ..helpers import insert_run
from .made import client, inserts

WAYS = {"lean": "the lean path (copy)", "official": "psycopg2's copy_expert"}


def run_of(number: int, rate: float, cpu_s: float, p50: float, valid: bool = True) -> InsertRun:
    return insert_run(
        workers=1, run=number, inserts_per_s=rate, window_s=20.0, valid=valid,
        invalid_reasons=[] if valid else ["1 of 9 events is missing"],
        latency_ms=LatencyMs(p50=p50, p90=9, p99=4 * p50, p99_9=10, max=11),
        client=client(0.1).model_copy(update={"cpu_s": cpu_s}),
    )  # fmt: skip


def compared(*, lost: bool = False, bound: bool = False) -> Result:
    """Lean: 100,000/s at 0.5 µs, p50 2 ms; official: a quarter, at 4 µs, p50 6 ms."""
    runs, turns = [], []
    for number in range(1, 5):
        lean = number in (1, 4)
        name = "lean" if lean else "official"
        rate = (100_000 if lean else 25_000) + number
        cpu_us = 0.5 if lean else 4.0
        valid = not (lost and not lean)
        run = run_of(number, rate, cpu_us * rate * 20 / 1e6, 2.0 if lean else 6.0, valid)
        if bound and lean and run.client is not None:
            run.client.bound = True
        runs.append(run)
        turns.append(ClientTurn(client=name, run=number))
    base = inserts({1: [1.0]})
    values = base.model_dump() | {
        "command": "clients", "runs": runs, "summary": [],
        "clients": ClientComparison(ways=WAYS, turns=turns),
    }  # fmt: skip
    return Result.model_validate(values)


def test_a_clients_figures_stand_beside_those_of_the_lean_path() -> None:
    result = compared()
    assert result.clients is not None
    assert find_cpu_us(result.insert_runs[0]) == pytest.approx(0.5)
    (cost,) = compare_clients(result.clients, result.insert_runs)
    assert cost.figures.client == "official"
    assert cost.rate.value == pytest.approx(0.25, rel=1e-3)
    assert cost.rate.differs
    assert cost.cpu is not None and cost.cpu.value == pytest.approx(8)
    assert cost.p50 is not None and cost.p50.value == pytest.approx(3)
    table = tabulate_clients(result)
    assert [row[:4] for row in table.rows] == [
        ["lean", "the lean path (copy)", "2", "100,002"],
        ["official", "psycopg2's copy_expert", "2", "25,002"],
    ]
    assert [row[5:] for row in table.rows] == [["0.50", "2", "8"], ["4.00", "6", "24"]]


def test_the_answer_is_a_sentence() -> None:
    result = compared()
    (said,) = describe_clients(result)
    assert said.startswith(
        "What your application's client costs you, by psycopg2's copy_expert: 4.00× slower than the lean"
        " path (95 % interval 4.00 to 4.00× slower); 4.00 µs of CPU for each event instead of 0.50 (8.00"
    )
    assert write_clients_headline(result) == "official 4.00× slower"
    shown = tabulate_result(result, terminal=False)
    assert [row[:2] for row in shown["Turns"].rows] == [
        ["1", "lean"], ["2", "official"], ["3", "official"], ["4", "lean"],
    ]  # fmt: skip


def test_without_a_valid_run_of_both_nothing_is_said() -> None:
    result = compared(lost=True)
    assert describe_clients(result) == [
        "Nothing can be said of what a client costs: both sides need a valid run."
    ]
    assert tabulate_clients(result).rows[1][2:4] == ["0", "-"]
    assert not result.valid
    texts = [one.text for one in find_weaknesses(result) if one.kind is Kind.INVALID]
    assert texts[0] == "run 2 (official): 1 of 9 events is missing"


def test_a_lean_path_that_is_the_limit_itself_is_said() -> None:
    kinds = {one.kind for one in find_weaknesses(compared())}
    assert Kind.FEW_RUNS in kinds and Kind.CLIENT_BOUND not in kinds
    (bound,) = (
        one for one in find_weaknesses(compared(bound=True)) if one.kind is Kind.CLIENT_BOUND
    )
    assert bound.text.startswith("2 of 2 runs by the lean path show your client's speed")
