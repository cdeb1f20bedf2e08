"""A campaign's report: one self-contained file. Candidates are shown side by side, with their repetitions
pooled and one colour each throughout; details of single runs are folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from simulator.conditions import Condition
from simulator.units import format_count, join_words

from ..results.caveats import Kind
from ..results.conditions import find_declared, list_settings
from ..results.decision import VerdictMatrix
from ..results.model import Result, SentStatements, as_mapping
from ..results.naming import format_value, name_database
from ..results.store import StoredResult
from . import words
from .drawing import place_figure, render_page
from .notes import describe_answers, describe_caveats, list_interventions, sum_up_answers
from .requirements import make_matrix
from .stored import tabulate_result
from .tables import Table
from .templates import Chart
from .vega import PAPER, choose_colour, choose_shape

MOST_TOLD = 4
"""How many sentences on disturbances and indexes are not folded."""


@dataclass(frozen=True)
class DoneJob:
    """A job of a candidate that has a result."""

    step: str
    repetition: int | None
    """None if there is only one of each step."""
    stored: StoredResult

    @property
    def result(self) -> Result:
        """What it measured."""
        return self.stored.result

    def __str__(self) -> str:
        return self.step if self.repetition is None else f"{self.step} {self.repetition}"


@dataclass(frozen=True)
class CandidateSection:
    """One candidate in the report."""

    place: int
    """Its place among all candidates, from 0, which decides its colour."""
    name: str
    about: str
    """Its database and version, and how many results it has."""
    interventions: Sequence[str]
    """What was done to the database, and with what effect."""
    more: int
    """How many of these are only in the folded parts."""
    answers: str
    doubts: Sequence[tuple[str, str, str]]
    """Kind of caveat, the jobs that have it, the text of the first of them."""
    conditions: Mapping[str, Table]
    """Kind of condition -> its settings."""
    steps: Sequence[Mapping[str, Any]]
    """Each step with its jobs in words, and the tables of all its repetitions."""
    statements: Sequence[SentStatements]
    """Its schema, and the statement of each query."""


@dataclass(frozen=True)
class CampaignPage:
    """The contents of a campaign's report."""

    title: str
    candidates: Sequence[CandidateSection]
    left_out: str
    """Why there are no tables of runs here, and where to find them; empty if they are here."""
    verdict: VerdictMatrix | None
    """The verdict at the top of the page; None without requirements."""
    steps: Sequence[str]
    summary: Mapping[str, Sequence[tuple[str, str]]]
    """Candidate -> its rank (`1.`; empty if there is no ranking) and its figure in each step."""
    doubts: str
    """One sentence on which results to doubt."""
    hardware: Sequence[str]
    rankings: Mapping[str, Sequence[str]]
    """Title -> lines."""
    failed: Mapping[str, str]
    """Job -> why it failed."""
    figures: Sequence[Chart]
    single_runs: Sequence[Chart]
    """Figures of single runs, which are folded."""
    tables: Mapping[str, Table]
    """Step -> what its figures show."""
    scalings: Sequence[tuple[Chart, Table]]
    """Each step over the number of nodes."""
    differences: Sequence[str]
    """Conditions that differ between candidates."""

    @property
    def ranked(self) -> bool:
        """Whether there are ranks in the summary."""
        return any(rank for cells in self.summary.values() for rank, _ in cells)


def make_campaign_report(page: CampaignPage) -> str:
    """The page."""
    ids = {section.name: f"candidate-{section.place + 1}" for section in page.candidates}
    count = sum(len(step["jobs"]) for section in page.candidates for step in section.steps)
    return render_page(
        "campaign.html",
        title=page.title,
        page=page,
        matrix=page.verdict and make_matrix(page.verdict),
        ids=ids,
        links={name: f"#{id_}" for name, id_ in ids.items()},
        results=format_count(count, "stored result"),
        of=format_count(len(page.candidates), "candidate"),
        swatches={section.name: draw_swatch(section.place) for section in page.candidates},
        figures=list(map(place_figure, page.figures)),
        single_runs=list(map(place_figure, page.single_runs)),
        scalings=[(place_figure(figure), table) for figure, table in page.scalings],
    )


