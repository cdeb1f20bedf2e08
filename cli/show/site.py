"""The pages of a site and their files. The folder is always rewritten as a whole, and never over anyone
else's files. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from simulator.documents import DocumentError, read_json
from simulator.units import format_count

from ..results.aspects import ASPECTS, OUTAGE_SHIFT_S, Aspect, Shown
from ..results.decision import VerdictMatrix
from ..results.figures import FIGURES
from ..results.matrix import is_faster
from ..results.model import Result
from ..results.naming import NamedResult
from ..results.published import (
    Candidate,
    Cell,
    Field,
    Row,
    find_candidates,
    find_families,
    judge_query,
    make_fields,
    name_slugs,
)
from ..results.sources import MANIFEST, Sources
from ..results.statistics import Ratio
from ..system.errors import ConfigError, RunFailed
from ..system.output import explain
from .campaign import DoneJob, draw_swatch, make_section
from .campaign_charts import draw_campaign
from .comparison import list_differences
from .drawing import place_figure, render_page
from .ratios import format_factor, format_speed_interval
from .requirements import make_matrix, sum_up
from .tables import Table, format_ms
from .verdict import list_doubts

MOST_TABULATED = 40
"""The most results of a candidate for which its page has tables of runs."""


def make_site(
    sources: Sources, title: str, write_command: Callable[[Result], str]
) -> dict[str, bytes]:
    """All files of the site: path -> content. The same sources give the same bytes. `write_command`: writes
    the command line that repeats a result from outside a campaign."""
    candidates = find_candidates(sources)
    fields = make_fields(candidates)
    names = [candidate.name for candidate in candidates]
    queries = [page for field in fields for page in _make_queries(field)]
    # Small comparisons come first: they are quickest to read.
    in_order = sorted(fields, key=lambda field: len(field.rows))
    drawn = {
        field.slug: list(map(place_figure, charts))
        for field in in_order
        if (charts := draw_campaign(field.list_tests(), None, names)[0])
    }
    named = [
        NamedResult(candidate.name, source.result)
        for candidate in candidates
        for source in candidate.sources
    ]
    swatches = {candidate.name: draw_swatch(place) for place, candidate in enumerate(candidates)}
    more = {
        f"verdict-{name}.html": f"Verdict: {verdict.title}"
        for name, verdict in sources.verdicts.items()
    }
    more |= {
        f"figures-{field.slug}.html": f"Charts: {field.name}"
        for field in in_order
        if field.slug in drawn
    }
    shared = {"title": title, "pages": more}
    pages = {
        "index.html": render_page(
            "site_index.html", root="", fields=in_order, candidates=candidates, queries=queries,
            swatches=swatches, findings=sources.findings,
            best=[(field, _find_best(field)) for field in in_order],
            verdicts={name: sum_up(verdict) for name, verdict in sources.verdicts.items()},
            aspects=_list_aspects(fields), filters=_list_filters(fields), cell_data=_describe_cell,
            results=format_count(len(sources.done), "result"), failed=sources.failed,
            differences={field.slug: _list_differences(field) for field in fields},
            families={field.slug: find_families(field) for field in fields}, **shared,
        ),
        "method.html": render_page(
            "site_method.html", root="", aspects=ASPECTS, shift_s=OUTAGE_SHIFT_S,
            doubts=list_doubts(named, "candidates"), **shared,
        ),
    }  # fmt: skip
    for field in fields:
        if field.slug in drawn:
            figures = drawn[field.slug]
            pages[f"figures-{field.slug}.html"] = render_page(
                "site_figures.html", root="", field=field, figures=figures, **shared
            )
    by_name = {candidate.sources[0].candidate: candidate for candidate in candidates}
    for name, verdict in sources.verdicts.items():
        pages[f"verdict-{name}.html"] = render_page(
            "site_verdict.html", root="", heading=verdict.title,
            matrix=make_matrix(_sort_verdict(verdict, list(by_name))),
            swatches={
                standing.candidate: swatches[by_name[standing.candidate].name]
                if standing.candidate in by_name
                else ""
                for standing in verdict.candidates
            },
            links={
                name: f"candidates/{candidate.slug}.html" for name, candidate in by_name.items()
            },
            **shared,
        )  # fmt: skip
    for place, candidate in enumerate(candidates):
        rows = [
            (field, row) for field in fields for row in field.rows if row.candidate is candidate
        ]
        versions = [(field, _compare_versions(field, row)) for field, row in rows]
        pages[f"candidates/{candidate.slug}.html"] = render_page(
            "site_candidate.html", root="../", candidate=candidate, swatch=swatches[candidate.name],
            tables=[(field, _tabulate_figures(field, row)) for field, row in rows],
            versions=[(field, table) for field, table in versions if table is not None],
            section=make_section(
                place, candidate.name, _list_jobs(candidate),
                len(candidate.sources) <= MOST_TABULATED,
            ),
            commands=dict.fromkeys(
                source.command or write_command(source.result) for source in candidate.sources
            ),
            campaigns=sources.campaigns, **shared,
        )  # fmt: skip
    for page in queries:
        pages[f"queries/{page['slug']}.html"] = render_page(
            "site_query.html", root="../", page=page, **shared
        )
    files = {path: text.encode(errors="backslashreplace") for path, text in pages.items()}
    for source in sources.done:
        files[f"results/{source.name}.json"] = source.result.model_dump_json(indent=1).encode()
    files |= {f"campaigns/{name}.yaml": text.encode() for name, text in sources.campaigns.items()}
    return dict(sorted(files.items()))


# --- its folder ---------------------------------------------------------------------------------


def write_site(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files and remove those of an earlier site. ConfigError if the folder has other files."""
    earlier = check_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The manifest comes first, so that a partly written site is recognized as a site.
        (folder / MANIFEST).write_bytes(list_digests(files))
        for path, content in files.items():
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_bytes(content)
        for path in sorted(earlier - files.keys()):
            (folder / path).unlink(missing_ok=True)
            if (folder / path).parent != folder:
                with suppress(OSError):  # It still has other files.
                    (folder / path).parent.rmdir()
    except OSError as error:
        raise RunFailed(f"can't write the site to {folder}: {explain(error)}") from error


