"""Pages in a real browser: what a page hears of with its next frame."""

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
