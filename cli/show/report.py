"""The HTML report: one file that needs nothing else, with everything that is known of its results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..results.comparison import compare
from ..results.naming import name_results
from ..results.store import StoredResult
from . import words
from .bars import draw_answer
from .chart import Chart, NamedResult
from .charts import draw_all, name_sources
from .comparison import list_remarks, tabulate_overview, tabulate_ratios
from .notes import describe_answers, describe_caveats, list_interventions
from .pages import place_figure, render_page
from .ratios import describe_ratios, lead_comparison
from .stored import describe_name, tabulate_result
from .verdict import describe_hardware, judge_results, list_doubts


def make_report(stored: Sequence[StoredResult], title: str) -> str:
    """The page."""
    names = name_results(stored)
    named = [
        NamedResult(name, stored_result.result)
        for stored_result, name in zip(stored, names, strict=True)
    ]
    shown, left_out = choose_drawn(named)
    answer = draw_answer(named)
    drawn = [figure for figure in draw_all(shown) if answer is None or figure.spec != answer.spec]
    # The renderer holds up no other thread: beside tables of many results it costs no time.
    with ThreadPoolExecutor(1) as renderer:
        placed = renderer.submit(_place, answer, named) if answer else None
        figures = [renderer.submit(_place, figure, shown) for figure in drawn]
        return render_page(
            "report.html",
            title=title,
            verdict=judge_results(named),
            doubts=list_doubts(named),
            hardware=describe_hardware(named),
            results=[
                _make_section(stored_result, name)
                for stored_result, name in zip(stored, names, strict=True)
            ],
            comparisons=_make_comparisons(stored, names),
            answer=placed.result() if placed else None,
            figures=[figure.result() for figure in figures],
            left_out=left_out,
        )


def _make_section(stored: StoredResult, name: str) -> dict[str, Any]:
    """One result in the report."""
    result = stored.result
    return {
        "id": stored.id,
        "name": name,
        "called": describe_name(result).strip(),
        "measured": words.describe_measurement(result),
        "answer": " ".join(filter(None, [words.give_answer(result), describe_answers(result)])),
        "outages": list_interventions(result),
        "caveats": describe_caveats(result),
        "tables": tabulate_result(result, terminal=False),
        "statements": result.statements,
    }


def _make_comparisons(stored: Sequence[StoredResult], names: Sequence[str]) -> list[dict[str, Any]]:
    """A comparison for each kind with two results or more."""
    comparisons = []
    for kind in dict.fromkeys(stored_result.result.kind for stored_result in stored):
        numbers = [
            number
            for number, stored_result in enumerate(stored)
            if stored_result.result.kind == kind
        ]
        if len(numbers) < 2:
            continue
        results = [stored[number].result for number in numbers]
        own_names = [names[number] for number in numbers]
        ratios = compare(results)
        comparisons.append(
            {
                "title": f"Compared: {kind}",
                "base": own_names[0],
                "sentences": lead_comparison(own_names, ratios)
                + describe_ratios(own_names, ratios),
                "notes": list_remarks(own_names, results),
                "overview": tabulate_overview(own_names, results),
                "ratios": tabulate_ratios(own_names, ratios),
            }
        )
    return comparisons


MOST_DRAWN = 12
"""Results of one kind in a figure: with more, lines can't be told apart."""


def choose_drawn(results: Sequence[NamedResult]) -> tuple[list[NamedResult], str]:
    """The results that figures show, and a sentence on those that they don't (empty if there are none)."""
    chosen: list[NamedResult] = []
    parts = []
    for kind in dict.fromkeys(named.result.kind for named in results):
        of_kind = [named for named in results if named.result.kind == kind]
        best = [named for named in of_kind if named.result.best is not None]
        which = "first"
        if len(of_kind) > MOST_DRAWN and len(best) >= MOST_DRAWN:
            own_shown = sorted(best, key=_find_rate, reverse=True)[:MOST_DRAWN]
            which = "fastest"
        else:
            own_shown = of_kind[:MOST_DRAWN]
        if len(of_kind) > MOST_DRAWN:
            parts.append(f"of {len(of_kind):,} {kind} the {which} {MOST_DRAWN}")
        chosen += own_shown
    # Their order gives them their colours.
    shown = [named for named in results if any(named is other for other in chosen)]
    return shown, f"Drawn: {' and '.join(parts)}; the tables have all." if parts else ""


def _find_rate(named: NamedResult) -> float:
    return named.result.best.median if named.result.best else 0.0


def _place(figure: Chart, named: Sequence[NamedResult]) -> dict[str, str]:
    return place_figure(figure, name_sources(figure.kind, named))
