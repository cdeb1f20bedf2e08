"""The site that `publish` writes, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from cli.commands.results import write_command
from cli.results.sources import find_sources
from cli.show.site import make_site, write_site

from ..cli.publishing.published import (
    SPEEDS,
    TIMES,
    describe_server,
    judge,
    keep_campaign,
    make_results,
)
from .browser import WatchedPage, find_barriers
from .tool import Tool

ROOT = Path(__file__).parents[2]
SAFE = describe_server(fsync="on")
FAST = describe_server(fsync="off")
PAGES = (
    "index.html", "method.html", "candidates/beta.html", "queries/temperature-newest.html",
    "figures-temperature.html", "verdict-night.html",
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three candidates: alpha and gamma insert alike, beta half as fast, but it answers faster. Alpha alone
    doesn't wait for the disk."""
    folder = tmp_path_factory.mktemp("site")
    results = make_results(
        SPEEDS, TIMES, environments={"alpha": FAST, "beta": SAFE, "gamma": SAFE},
        tags={"beta": {"layout": "wide"}},
    )  # fmt: skip
    keep_campaign(folder / "night", results)
    (folder / "night" / "verdict.json").write_text(judge().model_dump_json())
    write_site(
        folder / "site", make_site(find_sources([folder / "night"]), "Which one?", write_command)
    )
    return folder / "site"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the published comparison, whose charts have many candidates with long names."""
    folder = tmp_path_factory.mktemp("published") / "site"
    sources = find_sources(sorted((ROOT / "comparison" / "results").iterdir()))
    write_site(folder, make_site(sources, "Published", write_command))
    return folder


class Visit(WatchedPage):
    """A page of the site."""

    def __init__(self, page: Page, site: Path) -> None:
        super().__init__(page)
        self._site = site

    def open(self, path: str = "index.html") -> Visit:
        self.page.goto(f"{self._site.as_uri()}/{path}")
        return self

    @property
    def names(self) -> list[str]:
        """The candidates that are shown, in their order."""
        shown = self.page.locator("tbody tr:visible th a")
        return [text.strip() for text in shown.all_inner_texts()]

    @property
    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))

    def take(self, name: str, column: str, part: str = ".rank") -> str:
        """A part of a candidate's figure."""
        row = self.page.locator("tbody tr", has=self.page.get_by_role("link", name=name))
        cell = row.locator(f'td[data-head="{column}"]')
        return cell.locator(part).inner_text() if part else cell.inner_text()

    def weigh(self, **weights: int) -> None:
        for key, weight in weights.items():
            self.page.locator(f"input[name={key}]").fill(str(weight))

    def sort(self, heading: str) -> None:
        # Its name has an arrow, once it is sorted by.
        self.page.locator("th button", has_text=heading).click()


@pytest.fixture
def visit(browser: Browser, site: Path) -> Iterator[Visit]:
    """A visitor without a network."""
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    yield Visit(context.new_page(), site)
    context.close()


@pytest.mark.parametrize("path", PAGES)
def test_pages_open_without_errors_and_ask_for_nothing(visit: Visit, path: str) -> None:
    visit.open(path).page.wait_for_load_state("networkidle")
    assert visit.problems == []
    assert [url for url in visit.requests if not url.startswith("data:")] == visit.requests[:1]


def test_a_tie_looks_like_one(visit: Visit) -> None:
    visit.open()
    ranks = {name: visit.take(name, "Inserts/s") for name in ("alpha", "beta", "gamma")}
    assert ranks == {"alpha": "1 to 2", "gamma": "1 to 2", "beta": "3"}
    leads = visit.page.locator('td[data-column="inserts"].leads')
    assert leads.count() == 2


def test_one_repetition_is_hatched_all_over(browser: Browser, tmp_path: Path) -> None:
    speeds = {name: own[:1] for name, own in SPEEDS.items()}
    keep_campaign(tmp_path / "night", make_results(speeds))
    write_site(
        tmp_path / "site",
        make_site(find_sources([tmp_path / "night"]), "Which one?", write_command),
    )
    visit = Visit(browser.new_page(), tmp_path / "site").open()
    solid = "bar => getComputedStyle(bar, '::before').display !== 'none'"
    bars = visit.page.locator(".bar")
    assert bars.count() == 12
    assert not any(bar.evaluate(solid) for bar in bars.all())
    assert set(visit.page.locator("td[data-column] .rank").all_inner_texts()) == {""}
    visit.page.close()


