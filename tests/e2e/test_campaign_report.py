"""A campaign's report in a real browser: its size and first screen, wide and narrow, light, dark, printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from cli.results.decision import (
    CandidateVerdict,
    Evidence,
    Requirement,
    Sample,
    Unit,
    VerdictMatrix,
    decide,
    find_narrowest,
)
from cli.results.store import StoredResult
from cli.run.campaign.reporting import make_page, rank
from cli.show.campaign import make_campaign_report

from ..cli.run.campaign.stored_campaign import CANDIDATES, make_campaign
from .browser import await_frame, find_barriers, set_size
from .test_report_page import (
    CUT_OFF,
    OVERLAPS,
    SCROLLED,
    UNREADABLE,
    Opened,
    check_contrast,
    each_scheme,
)

SCREEN_PX = 900
MOST_SCREENS = 10
"""For 24 jobs, on a window of 1400 x 900."""

REQUIRED = (
    Requirement(key="events_per_s", heading="events", unit=Unit.EVENTS_PER_S, bound=1600, at_least=True),
    Requirement(key="insert.p99", heading="inserts p99", unit=Unit.MS, bound=250),
    Requirement(key="queries.last.p99", heading="last-per-machine p99", unit=Unit.MS, bound=1000),
    Requirement(key="queries.week.p99", heading="hourly-week p99", unit=Unit.MS, bound=2000),
    Requirement(key="disk", heading="disk at 90 days", unit=Unit.BYTES, bound=2e12),
    Requirement(key="cost_per_month", heading="cost a month", unit=Unit.MONEY, bound=800),
    Requirement(key="faults.kill-server", heading="outage by kill-server", unit=Unit.S, bound=60),
)  # fmt: skip
FIGURES = {
    "postgresql": (21_000, 112, 480, 2_600, 2.9e12, 640, 4),
    "questdb": (48_000, 31, 140, 900, 0.9e12, 410, 9),
    "influxdb": (9_000, 230, 620, 1_500, 0.6e12, None, 31),
}


def make_verdict(done: Mapping[str, StoredResult]) -> VerdictMatrix:
    """A verdict on candidates: one misses two requirements, one meets all, and one is undecided."""
    candidates = []
    for name in CANDIDATES:
        ids = [done[f"{name} load {number}"].id for number in (1, 2)]
        cells = [
            decide(required, [make_sample(required, value, *pair) for pair in enumerate(ids, 1)])
            for required, value in zip(REQUIRED, FIGURES[name], strict=True)
        ]
        candidates.append(
            CandidateVerdict(candidate=name, cells=cells, narrowest=find_narrowest(cells))
        )
    return VerdictMatrix(
        title="x", requirements=list(REQUIRED), candidates=candidates, repeats=2, notes=[]
    )


def make_sample(required: Requirement, value: float | None, number: int, result: str) -> Sample:
    if value is None:
        return Sample(repetition=number, keeps=None, why="no price is known")
    measured = value * (1 + 0.004 * number)
    keeps = required.find_headroom(measured) >= 1
    return Sample(
        repetition=number, value=measured, keeps=keeps, evidence=[Evidence(result=result)]
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report with a verdict, and that of a campaign without requirements."""
    folder = tmp_path_factory.mktemp("campaign")
    campaign = make_campaign(folder)
    done = campaign.folder.find_done(campaign.jobs)
    rankings = rank(campaign, done)
    plain = make_page(campaign, done, rankings, list(rankings.values()), None)
    described = {"verdict": replace(plain, verdict=make_verdict(done)), "plain": plain}
    for name, page in described.items():
        (folder / f"{name}.html").write_text(make_campaign_report(page))
    return {name: folder / f"{name}.html" for name in described}


@pytest.fixture(scope="module")
def pages(browser: Browser, files: dict[str, Path]) -> Iterator[dict[str, Opened]]:
    context = browser.new_context(offline=True)
    yield {name: Opened(context.new_page(), file) for name, file in files.items()}
    context.close()


@pytest.fixture(params=["verdict", "plain"])
def opened(request: pytest.FixtureRequest, pages: dict[str, Opened]) -> Opened:
    """Each of the two reports, in a window of the usual size."""
    report = pages[request.param]
    set_size(report.page, 1400, SCREEN_PX)
    report.page.emulate_media(color_scheme="light", media="screen")
    return report


HEIGHT = "document.documentElement.scrollHeight"
WIDTH = "document.documentElement.scrollWidth"


def test_24_jobs_take_ten_screens(opened: Opened) -> None:
    assert opened.page.evaluate(HEIGHT) <= MOST_SCREENS * SCREEN_PX
    assert opened.problems == []


