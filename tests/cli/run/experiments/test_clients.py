"""What a client costs: from runs in turns to figures, intervals and a sentence."""

from __future__ import annotations

import json

import pytest

from cli.results.caveats import Kind
from cli.results.comparison import compare_clients
from cli.results.export import list_rows
from cli.results.model import Result
from cli.results.naming import NamedResult
from cli.results.verdicts import find_caveats
from cli.show.charts import draw, draw_answer
from cli.show.ranking import describe_client_costs_of
from cli.show.ratios import (
    describe_clients,
    tabulate_clients,
    tabulate_questions,
    write_clients_headline,
)
from cli.show.stored import tabulate_result
from cli.show.templates import Chart
from cli.show.words import describe_measurement

from ...made import compare_asking_in_turns, compare_in_turns, inserts, stored


def test_a_clients_figures_stand_beside_those_of_the_lean_path() -> None:
    result = compare_in_turns()
    assert result.clients is not None
    (cost,) = compare_clients([result])
    assert cost.client == "official"
    assert cost.lean["client_cpu_us_per_event"][0] == pytest.approx(0.5)
    assert cost.ratios["inserts_per_s"].value == pytest.approx(0.25, rel=1e-3)
    assert cost.ratios["inserts_per_s"].differs
    assert cost.ratios["client_cpu_us_per_event"].value == pytest.approx(8)
    assert cost.ratios["latency_p50_ms"].value == pytest.approx(3)
    table = tabulate_clients(result)
    assert [row[:4] for row in table.rows] == [
        ["lean", "the lean path (copy)", "2", "100,002"],
        ["official", "psycopg2's copy_expert", "2", "25,002"],
    ]
    assert [row[5:] for row in table.rows] == [["0.50", "2", "8"], ["4.00", "6", "24"]]


def test_the_answer_is_a_sentence() -> None:
    result = compare_in_turns()
    (sentence,) = describe_clients(result)
    assert sentence.startswith(
        "What your application's client (psycopg2's copy_expert) costs you: 4.00× slower than the lean"
        " path (95 % interval 4.00 to 4.00× slower); 4.00 µs of CPU per event instead of 0.50 (8.00"
    )
    assert write_clients_headline(result) == "official 4.00× slower"
    shown = tabulate_result(result, terminal=False)
    assert [row[:2] for row in shown["Turns"].rows] == [
        ["1", "lean"], ["2", "official"], ["3", "official"], ["4", "lean"],
    ]  # fmt: skip


def test_clients_that_ask_stand_beside_each_other_by_question_and_row() -> None:
    result = compare_asking_in_turns()
    (cost,) = compare_clients([result])
    assert cost.ratios["queries_per_s"].value == pytest.approx(0.25, rel=2e-3)
    assert cost.ratios["client_cpu_us_per_query"].value == pytest.approx(4)
    assert cost.ratios["client_cpu_us_per_row"].value == pytest.approx(4, rel=1e-3)
    table = tabulate_clients(result)
    assert table.headers[1] == "Queries by"
    # The run that loads is nobody's.
    assert [row[:4] for row in table.rows] == [
        ["lean", "the lean path", "2", "10,004"],
        ["official", "psycopg2-binary", "2", "2,504"],
    ]
    assert [row[5:] for row in table.rows] == [
        ["50.00", "5.00", "0.1", "0.4"], ["200.00", "20.00", "0.4", "1.6"],
    ]  # fmt: skip
    assert tabulate_questions(result).rows == [
        ["point", "lean", "400,140", "0.1", "0.4"], ["point", "official", "100,140", "0.4", "1.6"],
    ]  # fmt: skip
    assert not tabulate_questions(compare_in_turns()).rows
    (sentence,) = describe_clients(result)
    assert sentence.startswith(
        "What your application's client (psycopg2-binary) costs you: 4.00× slower"
    )
    assert "200.00 µs of CPU per query instead of 50.00" in sentence
    assert "20.00 per row instead of 5.00; a query's p50 0.4 ms instead of 0.1" in sentence