def test_a_click_on_a_head_orders_by_it(visit: Visit) -> None:
    visit.open().sort("Queries, hot, ms")
    assert visit.names == ["beta", "alpha", "gamma"]
    head = visit.page.locator('th[data-column="hot"]')
    assert head.get_attribute("aria-sort") == "ascending"
    visit.sort("Queries, hot, ms")
    assert visit.names == ["gamma", "alpha", "beta"]
    assert head.get_attribute("aria-sort") == "descending"
    visit.sort("Candidate")
    assert visit.names == ["alpha", "beta", "gamma"]


def test_what_matters_decides_the_score(visit: Visit) -> None:
    visit.open()
    assert visit.names[0] == "beta"
    visit.weigh(hot=0, cold=0)
    # Now it is inserts alone: the score's ranks are those of that column.
    for name in ("alpha", "beta", "gamma"):
        assert visit.take(name, "Score") == visit.take(name, "Inserts/s")
    assert visit.names[-1] == "beta"
    assert visit.take("beta", "Score", "").strip().endswith("50 %")
    assert visit.page.locator("td.uncounted").count() == 6


def test_the_address_is_the_view(visit: Visit, browser: Browser, site: Path) -> None:
    visit.open()
    visit.weigh(hot=5, cold=0)
    visit.sort("Inserts/s")
    visit.page.locator("select[name=durability]").select_option(label="fsync=on")
    assert visit.names == ["gamma", "beta"]
    text = visit.page.locator("main").inner_text()
    assert visit.hash == "#hot=5&cold=0&durability=fsync%3Don&sort=inserts"
    visit.page.reload()
    assert visit.page.locator("main").inner_text() == text
    other = Visit(
        browser.new_context(offline=True, viewport={"width": 1400, "height": 900}).new_page(), site
    )
    other.open(f"index.html{visit.hash}")
    assert other.page.locator("main").inner_text() == text
    assert other.page.locator("input[name=hot]").input_value() == "5"
    other.page.context.close()
    visit.page.get_by_role("button", name="Reset").click()
    visit.page.wait_for_function("location.hash === '#' || location.hash === ''")
    assert visit.names == ["beta", "alpha", "gamma"]


def test_a_strange_address_is_a_view_too(visit: Visit) -> None:
    visit.open("index.html#hot=-3&durability=nothing&sort=constructor&inserts=x&__proto__=1")
    assert sorted(visit.names) == ["alpha", "beta", "gamma"]
    assert visit.problems == []


def test_ranks_are_among_those_shown(visit: Visit) -> None:
    visit.open().page.locator("select[name='tag.layout']").select_option(label="wide")
    assert visit.names == ["beta"]
    assert visit.take("beta", "Inserts/s") == ""
    share = visit.page.locator('tr:visible td[data-column="inserts"] .bar')
    assert share.evaluate("bar => bar.style.getPropertyValue('--share')") == "1"
    visit.page.locator("select[name=durability]").select_option(label="fsync=off")
    assert visit.names == []
    assert visit.page.get_by_text("No candidate matches").is_visible()


def test_it_works_by_keyboard(visit: Visit) -> None:
    visit.open().page.locator("input[name=inserts]").focus()
    visit.page.keyboard.press("ArrowUp")
    assert "inserts=2" in visit.hash
    for _ in range(20):
        visit.page.keyboard.press("Tab")
        if visit.page.evaluate("document.activeElement.textContent") == "Inserts/s":
            break
    visit.page.keyboard.press("Enter")
    assert "sort=inserts" in visit.hash
    assert visit.names[-1] == "beta"


def test_links_lead_to_candidate_question_and_raw_result(visit: Visit) -> None:
    visit.open().page.get_by_role("link", name="newest").click()
    assert "newest" in visit.page.title()
    visit.page.get_by_role("link", name="Comparison").click()
    visit.page.locator("tbody").get_by_role("link", name="beta").click()
    assert visit.page.get_by_text("iotbench insert --target=beta").is_visible()
    visit.page.get_by_role("link", name=re.compile(r"\.json$")).first.click()
    assert '"target": "beta"' in visit.page.locator("body").inner_text()