_PATHS = {
    "circle": "M12 7A5 5 0 1 1 2 7A5 5 0 1 1 12 7Z",
    "square": "M2.5 2.5H11.5V11.5H2.5Z",
    "triangle-up": "M7 2L12.5 12H1.5Z",
    "diamond": "M7 1L12 7L7 13L2 7Z",
    "cross": "M5 1.5H9V5H12.5V9H9V12.5H5V9H1.5V5H5Z",
    "triangle-down": "M7 12L1.5 2H12.5Z",
    "triangle-right": "M2 1.5L12.5 7L2 12.5Z",
}
"""Shape -> its outline in a box of 14 × 14."""


def draw_swatch(place: int) -> str:
    """The mark by which figures show a candidate, as SVG."""
    return (
        '<svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
        f'<path d="{_PATHS[choose_shape(place)]}" fill="{PAPER}" stroke="{choose_colour(place)}"'
        ' stroke-width="2"/></svg>'
    )


# --- a candidate, its repetitions together --------------------------------------------------------


def make_section(
    place: int, name: str, jobs: Sequence[DoneJob], tabulated: bool = True
) -> CandidateSection:
    """The section of a candidate, made from its jobs, if any. `tabulated`: with the tables of their runs."""
    servers = dict.fromkeys(name_database(job.result) or job.result.module for job in jobs)
    about = [*servers, format_count(len(jobs), "result")] if jobs else ["nothing was measured"]
    sentences = [f"{job}: {text}" for job in jobs for text in list_interventions(job.result)]
    steps: list[dict[str, Any]] = []
    for step in dict.fromkeys(job.step for job in jobs):
        own = [job for job in jobs if job.step == step]
        repeated = own[0].repetition is not None
        steps.append({
            "name": step,
            "count": format_count(len(own), "repetition") if repeated else "",
            "jobs": [
                {
                    "name": str(job),
                    "id": job.stored.id,
                    "measured": words.describe_measurement(job.result),
                    "answer": " ".join(filter(None, [
                        words.give_answer(job.result), describe_answers(job.result),
                        *list_interventions(job.result),
                    ])),
                    "caveats": describe_caveats(job.result),
                }
                for job in own
            ],
            "tables": join_tables(own) if tabulated else {},
        })  # fmt: skip
    checked, unchecked = sum_up_answers([each for job in jobs for each in job.result.answers])
    answers = f"Answers: {checked}" if checked else "Answers: none were checked"
    answers += f"; {unchecked:,} not checked." if unchecked else "."
    return CandidateSection(
        place,
        name,
        ", ".join(about),
        sentences[:MOST_TOLD],
        max(0, len(sentences) - MOST_TOLD),
        answers if any(job.result.answers for job in jobs) else "",
        pool_doubts(jobs),
        tabulate_conditions(jobs),
        steps,
        pool_statements(job.result.statements for job in jobs),
    )


def pool_statements(results: Iterable[Iterable[SentStatements]]) -> list[SentStatements]:
    """The distinct statements of a candidate's results; a query's statement has the parameters of its first
    execution."""
    parts: dict[object, SentStatements] = {}
    for part in chain.from_iterable(results):
        same = part.title if part.query else (part.title, *part.lines)
        parts.setdefault(same, part)
    return sorted(parts.values(), key=lambda part: part.query is not None)


