"""Pages that need nothing else: a template with its style, its script, and figures as SVG."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator import __version__

from .chart import Chart
from .drawing import draw_narrow, embed, to_svg
from .vega import dark_style

_FOLDER = Path(__file__).parent / "page"


def render_page(template: str, **values: Any) -> str:
    """The page of a template in `page/`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["marked"] = mark_struck
    drawn = dark_style("main svg")
    dark = f"@media screen and (prefers-color-scheme: dark) {{\n{drawn}\n}}"
    return environment.get_template(template).render(
        version=__version__,
        style=(_FOLDER / "report.css").read_text(encoding="utf-8") + dark,
        script=(_FOLDER / "report.js").read_text(encoding="utf-8"),
        **values,
    )


def mark_struck(value: object) -> str:
    """A table's text for a page, which escapes it: what Markdown would strike through is."""
    text = str(value)
    if "~~" not in text:
        return text
    from markupsafe import Markup, escape

    return Markup(re.sub(r"~~(.*?)~~", r"<s>\1</s>", str(escape(text))))  # noqa: S704 - escaped


def place_figure(figure: Chart, sources: Sequence[str] = ()) -> dict[str, str]:
    """A figure in both of its widths. `sources`: sentences below it on who measured what it shows."""
    return {
        "id": figure.kind,
        "title": figure.title,
        "note": " ".join([figure.note, *sources]),
        "svg": embed(to_svg(figure.spec), figure.kind),
        "narrow": embed(draw_narrow(figure.spec), figure.kind),
    }