def test_without_javascript_the_tables_are_there(browser: Browser, site: Path) -> None:
    context = browser.new_context(java_script_enabled=False, offline=True)
    page = context.new_page()
    page.goto(f"{site.as_uri()}/index.html")
    assert page.locator("tbody tr:visible").count() == 3
    assert (
        page.get_by_text("99,0").first.is_visible() or page.get_by_text("100,").first.is_visible()
    )
    assert not page.locator("#view").is_visible()
    assert not page.locator("th.score").is_visible()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_wider_than_a_telephone(
    browser: Browser, site: Path, path: str, scheme: Any
) -> None:
    context = browser.new_context(
        offline=True, viewport={"width": 400, "height": 900}, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(f"{site.as_uri()}/{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    if path == "index.html":
        # The findings are on the first screen.
        box = page.locator("#findings").bounding_box()
        assert box is not None and box["y"] + box["height"] < 900
    context.close()


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing(
    browser: Browser, site: Path, path: str, scheme: Any, width: int
) -> None:
    context = browser.new_context(
        offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme
    )
    page = context.new_page()
    page.goto(f"{site.as_uri()}/{path}")
    assert find_barriers(page) == []
    context.close()


OVERLAPPING = """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")]
    .filter((text) => text.textContent && getComputedStyle(text).opacity !== "0")
    .map((text) =>
      [text.textContent, text.getBoundingClientRect(), /rotate\\((-45|315)/.test(text.outerHTML)]);
  const paper = svg.getBoundingClientRect();
  const cut = texts.filter(([, one]) => one.left < paper.left - 1 || one.right > paper.right + 1);
  return cut.map(([name]) => `${name}: cut off`).concat(texts.flatMap(([name, one, aslant], place) =>
    texts.slice(place + 1)
      // A text that can be read on top of others is there twice; the boxes of slanted ones are not the texts.
      .filter(([other, two, both]) => other !== name && !(aslant && both)
        && one.left + 2 < two.right && two.left + 2 < one.right
        && one.top + 3 < two.bottom && two.top + 3 < one.bottom)
      .map(([other]) => `${name} / ${other}`)));
})"""
LONG_CAPTIONS = """() => [...document.querySelectorAll("figcaption p")].filter((caption) =>
  caption.getBoundingClientRect().height > 2.1 * parseFloat(getComputedStyle(caption).lineHeight)
).map((caption) => caption.textContent)"""


@pytest.mark.parametrize("width", [1400, 400])
def test_no_label_lies_on_another_and_captions_have_two_lines(
    browser: Browser, published: Path, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    files = sorted(published.glob("figures-*.html"))
    assert len(files) == 3
    found = {}
    for file in files:
        page.goto(file.as_uri())
        found[file.name] = [*page.evaluate(OVERLAPPING), *page.evaluate(LONG_CAPTIONS)]
    page.close()
    assert found == {file.name: [] for file in files}


def test_it_prints_without_what_can_be_chosen(visit: Visit) -> None:
    visit.open().page.emulate_media(media="print")
    assert not visit.page.locator("#view").is_visible()
    assert visit.page.locator("tbody tr:visible").count() == 3
    assert len(visit.page.pdf()) > 10_000


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_it(tool: Tool, tmp_path: Path) -> None:
    folder = keep_campaign(tmp_path / "night", make_results())
    done = tool.run("publish", folder, "--output", tmp_path / "site").ok()
    assert re.search(r"Written: .*site/index.html, from 18 results; \d+ files, \d\.\d MB", done.err)
    assert (tmp_path / "site" / "index.html").is_file()
    tool.run("publish", folder, "--output", tmp_path / "site").ok()


def test_what_cannot_be_published_is_one_error(tool: Tool, tmp_path: Path) -> None:
    done = tool.run("publish", tmp_path, "--output", tmp_path / "site")
    assert done.status == 2
    assert "there is no complete result in" in done.err
    assert not (tmp_path / "site").exists()