def check_folder(folder: Path) -> set[str]:
    """The files of an earlier site in the folder. ConfigError if there is anything else."""
    if not folder.exists():
        return set()
    if not folder.is_dir():
        raise ConfigError(f"{folder} isn't a folder: name another one with --output")
    present = {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()
    }
    listed: set[str] = set()
    if MANIFEST in present:
        with suppress(DocumentError):
            listed = {MANIFEST, *read_json(folder / MANIFEST)}
    foreign = sorted(present - listed)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise ConfigError(
            f"{folder} has files that publish didn't make ({foreign[0]}{more}): it writes only to a new or"
            " empty folder, or over an earlier site; name another one with --output"
        )
    return present - {MANIFEST}


def list_digests(files: Mapping[str, bytes]) -> bytes:
    """The site's contents as JSON, with the SHA-256 of each file."""
    digests = {path: sha256(content).hexdigest() for path, content in sorted(files.items())}
    return json.dumps(digests, indent=1).encode()


# --- the first page -------------------------------------------------------------------------------


def _list_aspects(fields: Sequence[Field]) -> list[tuple[Aspect, int]]:
    """The aspects that have a figure, with their initial weight: 1 where all candidates of the first table
    (or else of another) have one."""
    aspects = []
    for aspect in ASPECTS:
        complete = [
            [
                all(row.cells[place] for row in field.rows)
                for place, column in enumerate(field.columns)
                if column.aspect is aspect
            ]
            for field in fields
        ]
        if any(complete):
            weight = int(all(complete[0] or [flag for flags in complete for flag in flags]))
            aspects.append((aspect, weight))
    return aspects


_MOST_FINDINGS = 5


