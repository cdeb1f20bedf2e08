"""Renders a chart's specification as SVG or PNG without a browser, also in a version for narrow pages such as
a phone's; and the self-contained pages that hold charts."""

from __future__ import annotations

import copy
import re
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from simulator import __version__

from .templates import Chart
from .vega import (
    CHARACTER_PX,
    CONFIG,
    DARK,
    PAPER,
    Row,
    dark_style,
    find_body,
    find_label_step,
    make_label_axis,
    resize_panel,
    slant,
)

THEMES = ("auto", "light", "dark")


def to_svg(spec: dict[str, Any], config: Mapping[str, Any] = CONFIG) -> str:
    """The bare SVG in light colours, without a background. Vega-Lite's own renderer, run in this
    process: https://github.com/vega/vl-convert
    """
    import vl_convert

    # Nothing may be loaded from an address, whatever a result file contains.
    return str(vl_convert.vegalite_to_svg(spec | {"config": config}, allowed_base_urls=[]))


def make_standalone_svg(spec: dict[str, Any], theme: str) -> str:
    """A stand-alone SVG file; `auto` follows the viewer's setting, if it has one."""
    svg = add_margin(to_svg(spec))
    if theme == "dark":
        return darken(svg)
    if theme == "light":
        return svg
    start = svg.index(">") + 1
    style = f"<style>@media (prefers-color-scheme: dark){{{dark_style('svg')}}}</style>"
    return svg[:start] + style + svg[start:]


def to_png(spec: dict[str, Any], theme: str) -> bytes:
    """A PNG of twice the size in pixels; `auto` is light."""
    import vl_convert

    svg = add_margin(to_svg(spec))
    # The same picture in about a quarter of the bytes: the renderer favours speed over compression.
    # Format of the chunks: https://www.w3.org/TR/png-3/#5Chunk-layout
    png = vl_convert.svg_to_png(darken(svg) if theme == "dark" else svg, scale=2)
    chunks, place = [], 8
    while place < len(png):
        (size,) = struct.unpack_from(">I", png, place)
        chunks.append((png[place + 4 : place + 8], png[place + 8 : place + 8 + size]))
        place += size + 12
    pixels = zlib.decompress(b"".join(data for kind, data in chunks if kind == b"IDAT"))
    packed = [(kind, data) for kind, data in chunks if kind != b"IDAT"]
    packed.insert(-1, (b"IDAT", zlib.compress(pixels, 9)))
    return png[:8] + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in packed
    )


MARGIN = 12


def add_margin(svg: str) -> str:
    """The figure on a background, with a margin around it."""
    width, height = (float(side) for side in find_size(svg))
    box = f"{-MARGIN} {-MARGIN} {width + 2 * MARGIN:g} {height + 2 * MARGIN:g}"
    svg = re.sub(
        r'width="[^"]*" height="[^"]*" viewBox="[^"]*"',
        f'width="{width + 2 * MARGIN:g}" height="{height + 2 * MARGIN:g}" viewBox="{box}"',
        svg, count=1,
    )  # fmt: skip
    start = svg.index(">") + 1
    paper = f'<rect x="{-MARGIN}" y="{-MARGIN}" width="100%" height="100%" fill="{PAPER}"/>'
    return svg[:start] + paper + svg[start:]


def darken(svg: str) -> str:
    """The figure in dark colours."""
    colours = "|".join(map(re.escape, DARK))
    return re.sub(rf'(fill|stroke)="({colours})"', lambda m: f'{m[1]}="{DARK[m[2]]}"', svg)


def embed(svg: str, prefix: str) -> str:
    """The SVG for a page with several. Its ids are made unique; the page decides size and font, except for a
    minimum width, below which letters would be too small."""
    svg = _IMPLIED.sub("", svg)
    svg = _PLACE.sub(lambda match: _DIGITS.sub(r"\1", match[0]), svg)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    width, _ = find_size(svg)
    style = f"max-width:{width}px;min-width:{_SMALLEST * float(width):g}px"
    return re.sub(r'width="[^"]*" height="[^"]*" (viewBox=)', rf'style="{style}" \1', svg, count=1)


