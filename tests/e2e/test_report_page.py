"""The report and the plots in a real browser, and the commands that write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from cli.results.model import Result
from cli.results.statistics import estimate_ratio
from cli.show.report import make_report
from cli.show.tables import format_ms

from ..cli.made import inserts, queries, steps, stored
from .browser import WatchedPage, await_frame, find_barriers, set_size
from .test_stored_results import Kept, keep
from .tool import Done, Tool

BASE = inserts({1: [100.5, 101.0, 99.0], 4: [300.0, 303.0, 297.25]})
SLOW = inserts({1: [50.0, 51.0, 49.0], 4: [290.0, 300.0, 310.0]}, "beta")
ASKED = queries({"count": [0.5, 0.625], "newest": [2.0, None]}, "gamma")
LEVELS = steps({0: 200.0, 500: 150.5}, "delta")
RESULTS: dict[str, Result] = {"base": BASE, "slow": SLOW, "asked": ASKED, "levels": LEVELS}


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """The results, stored."""
    folder = tmp_path / "kept"
    return {name: keep(folder, hour, result) for hour, (name, result) in enumerate(RESULTS.items())}


def write_report(tool: Tool, kept: Kept, file: Path, *more: object, **keys: Any) -> Done:
    return tool.run("report", *kept.values(), "--output", file, *more, **keys).ok()


class Opened(WatchedPage):
    """A report's page."""

    def __init__(self, page: Page, file: Path) -> None:
        super().__init__(page)
        page.goto(file.as_uri())

    def hover(self, figure: str, nth: int) -> str:
        """What is shown when the pointer comes to a mark."""
        marks = self.page.locator(
            f'#figure-{figure} :is([aria-roledescription="point"], [aria-roledescription="bar"])'
        )
        mark = marks.nth(nth)
        mark.scroll_into_view_if_needed()
        # The page hears of its scrolling with the next frame, and then hides what is shown.
        await_frame(self.page)
        box = mark.bounding_box()
        assert box is not None
        self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        tip = self.page.locator("#tip")
        tip.wait_for(state="visible")
        return tip.inner_text()

    def column(self, table: int, number: int) -> list[str]:
        """The cells of a column."""
        rows = self.page.locator("#tables table").nth(table).locator("tbody tr")
        return rows.locator(f"td:nth-child({number + 1})").all_inner_texts()

    def sort(self, table: int, number: int) -> None:
        self.page.locator("#tables table").nth(table).locator("th button").nth(number).click()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report, as the command writes it."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(
        make_report([stored(result, name) for name, result in RESULTS.items()], "Report")
    )
    return file


@pytest.fixture
def opened(browser: Browser, page_file: Path) -> Iterator[Opened]:
    """The report in a browser without a network."""
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 900})
    yield Opened(context.new_page(), page_file)
    context.close()


# --- the page -------------------------------------------------------------------------------------


def test_it_opens_without_errors_and_without_a_network(opened: Opened) -> None:
    opened.page.wait_for_load_state("networkidle")
    for figure in ("workers", "fill-level", "queries", "time", "latency", "client", "phases"):
        assert opened.page.locator(f"#figure-{figure} svg").is_visible()
    opened.hover("workers", 0)
    opened.sort(0, 1)
    assert opened.problems == []
    assert [url for url in opened.requests if not url.startswith("data:")] == opened.requests[:1]


