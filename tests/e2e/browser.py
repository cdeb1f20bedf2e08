"""Pages in a real browser: what goes wrong in them, and what they hear of with the next frame."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def await_frame(page: Page) -> None:
    """Return after the page's next frame, before which it hears of its size and its scrolling."""
    page.evaluate("new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")


def set_size(page: Page, width: int, height: int) -> None:
    """Give a page another size, in pixels, and return when it has heard of it."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function("(width) => innerWidth === width", arg=width)
    await_frame(page)


def find_barriers(page: Page) -> list[Any]:
    """What breaks a rule of https://github.com/dequelabs/axe-core, contrast among them, with all details
    open. Within charts colours are those of series."""
    closed = page.locator("details:not([open])").element_handles()
    toggle = "(all, open) => all.forEach((one) => { one.open = open; })"
    page.evaluate(f"([all, open]) => ({toggle})(all, open)", [closed, True])
    results = Axe().run(page, context={"exclude": [["figure svg"]]})
    page.evaluate(f"([all, open]) => ({toggle})(all, open)", [closed, False])
    return [
        (violation["id"], violation["help"], [node["html"][:200] for node in violation["nodes"]])
        for violation in results.response["violations"]
    ]


class WatchedPage:
    """A page, what went wrong in it and what it asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
