"""What a client costs: from runs in turns to figures, intervals and a sentence."""

from __future__ import annotations

import pytest

from cli.campaign.ranking import describe_client_costs_of
from cli.render.bars import draw_answer, draw_client_cpu, draw_clients
from cli.render.chart import Chart, NamedResult
from cli.render.clients import describe_clients, tabulate_clients, write_clients_headline
from cli.render.stored import tabulate_result
from cli.results.caveats import Kind
from cli.results.clients import collect_figures, compare_figures, find_cpu_us
from cli.results.verdicts import find_caveats

from ..made import compare_in_turns, inserts


def test_a_clients_figures_stand_beside_those_of_the_lean_path() -> None:
    result = compare_in_turns()
    assert result.clients is not None
    assert find_cpu_us(result.writers[0].group) == pytest.approx(0.5)
    (cost,) = compare_figures(collect_figures(result))
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
    result = compare_in_turns()
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
    result = compare_in_turns(lost=True)
    assert describe_clients(result) == [
        "Nothing can be said of what a client costs: both sides need a valid run."
    ]
    assert tabulate_clients(result).rows[1][2:4] == ["0", "-"]
    assert not result.valid
    texts = [one.text for one in find_caveats(result) if one.kind is Kind.INVALID]
    assert texts[0] == "run 2 (official): 1 of 9 events is missing"


def test_a_lean_path_that_is_the_limit_itself_is_said() -> None:
    kinds = {one.kind for one in find_caveats(compare_in_turns())}
    assert Kind.FEW_RUNS in kinds and Kind.CLIENT_BOUND not in kinds
    (bound,) = (
        one for one in find_caveats(compare_in_turns(bound=True)) if one.kind is Kind.CLIENT_BOUND
    )
    assert bound.text.startswith("2 of 2 runs by the lean path show your client's speed")


def test_a_campaign_tells_what_clients_cost_by_all_repetitions() -> None:
    told = describe_client_costs_of(
        "clients", {"alpha": [compare_in_turns(), compare_in_turns()], "beta": []}
    )
    assert told.title == "What official clients cost beside the lean path"
    alpha, beta = told.lines
    assert alpha.startswith("alpha: official: 4.00× slower than the lean path (95 % interval ")
    assert ", CPU per event 8.00× (" in alpha
    assert beta == "beta: nothing was measured."
    # Four runs of each side, so the interval is narrower than that of one result with two.
    assert "from single runs" not in alpha
    lost = describe_client_costs_of("own", {"alpha": [compare_in_turns(lost=True)]})
    assert lost.title.startswith("own: ")
    assert lost.lines == ["alpha: nothing can be said of what a client costs."]


def bars_of(figure: Chart | None) -> dict[str, float]:
    assert figure is not None
    return {row["name"]: row["value"] for row in figure.spec["data"]["values"]}


def test_figures_have_a_bar_for_each_client() -> None:
    one = [NamedResult("alpha", compare_in_turns())]
    assert bars_of(draw_clients(one)) == {
        "lean": pytest.approx(100_002.5), "official": pytest.approx(25_002.5)
    }  # fmt: skip
    assert bars_of(draw_client_cpu(one)) == {
        "lean": pytest.approx(0.5), "official": pytest.approx(4.0)
    }  # fmt: skip
    # Of several the clients of each stay together.
    both = [*one, NamedResult("beta", compare_in_turns())]
    names = ["alpha, lean", "alpha, official", "beta, lean", "beta, official"]
    assert list(bars_of(draw_answer(both))) == names
    assert draw_clients([NamedResult("alpha", inserts({1: [1.0]}))]) is None