def pool_doubts(jobs: Sequence[DoneJob]) -> list[tuple[str, str, str]]:
    """Each kind of caveat once, most serious first, with the jobs it applies to."""
    by_kind: dict[str, dict[str, str]] = {}
    for job in jobs:
        for kind, text in describe_caveats(job.result):
            by_kind.setdefault(kind, {}).setdefault(str(job), text)
    order = [str(kind) for kind in Kind]
    doubts = []
    for kind in sorted(by_kind, key=order.index):
        texts = by_kind[kind]
        first = next(iter(texts))
        where = f"all {len(jobs)} jobs" if len(texts) == len(jobs) > 1 else join_words(list(texts))
        same = len(set(texts.values())) == 1
        doubts.append((kind, where, texts[first] if same else f"as in {first}: {texts[first]}"))
    return doubts


_KINDS = {
    "Schema": (Condition.SCHEMA,),
    "Durability and replication": (Condition.DURABILITY, Condition.REPLICATION),
    "Settings of the database": (Condition.DATABASE,),
    "Client and load": (Condition.CLIENT, Condition.BATCH, Condition.LOAD),
    "Data and workload": (Condition.DATA, Condition.WORKLOAD),
    "Machines": (Condition.HARDWARE,),
}
"""Title -> the conditions whose settings are in its table."""


def tabulate_conditions(jobs: Sequence[DoneJob]) -> dict[str, Table]:
    """Title -> settings with their values; where jobs differ, with the steps of each value."""
    by_condition: dict[Condition, dict[str, dict[str, dict[str, None]]]] = {}

    def add(condition: Condition, name: str, value: object, step: str) -> None:
        steps = by_condition.setdefault(condition, {}).setdefault(name, {})
        steps.setdefault(format_value(value), {})[step] = None

    for job in jobs:
        for setting, stated in list_settings(job.result, find_declared(job.result)).items():
            add(stated.condition, setting.name, stated.value, job.step)
        # The schema as it was found; `list_settings` has its indexes.
        for name, value in as_mapping(job.result.describe("database").get("schema")).items():
            if name != "indexes":
                add(Condition.SCHEMA, f"{name} (as found)".replace("_", " "), value, job.step)
    tables = {}
    for title, conditions in _KINDS.items():
        rows = [
            [
                name,
                "; ".join(f"{value} ({', '.join(steps)})" for value, steps in values.items())
                if len(values) > 1
                else next(iter(values)),
            ]
            for condition in conditions
            for name, values in by_condition.get(condition, {}).items()
            if set(values) != {format_value(None)}
        ]
        if rows:
            tables[title] = Table(["Setting", "Value"], rows, left=("Setting", "Value"))
    return tables


# --- tables of single runs ------------------------------------------------------------------------


_PAIRS = ("Options", "Environment")
"""Tables of names and values, which hardly differ between repetitions."""


def join_tables(jobs: Sequence[DoneJob]) -> dict[str, Table]:
    """Title -> the rows of all repetitions of a step, each with its number."""
    tables_of_jobs = [(job, tabulate_result(job.result, terminal=False)) for job in jobs]
    joined = {}
    for title in dict.fromkeys(title for _, tables in tables_of_jobs for title in tables):
        parts = [(job, tables[title]) for job, tables in tables_of_jobs if title in tables]
        first_job, first = parts[0]
        if title in _PAIRS:
            values: dict[str, dict[str, None]] = {}
            for _, table in parts:
                for name, value in table.rows:
                    values.setdefault(str(name), {})[str(value)] = None
            rows = [[name, " / ".join(texts)] for name, texts in values.items()]
            joined[title] = Table(first.headers, rows, first.left)
        elif first_job.repetition is None:
            joined[title] = first
        else:
            # A table may lack columns for which it has no figures.
            headers = list(dict.fromkeys(header for _, table in parts for header in table.headers))
            joined[title] = Table(
                ["Repetition", *headers],
                [
                    [f"{job.repetition}", *(cells.get(header, "-") for header in headers)]
                    for job, table in parts
                    for cells in (dict(zip(table.headers, row, strict=True)) for row in table.rows)
                ],
                first.left,
            )
    return joined