_IMPLIED = re.compile(r' (?:opacity="1"|stroke-width="1"|font-family="[^"]*")')
"""Attributes whose values are the defaults."""
_PLACE = re.compile(r' (?:d|transform|x|y|x1|x2|y1|y2|width|height)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")
"""Superfluous digits of coordinates. A hundredth of a pixel is enough, and takes half the bytes."""

_SMALLEST = 0.8
"""Letters of 12 px never shrink below 9.6 px."""


def find_size(svg: str) -> tuple[str, str]:
    """Width and height, in pixels."""
    match = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    assert match is not None
    return match[1], match[2]


NARROW_PX = 360
"""Width of a whole figure that fits a page of 400 px."""

_PLOT_PX, _LEAST_PLOT_PX = 250, 110
_TRIES = 3
_LETTERS = 15
"""Characters in a line of a name."""
_LEGEND_COLUMNS = 3

_CONFIG: dict[str, Any] = CONFIG | {
    "axis": CONFIG["axis"] | {"labelLimit": 130, "titleLimit": 300},
    # Anything still too wide scrolls.
    "legend": CONFIG["legend"] | {"labelLimit": 0},
}


def draw_narrow(spec: Row) -> str:
    """The bare SVG, no wider than a narrow page if possible."""
    plot_px = float(_PLOT_PX)
    for _ in range(_TRIES):
        svg = to_svg(make_narrow(spec, plot_px), _CONFIG)
        excess = float(find_size(svg)[0]) - NARROW_PX
        if excess <= 0 or plot_px == _LEAST_PLOT_PX:
            break
        # The width taken by what surrounds the plot.
        plot_px = max(_LEAST_PLOT_PX, plot_px - excess)
    return svg


def make_narrow(spec: Row, plot_px: float) -> Row:
    """The same figure with panels of this width in pixels."""
    narrow = copy.deepcopy(spec)
    for panel in narrow.get("vconcat", [narrow]):
        resize_panel(panel, plot_px)
        body = find_body(panel)
        parts = [body, *body.get("layer", [])]
        for part in parts:
            for channel in part.get("encoding", {}).values():
                legend = channel.get("legend") if isinstance(channel, dict) else None
                if legend and legend.get("columns", 0) > _LEGEND_COLUMNS:
                    legend["columns"] = _LEGEND_COLUMNS
        _wrap_names(body, parts)
        for axis in _list_axes(parts, "x"):
            names = axis.get("sort") or []
            # Names that would overlap are slanted.
            if sum(CHARACTER_PX * (len(name) + 1) for name in names) > plot_px:
                axis["axis"] = axis["axis"] | slant(names)
    return narrow


def _list_axes(parts: list[Row], channel: str) -> Iterator[Row]:
    """The channel's encodings that show names, not numbers."""
    for part in parts:
        encoding = part.get("encoding", {}).get(channel, {})
        if encoding.get("type") in ("nominal", "ordinal") and encoding.get("axis", {}) is not None:
            yield encoding


def _wrap_names(panel: Row, parts: list[Row]) -> None:
    """Wrap names on the vertical axis."""
    axes = list(_list_axes(parts, "y"))
    fields = {axis["field"] for axis in axes}
    for field in fields:
        for part in parts:
            for row in part.get("data", {}).get("values", ()):
                if field in row:
                    row[field] = _wrap(row[field])
    names = list(dict.fromkeys(name for axis in axes for name in map(_wrap, axis.get("sort", ()))))
    if not names:
        return
    for axis in axes:
        axis["sort"] = [_wrap(name) for name in axis["sort"]]
        axis["axis"] = axis["axis"] | make_label_axis(names)
    lines = max(name.count("\n") + 1 for name in names)
    panel["height"] = max(panel["height"], find_label_step(lines) * len(names))


def _wrap(name: str) -> str:
    return "\n".join(wrap(" ".join(name.split("\n")), _LETTERS, break_long_words=False)) or " "


# --- pages ----------------------------------------------------------------------------------------

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
    """A table's text for a page, which escapes it; Markdown's strikethrough becomes HTML's."""
    text = str(value)
    if "~~" not in text:
        return text
    from markupsafe import Markup, escape

    return Markup(re.sub(r"~~(.*?)~~", r"<s>\1</s>", str(escape(text))))  # noqa: S704 - escaped


MOST_CHARACTERS = 92
"""The longest caption that takes at most two lines, also on a phone. The rest is folded."""


def place_figure(figure: Chart, sources: Sequence[str] = ()) -> dict[str, Any]:
    """A figure in both widths. `sources`: sentences below it on who measured what it shows."""
    note, remarks = figure.tell(sources, MOST_CHARACTERS)
    return {
        "id": figure.kind,
        "title": figure.title,
        "note": note,
        "remarks": remarks,
        "svg": embed(to_svg(figure.spec), figure.kind),
        "narrow": embed(draw_narrow(figure.spec), figure.kind),
    }