NOT_SEEN = """([selector, height]) => [...document.querySelectorAll(selector)]
  .filter((part) => {
    const box = part.getBoundingClientRect();
    return !(box.height > 0 && box.top >= 0 && box.bottom <= height && box.left >= 0
             && box.right <= innerWidth);
  }).map((part) => part.textContent)"""


@pytest.mark.parametrize("width", [1400, 400])
def test_who_meets_what_is_seen_without_scrolling(
    pages: dict[str, Opened], width: int, tmp_path: Path
) -> None:
    page = pages["verdict"].page
    set_size(page, width, SCREEN_PX)
    page.evaluate("() => { scrollTo(0, 0); }")
    assert (
        page.evaluate(NOT_SEEN, ["#verdict .states td, #verdict .states tbody th", SCREEN_PX]) == []
    )
    assert page.evaluate(WIDTH) <= width
    cells = page.locator("#verdict td.whole").all_text_contents()
    assert [cell.split()[:2] for cell in cells] == [
        ["✗", "missed"], ["✓", "met"], ["?", "undecided"],
    ]  # fmt: skip
    assert "meets all 7; narrowest: cost a month (1.9" in cells[1]
    assert len(page.screenshot(path=tmp_path / "first.png")) > 20_000


@pytest.mark.parametrize("width", [1400, 400])
def test_the_ranking_is_seen_without_scrolling(pages: dict[str, Opened], width: int) -> None:
    page = pages["plain"].page
    set_size(page, width, SCREEN_PX)
    page.evaluate("() => { scrollTo(0, 0); }")
    assert page.evaluate(NOT_SEEN, ["#summary td, #summary tbody th", SCREEN_PX]) == []


def test_states_are_told_in_words_and_symbols(pages: dict[str, Opened]) -> None:
    page = pages["verdict"].page
    set_size(page, 1400, SCREEN_PX)
    for state, symbol in (("met", "✓"), ("missed", "✗"), ("undecided", "?")):
        texts = page.locator(f"#verdict td.{state}").all_inner_texts()
        assert texts
        assert all(text.startswith(f"{symbol} {state}") for text in texts)


@pytest.mark.parametrize("width", [1400, 1000, 400])
def test_nothing_is_cut_off_or_too_small(opened: Opened, width: int) -> None:
    page = opened.page
    set_size(page, width, SCREEN_PX)
    for details in page.locator("#figures details").all():
        details.evaluate("(one) => { one.open = true; }")
    await_frame(page)
    assert page.evaluate(WIDTH) <= width
    assert page.evaluate(UNREADABLE) == []
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(SCROLLED) == []
    if width == 1400:
        assert page.evaluate(CUT_OFF) == []
    for details in page.locator("#figures details").all():
        details.evaluate("(one) => { one.open = false; }")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened: Opened, scheme: Any) -> None:
    opened.page.emulate_media(color_scheme=scheme, media="screen")
    assert find_barriers(opened.page) == []


@each_scheme
def test_it_is_readable_in_light_and_dark(
    opened: Opened, scheme: Any, media: Any, dark: bool
) -> None:
    opened.page.emulate_media(color_scheme=scheme, media=media)
    colours = check_contrast(
        opened.page,
        dark,
        0.3,
        muted=(".aside", "color"),
        swatch=(".swatch path", "stroke"),
        bar=("#figures .mark-rect path", "fill"),
    )
    assert colours["swatch"] == opened.page.evaluate(
        "getComputedStyle(document.querySelector('#figures .mark-symbol path')).stroke"
    )


def test_what_is_printed_are_conditions_and_no_tables_of_runs(opened: Opened) -> None:
    page = opened.page
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#candidates h4", has_text="Schema").first.is_visible()
    assert not page.locator("#candidates details.raw").first.is_visible()
    assert page.pdf().startswith(b"%PDF")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false;")


def test_contents_and_names_lead_to_their_parts(opened: Opened) -> None:
    links = opened.page.locator("nav a, .matrix a")
    assert links.count() > len(CANDIDATES)
    for link in links.all():
        assert opened.page.locator(str(link.get_attribute("href"))).count() == 1


def test_a_cell_leads_to_the_results_that_it_is_from(pages: dict[str, Opened]) -> None:
    """Though they are folded."""
    page: Page = pages["verdict"].page
    ids = page.locator("#candidates h4 .aside").all_text_contents()
    assert len(ids) == 24 == len(set(ids))
    page.locator("#verdict details").evaluate("(one) => { one.open = true; }")
    link = page.locator("#verdict details a").first
    target = page.locator(f'[id="{str(link.get_attribute("href")).removeprefix("#")}"]')
    assert not target.is_visible()
    link.click()
    target.wait_for(state="visible")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = false;")
