"""The HTML report: one file that needs nothing else, with everything that is known of its results."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ..results.comparison import compare
from ..results.model import SentStatements
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
from .tables import Table
from .verdict import describe_hardware, judge_results, list_doubts


@dataclass(frozen=True)
class _Comparison:
    """Results of one kind, compared."""

    title: str
    base: str
    sentences: Sequence[str]
    notes: Sequence[str]
    overview: Table
    ratios: Table


@dataclass(frozen=True)
class _Section:
    """One result in the report."""

    id: str
    name: str
    called: str
    """Its label and tags."""
    measured: str
    answer: str
    outages: Sequence[str]
    """What was done to the database, and what came of it."""
    caveats: Sequence[tuple[str, str]]
    """(kind, text)."""
    tables: dict[str, Table]
    statements: Sequence[SentStatements]
    """The schema, and what each query was asked by."""


def make_report(stored: Sequence[StoredResult], title: str) -> str:
    """The page."""
    names = name_results(stored)
    named = [NamedResult(name, one.result) for one, name in zip(stored, names, strict=True)]
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
            results=[_make_section(one, name) for one, name in zip(stored, names, strict=True)],
            comparisons=_make_comparisons(stored, names),
            answer=placed.result() if placed else None,
            figures=[figure.result() for figure in figures],
            left_out=left_out,
        )


def _make_section(stored: StoredResult, name: str) -> _Section:
    result = stored.result
    return _Section(
        stored.id,
        name,
        describe_name(result).strip(),
        words.describe_measurement(result),
        " ".join(filter(None, [words.give_answer(result), describe_answers(result)])),
        list_interventions(result),
        describe_caveats(result),
        tabulate_result(result, terminal=False),
        result.statements,
    )


def _make_comparisons(stored: Sequence[StoredResult], names: Sequence[str]) -> list[_Comparison]:
    """Each kind of which there are two results or more."""
    found = []
    for kind in dict.fromkeys(one.result.kind for one in stored):
        places = [number for number, one in enumerate(stored) if one.result.kind == kind]
        if len(places) < 2:
            continue
        results = [stored[number].result for number in places]
        own = [names[number] for number in places]
        ratios = compare(results)
        found.append(
            _Comparison(
                f"Compared: {kind}",
                own[0],
                lead_comparison(own, ratios) + describe_ratios(own, ratios),
                list_remarks(own, results),
                tabulate_overview(own, results),
                tabulate_ratios(own, ratios),
            )
        )
    return found


MOST_DRAWN = 12
"""Results of one kind in a figure: with more of them no line can be told from another."""


def choose_drawn(results: Sequence[NamedResult]) -> tuple[list[NamedResult], str]:
    """The results that figures show, and a sentence on those that they don't (empty if there are none)."""
    chosen: list[NamedResult] = []
    told = []
    for kind in dict.fromkeys(one.result.kind for one in results):
        own = [one for one in results if one.result.kind == kind]
        best = [one for one in own if one.result.best is not None]
        which = "first"
        if len(own) > MOST_DRAWN and len(best) >= MOST_DRAWN:
            own_shown = sorted(best, key=_find_rate, reverse=True)[:MOST_DRAWN]
            which = "fastest"
        else:
            own_shown = own[:MOST_DRAWN]
        if len(own) > MOST_DRAWN:
            told.append(f"of {len(own):,} {kind} the {which} {MOST_DRAWN}")
        chosen += own_shown
    # Their order gives them their colours.
    shown = [one for one in results if any(one is other for other in chosen)]
    return shown, f"Drawn are {' and '.join(told)}; all are in the tables." if told else ""


def _find_rate(named: NamedResult) -> float:
    return named.result.best.median if named.result.best else 0.0


def _place(figure: Chart, named: Sequence[NamedResult]) -> dict[str, str]:
    return place_figure(figure, name_sources(figure.kind, named))