def test_hover_shows_the_stored_figures(opened: Opened) -> None:
    """The figures of every mark, when the pointer is on it."""
    expected = []
    for result in (BASE, SLOW):
        for entry in result.insert_summary:
            assert entry.ci95 is not None
            lines = [
                result.target,
                f"{entry.workers} worker{'s' if entry.workers > 1 else ''}: {entry.avg:,.1f} inserts/s",
                f"95 % interval {entry.ci95[0]:,.1f} to {entry.ci95[1]:,.1f}",
                f"3 runs, median {entry.median:,.1f}",
            ]
            expected.append("\n".join(lines))
    shown = [opened.hover("workers", n) for n in range(4)]
    assert shown[0] == expected[0]
    assert shown[2] == expected[2]
    # Four workers were as fast in both: one mark lies on the other, and both are told.
    assert shown[1] == shown[3] == f"{expected[1]}\n\n{expected[3]}"
    levels = [opened.hover("fill-level", n).splitlines()[1] for n in range(2)]
    assert levels == [
        f"2 workers, {entry.fill_level:,} events before: {entry.avg:,.1f} inserts/s"
        for entry in LEVELS.insert_summary
    ]
    times = [opened.hover("queries", n).splitlines()[1] for n in range(2)]
    assert times == [
        f"{entry.query}: mean {format_ms(1000 * entry.avg)} ms" for entry in ASKED.query_summary
    ]
    run = BASE.runs[0]
    assert opened.hover("phases", 0).splitlines() == [
        "alpha, 1 worker, run 1", f"start: {run.phases_s['start']:.3f} s",
    ]  # fmt: skip


def test_the_pointer_needs_not_be_on_the_mark(opened: Opened) -> None:
    opened.hover("workers", 0)
    expected = opened.page.locator("#tip").inner_text()
    mark = opened.page.locator("#figure-workers [aria-roledescription=point]").first
    box = mark.bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] - 8, box["y"] - 4)
    assert opened.page.locator("#tip").inner_text() == expected
    opened.page.mouse.move(box["x"] + 120, box["y"] - 60)
    assert not opened.page.locator("#tip").is_visible()


def test_tables_show_the_stored_figures(opened: Opened) -> None:
    rates = [f"{run.group.rate_per_s or 0:,.0f}" for run in BASE.writers]
    assert opened.column(1, 4) == rates
    page = opened.page.inner_text("main")
    speed = estimate_ratio([50.0, 51.0, 49.0], [100.5, 101.0, 99.0])
    assert f"{1 / speed.value:.2f}× slower" in page
    assert speed.interval is not None
    low, high = speed.interval
    assert f"{1 / high:.2f} to {1 / low:.2f}× slower" in page


def test_tables_sort_by_number_and_back(opened: Opened) -> None:
    unsorted = opened.column(1, 4)
    opened.sort(1, 4)
    assert opened.column(1, 4) == sorted(unsorted, key=float)
    assert [int(n) for n in opened.column(1, 0)] == [1, 1, 1, 4, 4, 4]
    opened.sort(1, 4)
    assert opened.column(1, 4) == sorted(unsorted, key=float, reverse=True)
    heads = opened.page.locator("#tables table").nth(1).locator("th")
    assert heads.nth(4).get_attribute("aria-sort") == "descending"
    assert heads.nth(3).get_attribute("aria-sort") is None


def luminance(colour: str) -> float:
    """The luminance of `rgb(…)`, roughly."""
    red, green, blue = map(int, colour.removeprefix("rgb(").removesuffix(")").split(", "))
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255


COLOURS = {"paper": ("body", "background-color"), "text": ("body", "color")}
READ_COLOURS = """(wanted) => Object.fromEntries(Object.entries(wanted).map(([name, [selector, style]]) =>
    [name, getComputedStyle(document.querySelector(selector)).getPropertyValue(style)]))"""


def check_contrast(
    page: Page, dark: bool, least: float, **places: tuple[str, str]
) -> dict[str, str]:
    """Text and these places (selector, style) stand out from a page's paper; all their colours."""
    colours: dict[str, str] = page.evaluate(READ_COLOURS, {**COLOURS, **places})
    luminances = {name: luminance(colour) for name, colour in colours.items()}
    assert (luminances["paper"] < 0.2) is dark
    for name in ("text", *places):
        assert abs(luminances[name] - luminances["paper"]) > least, (name, colours)
    return colours


each_scheme = pytest.mark.parametrize(
    ("scheme", "media", "dark"),
    [("light", "screen", False), ("dark", "screen", True), ("dark", "print", False)],
)