def test_a_result_of_clients_that_ask_is_told_kept_and_drawn() -> None:
    result = compare_asking_in_turns()
    text = describe_measurement(result)
    assert (
        "with 5,000 events in it by 2 workers at once with 8 queries in flight each, for 20 s, 2 runs of"
        " each client, "
    ) in text
    shown = tabulate_result(result, terminal=False)
    assert [row[0] for row in shown["Turns"].rows] == ["2", "3", "4", "5"]
    rows = list_rows(stored(result))
    assert [json.loads(row["options"]).get("tuned") for row in rows] == [
        None, {"client": "lean"}, {"client": "official"}, {"client": "official"}, {"client": "lean"},
    ]  # fmt: skip
    named = [NamedResult("alpha", result)]
    assert list(bars_of(draw("clients", named))) == ["lean", "official"]
    drawn = draw("client-cpu", named)
    assert drawn is not None and "µs of CPU per query" in str(drawn.spec)
    # Inserts and questions don't stand on one scale.
    both = [*named, NamedResult("beta", compare_in_turns())]
    assert bars_of(draw("clients", both))["official"] == pytest.approx(25_002.5)
    ranking = describe_client_costs_of("clients", {"alpha": [result]})
    assert ", CPU per query 4.00× (" in ranking.lines[0]


def test_a_result_has_the_groups_that_it_is_about() -> None:
    asking, inserting = compare_asking_in_turns().model_dump(), compare_in_turns().model_dump()
    for values, runs in ((asking, inserting["runs"]), (inserting, asking["runs"])):
        with pytest.raises(ValueError, match="runs are not those of a command"):
            Result.model_validate(values | {"runs": runs})


def test_without_a_valid_run_of_both_nothing_is_said() -> None:
    result = compare_in_turns(lost=True)
    assert describe_clients(result) == [
        "The cost of a client is unknown: the client and the lean path each need a valid run."
    ]
    assert tabulate_clients(result).rows[1][2:4] == ["0", "-"]
    assert not result.valid
    texts = [caveat.text for caveat in find_caveats(result) if caveat.kind is Kind.INVALID]
    assert texts[0] == "run 2 (official): 1 of 9 events is missing"


def test_a_lean_path_that_is_the_limit_itself_is_said() -> None:
    kinds = {caveat.kind for caveat in find_caveats(compare_in_turns())}
    assert Kind.FEW_RUNS in kinds and Kind.CLIENT_BOUND not in kinds
    (bound,) = (
        caveat
        for caveat in find_caveats(compare_in_turns(bound=True))
        if caveat.kind is Kind.CLIENT_BOUND
    )
    assert bound.text.startswith("2 of 2 runs by the lean path show your client's speed")


def test_a_campaign_tells_what_clients_cost_by_all_repetitions() -> None:
    ranking = describe_client_costs_of(
        "clients", {"alpha": [compare_in_turns(), compare_in_turns()], "beta": []}
    )
    assert ranking.title == "What official clients cost compared with the lean path"
    alpha, beta = ranking.lines
    assert alpha.startswith("alpha: official: 4.00× slower than the lean path (95 % interval ")
    assert ", CPU per event 8.00× (" in alpha
    assert beta == "beta: nothing was measured."
    # Four runs of each side, so the interval is narrower than that of one result with two.
    assert "from single runs" not in alpha
    lost = describe_client_costs_of("own", {"alpha": [compare_in_turns(lost=True)]})
    assert lost.title.startswith("own: ")
    assert lost.lines == ["alpha: the cost of a client is unknown."]


def bars_of(figure: Chart | None) -> dict[str, float]:
    assert figure is not None
    return {row["name"]: row["value"] for row in figure.spec["data"]["values"]}


def test_figures_have_a_bar_for_each_client() -> None:
    named = [NamedResult("alpha", compare_in_turns())]
    assert bars_of(draw("clients", named)) == {
        "lean": pytest.approx(100_002.5), "official": pytest.approx(25_002.5)
    }  # fmt: skip
    assert bars_of(draw("client-cpu", named)) == {
        "lean": pytest.approx(0.5), "official": pytest.approx(4.0)
    }  # fmt: skip
    # Of several the clients of each stay together.
    both = [*named, NamedResult("beta", compare_in_turns())]
    names = ["alpha, lean", "alpha, official", "beta, lean", "beta, official"]
    assert list(bars_of(draw_answer(both))) == names
    assert draw("clients", [NamedResult("alpha", inserts({1: [1.0]}))]) is None
