"""Pages in a real browser: what goes wrong in them, and what they hear of with the next frame."""

from __future__ import annotations

from playwright.sync_api import Page


def await_frame(page: Page) -> None:
    """Return after the page's next frame, before which it hears of its size and its scrolling."""
    page.evaluate("new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")


def set_size(page: Page, width: int, height: int) -> None:
    """Give a page another size, in pixels, and return when it has heard of it."""
    page.set_viewport_size({"width": width, "height": height})
    page.wait_for_function("(width) => innerWidth === width", arg=width)
    await_frame(page)


class WatchedPage:
    """A page, what went wrong in it and what it asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
