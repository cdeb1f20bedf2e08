"""A campaign's report: one file that needs nothing else. Its candidates stand beside each other, their
repetitions pooled, each in one colour throughout; what is known of single runs is folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.units import format_count

from ..results.decision import VerdictMatrix
from .candidates import CandidateSection
from .chart import Chart
from .pages import place_figure, render_page
from .requirements import make_matrix
from .tables import Table
from .vega import PAPER, choose_colour, choose_shape


@dataclass(frozen=True)
class CampaignPage:
    """What the report of a campaign has."""

    title: str
    candidates: Sequence[CandidateSection]
    left_out: str
    """Why there are no tables of runs, and where they are; empty if they are here."""
    verdict: VerdictMatrix | None
    """What the page begins with; None without requirements."""
    steps: Sequence[str]
    summary: Mapping[str, Sequence[tuple[str, str]]]
    """Candidate -> its rank (`1.`; empty if nobody is ranked) and its figure in each step."""
    doubts: str
    """Which results to doubt, in one sentence."""
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
    """The conditions in which candidates differ."""

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
"""Shape -> its outline in a box of 14 x 14."""


def draw_swatch(place: int) -> str:
    """The mark by which figures show a candidate, as SVG."""
    return (
        '<svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">'
        f'<path d="{_PATHS[choose_shape(place)]}" fill="{PAPER}" stroke="{choose_colour(place)}"'
        ' stroke-width="2"/></svg>'
    )