def _find_best(field: Field) -> list[tuple[str, Candidate, str, str]]:
    """For each kind of figure: its heading, the best candidate, its figure, and its lead."""
    found: dict[Aspect, tuple[str, Candidate, str, str]] = {}
    for number, column in enumerate(field.columns):
        cells = [(row.candidate, cell) for row in field.rows if (cell := row.cells[number])]
        candidate, cell = max(cells, key=lambda pair: pair[1].share)
        others, worse = len(cells) - 1, len(cell.better_than)
        worth = f"better than {worse} of {others}" if worse < others else "better than all others"
        found.setdefault(
            column.aspect,
            (column.aspect.heading, candidate, cell.text, worth if worse else "undecided"),
        )
    return list(found.values())[:_MOST_FINDINGS]


def _sort_verdict(verdict: VerdictMatrix, order: Sequence[str]) -> VerdictMatrix:
    """The candidates in the order used on all pages."""
    places = {name: place for place, name in enumerate(order)}
    ordered = sorted(
        verdict.candidates, key=lambda standing: places.get(standing.candidate, len(places))
    )
    return verdict.model_copy(update={"candidates": ordered})


def _list_filters(fields: Sequence[Field]) -> dict[str, tuple[str, list[str]]]:
    """Key in the address -> heading and values, for whatever differs between candidates."""
    traits = [row.candidate.list_traits() for field in fields for row in field.rows]
    keys = [key for own in traits for key in sorted(own, key=lambda key: key.startswith("tag."))]
    values = {
        "workload": {field.workload for field in fields},
        "hardware": {field.hardware for field in fields},
    } | {key: {own.get(key, "-") for own in traits} for key in dict.fromkeys(keys)}
    return {
        key: (key.removeprefix("tag.") if "." in key else key.capitalize(), sorted(texts))
        for key, texts in values.items()
        if len(texts) > 1
    }


def _describe_cell(cell: Cell) -> dict[str, Any]:
    """What the page's script needs to know about a figure."""
    variance = cell.shown.figures.variance
    return {
        "logs": {place: round(value, 6) for place, value in cell.shown.logs.items()},
        "n": len(cell.shown.figures.samples),
        "variance": None if variance is None else round(variance, 10),
        "better": list(cell.better_than),
        "alike": list(cell.alike),
    }


def _list_differences(field: Field) -> list[str]:
    """Other differences between the candidates of a table."""
    most = max(field.list_tests().values(), key=len, default={})
    if len(most) < 2:
        return []
    return list_differences(list(most), [results[0] for results in most.values()])


# --- a candidate ----------------------------------------------------------------------------------


def _list_jobs(candidate: Candidate) -> list[DoneJob]:
    """The candidate's results, grouped by test."""
    jobs = []
    tests = list(dict.fromkeys(source.test_key for source in candidate.sources))
    for key in tests:
        sources = [source for source in candidate.sources if source.test_key == key]
        for number, source in enumerate(sources, 1):
            assert source.stored is not None
            jobs.append(DoneJob(source.test, number if len(sources) > 1 else None, source.stored))
    return jobs


def _tabulate_figures(field: Field, row: Row) -> Table:
    rows: list[list[object]] = [
        [column.heading, cell.text, format_interval(cell.shown), len(cell.shown.figures.samples),
         cell.rank or "-", f"{cell.share:.0%}", cell.note or "-"]
        for column, cell in zip(field.columns, row.cells, strict=True)
        if cell is not None
    ]  # fmt: skip
    headers = ["Figure", "Mean", "95% interval", "Repetitions", "Rank", "Of the best", "Note"]
    return Table(headers, rows, ("Figure", "Note"))


def format_interval(shown: Shown) -> str:
    """The 95 % interval of the mean; `-` if there is only one repetition."""
    return "-" if shown.interval is None else " to ".join(map(shown.aspect.show, shown.interval))


