"""Files made from results: the self-contained HTML report with everything known; and a single chart."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import wrap
from typing import Any

from simulator.workloads.base import Workload

from ..results.comparison import compare
from ..results.naming import NamedResult, name_results
from ..results.store import StoredResult
from ..system.errors import ConfigError
from ..system.output import write_whole
from . import words
from .charts import KINDS, draw, draw_all, draw_answer, name_sources
from .comparison import list_remarks, tabulate_overview, tabulate_ratios
from .drawing import make_standalone_svg, place_figure, render_page, to_png
from .notes import describe_answers, describe_caveats, list_interventions
from .ratios import describe_ratios, lead_comparison
from .runs import list_values
from .stored import describe_name, tabulate_result
from .templates import Chart, draw_lines_over_time
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
    # The renderer blocks no other thread: it runs while tables are made.
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
    """A comparison for each kind that has two results or more."""
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
"""The most results of one kind in a figure: with more, lines look alike."""


def choose_drawn(results: Sequence[NamedResult]) -> tuple[list[NamedResult], str]:
    """The results that figures show, and a sentence on those they leave out (empty if none)."""
    chosen: list[NamedResult] = []
    parts = []
    for kind in dict.fromkeys(named.result.kind for named in results):
        of_kind = [named for named in results if named.result.kind == kind]
        best = [named for named in of_kind if named.result.best is not None]
        which = "first"
        if len(of_kind) > MOST_DRAWN and len(best) >= MOST_DRAWN:
            own_shown = sorted(
                best,
                key=lambda named: named.result.best.median if named.result.best else 0.0,
                reverse=True,
            )[:MOST_DRAWN]
            which = "fastest"
        else:
            own_shown = of_kind[:MOST_DRAWN]
        if len(of_kind) > MOST_DRAWN:
            parts.append(f"of {len(of_kind):,} {kind} the {which} {MOST_DRAWN}")
        chosen += own_shown
    # Their order decides their colours.
    shown = [named for named in results if any(named is other for other in chosen)]
    return shown, f"Drawn: {' and '.join(parts)}; the tables have all." if parts else ""


def _place(figure: Chart, named: Sequence[NamedResult]) -> dict[str, Any]:
    return place_figure(figure, name_sources(figure.kind, named))


# --- one chart as a file --------------------------------------------------------------------------

ENDINGS = (".svg", ".png")
CAPTION_WIDTH = 100
"""Characters in a line of a picture's caption, which has two. What doesn't fit is printed separately."""


def add_title(
    chart: Chart, title: str, sources: Sequence[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The chart's specification with title and short caption, to stand alone; and the remarks that didn't
    fit. `sources`: sentences on who measured what it shows."""
    caption, remarks = chart.tell(sources, 2 * CAPTION_WIDTH - 20)
    lines = wrap(caption, CAPTION_WIDTH)
    return chart.spec | {"title": {"text": title, "subtitle": lines}}, remarks


def write_plot(
    stored: Sequence[StoredResult],
    kind: str | None,
    output: Path | None,
    title: str | None,
    theme: str,
) -> tuple[Path, list[str]]:
    """Draw a chart and write it to a file; return the file and the remarks to print. ConfigError if there is
    nothing to draw or the file's name is wrong."""
    _check_ending(output)
    named = [
        NamedResult(name, stored_result.result)
        for name, stored_result in zip(name_results(stored), stored, strict=True)
    ]
    drawn = (draw(name, named) for name in (KINDS if kind is None else [kind]))
    chart = next((chart for chart in drawn if chart is not None), None)
    if chart is None:
        possible = ", ".join(chart.kind for chart in draw_all(named))
        if not possible:
            raise ConfigError("these results have no figure to draw")
        raise ConfigError(f"these results have no data for --kind {kind}; they have for {possible}")
    spec, remarks = add_title(chart, title or chart.title, name_sources(chart.kind, named))
    return _write(spec, output or Path(f"{chart.kind}.svg"), theme), remarks


MOST_FIELDS = 6
_UNITS_MS = {"Seconds": 1000, "Minutes": 60_000, "Hours": 3_600_000, "Days": 86_400_000}
_PANEL_HEIGHT = 110


def write_workload_plot(workload: Workload, span_ms: int, output: Path | None) -> Path:
    """Draw the first fields of a workload's first devices, write them to a file, and return it. ConfigError
    as for `write_plot`, and if the workload has no numbers."""
    _check_ending(output)
    fields = workload.schema.fields
    if not fields:
        raise ConfigError(f"workload {workload.name} has no numbers to draw")
    unit = [
        name
        for name, length_ms in _UNITS_MS.items()
        if span_ms >= 2 * length_ms or name == "Seconds"
    ][-1]
    panels, count = list_values(workload, fields[:MOST_FIELDS], span_ms, _UNITS_MS[unit])
    spec = draw_lines_over_time(f"{unit} since the first event", panels, _PANEL_HEIGHT)
    note = (
        f"Values of the first devices with seed {workload.seed}, {count:,} of each. Gaps: no value."
    )
    if len(fields) > MOST_FIELDS:
        note += f" The first {MOST_FIELDS} of {len(fields)} fields."
    chart = Chart(workload.name, f"Workload {workload.name}", note, spec)
    return _write(add_title(chart, chart.title)[0], output or Path(f"{chart.kind}.svg"), "auto")


def _check_ending(output: Path | None) -> None:
    if output is not None and output.suffix.lower() not in ENDINGS:
        raise ConfigError(f"--output {output}: name a file that ends in {' or '.join(ENDINGS)}")


def _write(spec: dict[str, Any], output: Path, theme: str) -> Path:
    png = output.suffix.lower() == ".png"
    write_whole(output, to_png(spec, theme) if png else make_standalone_svg(spec, theme))
    return output