@each_scheme
def test_it_is_readable_in_dark_light_and_on_paper(
    opened: Opened, scheme: Any, media: Any, dark: bool
) -> None:
    opened.page.emulate_media(color_scheme=scheme, media=media)
    check_contrast(
        opened.page,
        dark,
        0.4,
        label=("#figure-workers .role-axis-label text", "fill"),
        line=("#figure-workers .mark-line path", "stroke"),
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(opened: Opened, scheme: Any) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    assert find_barriers(opened.page) == []


def test_it_prints_with_all_details(opened: Opened) -> None:
    assert not opened.page.locator("#tables details table").first.is_visible()
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.page.locator("#tables details table").first.is_visible()
    assert opened.page.pdf().startswith(b"%PDF")


# Names, numbers and texts as long as they come, in the fonts that this machine has.
LONG = (
    inserts({1: [3.1e6, 3.2e6, 3e6], 16: [9.5e6, 9.6e6, 9.4e6]}, "postgresql-kubernetes"),
    inserts({1: [50.0, 51.0], 16: [60.0, 61.0]}, "timescaledb-kubernetes", {"batch": 10_000}),
    queries({"newest-per-device-tuned": [2.0, 2.5], "temperature-stats-per-device": [0.25]}),
    steps(
        {step * 50_000_000: 180_000.0 - step for step in range(10)}, source="https://" + "a" * 90
    ),
)


@pytest.fixture(scope="module")
def long_page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A report whose texts are long, drawn once: nothing in it changes except with the window."""
    file = tmp_path_factory.mktemp("long") / "long.html"
    file.write_text(
        make_report([stored(result, f"id-{n}") for n, result in enumerate(LONG)], "Long")
    )
    context = browser.new_context(offline=True)
    yield Opened(context.new_page(), file).page
    context.close()


@pytest.fixture
def long(long_page: Page) -> Page:
    """The long report in a window of the usual size."""
    set_size(long_page, 1200, 900)
    long_page.emulate_media(color_scheme="light")
    return long_page


OVERLAPS = """() => {
  const visible = (text) => text.getBoundingClientRect().width && text.style.opacity !== "0"
    && text.getAttribute("opacity") !== "0" && text.textContent;
  const found = [];
  for (const svg of document.querySelectorAll("figure svg")) {
    const texts = (selector) => [...svg.querySelectorAll(selector)].filter(visible);
    for (const title of texts(".role-axis-title text")) {
      const one = title.getBoundingClientRect();
      for (const label of texts(".role-axis-label text")) {
        const other = label.getBoundingClientRect();
        if (one.left < other.right && other.left < one.right
            && one.top < other.bottom && other.top < one.bottom) {
          found.push(`${title.textContent} / ${label.textContent}`);
        }
      }
    }
  }
  return found;
}"""

CUT_OFF = """() => {
  const found = [];
  for (const svg of document.querySelectorAll("figure svg")) {
    const paper = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.width && box.left < paper.left - 1) found.push(text.textContent);
    }
  }
  for (const part of document.querySelectorAll(".scroll")) {
    if (part.scrollWidth > part.clientWidth) found.push(part.textContent.slice(0, 60));
    if (part.getBoundingClientRect().right > innerWidth) found.push("beyond the window");
  }
  return found;
}"""

BROKEN_WORDS = """() => {
  const found = [];
  for (const cell of document.querySelectorAll("main td, main th")) {
    const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    while (text.nextNode()) {
      for (const word of text.currentNode.data.matchAll(/[^\\s-]+/g)) {
        const range = document.createRange();
        range.setStart(text.currentNode, word.index);
        range.setEnd(text.currentNode, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
        if (lines.size > 1) found.push(word[0]);
      }
    }
  }
  return found;
}"""


def test_no_axis_title_lies_on_a_label(long: Page) -> None:
    assert long.evaluate(OVERLAPS) == []


OUTSIDE = """(height) => ["#verdict .verdict", "#verdict .hardware", "#figure-answer svg", "nav"]
  .filter((part) => {
    const box = document.querySelector(part).getBoundingClientRect();
    return !(box.height > 0 && box.top >= 0 && box.bottom <= height && box.left >= 0
             && box.right <= innerWidth);
  })"""

UNREADABLE = """() => {
  const found = [];
  for (const text of document.querySelectorAll("figure svg text")) {
    const {a, b} = text.getScreenCTM();
    const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
    if (text.textContent && size < 9) found.push(`${text.textContent}: ${size} px`);
  }
  return found;
}"""

SHORTENED = """() => [...document.querySelectorAll("#figure-answer .role-axis-label text")]
  .map((text) => text.textContent).filter((text) => text.includes("…"))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_answer_is_seen_without_scrolling(long: Page, scheme: Any, tmp_path: Path) -> None:
    """In words and as bars with their dots, and the machines; and as a picture it isn't empty."""
    set_size(long, 1400, 900)
    long.emulate_media(color_scheme=scheme)
    assert long.evaluate(OUTSIDE, 900) == []
    marks = long.locator('#figure-answer [aria-roledescription="point"]')
    assert marks.count() == 5
    assert long.evaluate(SHORTENED) == []
    # Of one colour it would be much smaller.
    assert len(long.screenshot(path=tmp_path / "first.png")) > 40_000


def test_the_answer_of_many_with_long_names_is_seen_without_scrolling(
    browser: Browser, tmp_path: Path
) -> None:
    name = "timescaledb-kubernetes batch=10000 in_flight=16 copy_format=binary"
    many = [inserts({4: [100.0 + 9 * n, 120.0]}, label=f"{name} {n}") for n in range(13)]
    file = tmp_path / "many.html"
    file.write_text(
        make_report([stored(result, f"id-{n}") for n, result in enumerate(many)], "Many")
    )
    context = browser.new_context(offline=True, viewport={"width": 1400, "height": 900})
    page = Opened(context.new_page(), file).page
    assert page.evaluate(OUTSIDE, 900) == []
    assert page.evaluate(OVERLAPS) == []
    context.close()


def test_the_contents_lead_to_their_parts(long: Page) -> None:
    links = long.locator("nav a")
    for link in links.all():
        assert long.locator(str(link.get_attribute("href"))).count() == 1


@pytest.mark.parametrize("width", [1400, 400])
def test_letters_of_figures_can_be_read(long: Page, width: int) -> None:
    set_size(long, width, 900)
    assert long.evaluate(UNREADABLE) == []


SCROLLED = """() => [...document.querySelectorAll("figure")]
  .filter((figure) => {
    const place = figure.querySelector(".drawing");
    return place.scrollWidth > place.clientWidth + 1;
  }).map((figure) => figure.id)"""

WIDTHS = (
    """() => [...document.querySelectorAll("figure svg")].map((svg) => svg.viewBox.baseVal.width)"""
)


def test_figures_are_drawn_for_the_width_of_the_page(long: Page) -> None:
    """On a narrow one nothing scrolls, overlaps, or is shown twice; and back again."""
    wide = long.evaluate(WIDTHS)
    set_size(long, 400, 900)
    narrow = long.evaluate(WIDTHS)
    assert len(narrow) == len(wide)
    assert max(narrow) <= 368 < min(wide)
    assert long.evaluate(SCROLLED) == []
    assert long.evaluate(OVERLAPS) == []
    long.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert long.evaluate(WIDTHS) == wide
    set_size(long, 1200, 900)
    assert long.evaluate(WIDTHS) == wide


@pytest.mark.parametrize("width", [1200, 1600])
def test_nothing_is_cut_off(long: Page, width: int) -> None:
    set_size(long, width, 900)
    assert long.evaluate(CUT_OFF) == []


@pytest.mark.parametrize("width", [1200, 800, 400, 380])
def test_no_word_is_broken_in_a_column(long: Page, width: int) -> None:
    set_size(long, width, 900)
    assert long.evaluate(BROKEN_WORDS) == []
    assert long.evaluate("document.documentElement.scrollWidth") <= width


def test_no_mark_of_another_format_is_left(long: Page) -> None:
    """Texts are written for a terminal, too: neither backticks nor tildes of Markdown."""
    assert [mark for mark in ("`", "~~", "**") if mark in long.inner_text("main")] == []


def test_it_fits_a_small_screen(opened: Opened) -> None:
    set_size(opened.page, 380, 700)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 380


def test_a_plot_follows_the_browsers_colours(
    tool: Tool, kept: Kept, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "plot.svg"
    tool.run_here("plot", kept["base"], "--output", file).ok()
    for scheme, dark in (("light", False), ("dark", True)):
        context = browser.new_context(color_scheme="dark" if dark else "light")
        page = Opened(context.new_page(), file)
        paper = page.page.evaluate("getComputedStyle(document.querySelector('rect')).fill")
        assert (luminance(paper) < 0.2) is dark, scheme
        assert page.problems == []
        context.close()


# --- the commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start"), [("plot.svg", b"<svg "), ("plot.png", b"\x89PNG"), ("plot.PNG", b"\x89PNG")]
)
def test_plot_needs_no_browser(
    tool: Tool, kept: Kept, tmp_path: Path, name: str, start: bytes
) -> None:
    file = tmp_path / name
    nothing = {"PATH": str(tmp_path), "BROWSER": ""}
    done = tool.run_here("plot", kept["base"], kept["slow"], "--output", file, env=nothing).ok()
    assert f"Written: {file}" in done.err
    assert file.read_bytes().startswith(start)


def test_plot_and_report_here_by_default(tool: Tool, kept: Kept) -> None:
    results = ("--results", kept["base"].parent)
    tool.run("plot", kept["levels"].name, *results).ok()
    tool.run_here("plot", kept["base"].name, "--kind", "latency", *results).ok()
    tool.run_here("report", kept["base"].name, *results).ok()
    for name in ("fill-level.svg", "latency.svg", "report.html"):
        assert (tool.place / name).stat().st_size > 1000


def test_the_command_writes_the_report(tool: Tool, kept: Kept, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    arguments = (*kept.values(), "--output", file, "--title", "Mine & yours")
    done = tool.run_here("report", *arguments).ok()
    assert f"Written: {file}" in done.err
    assert done.out == ""
    html = file.read_text()
    assert "<h1>Mine &amp; yours</h1>" in html
    for path in kept.values():
        assert path.name in html


def test_report_opens_a_browser(tool: Tool, kept: Kept, tmp_path: Path) -> None:
    """The one that the user has set: `webbrowser` asks $BROWSER first."""
    program = tmp_path / "my-browser"
    program.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    program.chmod(0o755)
    file = tmp_path / "report.html"
    write_report(tool, {"base": kept["base"]}, file, "--open", env={"BROWSER": str(program)})
    assert (tmp_path / "opened").read_text().strip() == file.as_uri()


def test_report_without_a_browser(tool: Tool, kept: Kept, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    done = write_report(
        tool, {"base": kept["base"]}, file, "--open", env={"PATH": str(tmp_path), "DISPLAY": ""}
    )
    assert f"No browser could be started: open {file} yourself." in done.err
    assert file.is_file()


def test_an_older_report_is_kept_if_the_new_one_can_not_be_made(
    tool: Tool, kept: Kept, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text("old")
    (kept["base"] / "result.json").write_text("{")
    error = tool.run_here("report", *kept.values(), "--output", file).error(2)
    assert f"{kept['base']}/result.json" in error
    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "words", "status"),
    [
        (("plot",), ["RESULT", "--help"], 2),
        (("plot", "base", "--kind", "pie"), ["pie", "workers"], 2),
        (("plot", "base", "--kind", "queries"), ["no data for --kind queries", "workers"], 2),
        (("plot", "base", "--output", "plot.pdf"), [".svg or .png"], 2),
        (("plot", "base", "--output", "nowhere/plot.svg"), ["nowhere/plot.svg"], 1),
        (("plot", "nothing"), ["no result 'nothing'"], 2),
        (("report",), ["RESULT", "--help"], 2),
        (("report", "base", "nothing"), ["no result 'nothing'"], 2),
        (("report", "base", "--output", "nowhere/report.html"), ["nowhere/report.html"], 1),
    ],
)
def test_wrong_usage(
    tool: Tool, kept: Kept, arguments: Sequence[str], words: Sequence[str], status: int
) -> None:
    named = [kept["base"].name if word == "base" else word for word in arguments]
    done = tool.run_here(*named, "--results", kept["base"].parent)
    error = done.error(status)
    assert [word for word in words if word not in error] == [], error
    assert done.out == ""