def _compare_versions(field: Field, row: Row) -> Table | None:
    """Each version of the row's database next to the previous one; None if there is only one."""
    place = next(number for number, other in enumerate(field.rows) if other is row)
    family = next((members for members in find_families(field) if place in members), None)
    if family is None:
        return None
    columns = [
        (number, column)
        for number, column in enumerate(field.columns)
        if any(field.rows[member].cells[number] for member in family)
    ]
    rows: list[list[object]] = []
    for before, member in zip([None, *family], family, strict=False):
        rows.append([field.rows[member].candidate.database])
        for number, column in columns:
            cell = field.rows[member].cells[number]
            text = "-" if cell is None else cell.text
            if cell is not None and before is not None:
                text += f" ({describe_ratio(column.ratios.get((member, before)))})"
            rows[-1].append(text)
    return Table(["Version", *(column.heading for _, column in columns)], rows, ("Version",))


def describe_ratio(ratio: Ratio | None) -> str:
    """The difference between two figures, in words."""
    if ratio is None or ratio.interval is None:
        return "unknown: needs 2 repetitions"
    if ratio.differs:
        side = "better" if is_faster(ratio) else "worse"
        factor = format_factor(max(ratio.value, 1 / ratio.value))
        return f"{factor}× {side}, {format_speed_interval(*ratio.interval)}"
    return "no difference shown" if ratio.alike else "undecided"


# --- a query --------------------------------------------------------------------------------------


def _make_queries(field: Field) -> list[dict[str, Any]]:
    """Each query, and the candidates that ran it."""
    columns = [n for n, column in enumerate(field.columns) if column.aspect.key == "hot"]
    cells = [cell for number in columns for row in field.rows if (cell := row.cells[number])]
    queries = list(dict.fromkeys(query for cell in cells for query in cell.shown.logs))
    tests = field.list_tests()
    return [
        {
            "field": field,
            "query": query,
            "slug": slug,
            "table": _tabulate_query(field, tests, columns, query),
            "statements": _list_statements(field, query),
        }
        for query, slug in zip(
            queries, name_slugs(f"{field.slug} {query}" for query in queries), strict=True
        )
    ]


def _tabulate_query(
    field: Field,
    tests: Mapping[str, Mapping[str, Sequence[Result]]],
    columns: Sequence[int],
    query: str,
) -> Table:
    rows: list[list[object]] = []
    for number in columns:
        test = field.columns[number].test
        judged = zip(field.rows, judge_query(field, number, query), strict=True)
        for row, cell in sorted(judged, key=lambda pair: -(pair[1].share if pair[1] else 0)):
            if cell is not None:
                rows.append([
                    row.candidate.name, test, cell.rank or "-", cell.text, format_interval(cell.shown),
                    *_list_more(tests[test][row.candidate.name], query),
                ])  # fmt: skip
    times = ["Mean ms", "95% interval", "p50 ms", "p99 ms", f"{FIGURES['cold_s'].heading} ms"]
    more = [FIGURES[key].heading for key in ("rows_mean", "bytes_mean", "executions", "failed")]
    headers = ["Candidate", "Test", "Rank", *times, *more]
    return Table(headers, rows, ("Candidate", "Test"))


def _list_more(results: Sequence[Result], query: str) -> list[object]:
    """Other figures of a query: means over the repetitions, and sums."""
    summaries = [each for result in results for each in result.query_summary if each.query == query]
    cells: list[object] = []
    for name, scale in (
        ("median", 1e3),
        ("p99", 1e3),
        ("cold", 1e3),
        ("rows_mean", 1),
        ("bytes_mean", 1),
    ):
        values = [value for each in summaries if (value := getattr(each, name)) is not None]
        cells.append(format_ms(scale * (sum(values) / len(values))) if values else "-")
    counts = sum(each.runs for each in summaries), sum(each.errors for each in summaries)
    return [*cells, *(f"{count:,}" for count in counts)]


def _list_statements(field: Field, query: str) -> dict[str, list[Candidate]]:
    """Each distinct statement, with the candidates it was sent to."""
    candidates: dict[str, list[Candidate]] = {}
    for row in field.rows:
        sent = {
            "\n".join(statements.lines)
            for source in row.candidate.sources
            for statements in source.result.statements
            if statements.query == query and source.result.settings.data.workload == field.workload
        }
        for statement in sorted(sent):
            candidates.setdefault(statement, []).append(row.candidate)
    return candidates
