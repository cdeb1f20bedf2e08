"""From a figure's specification to SVG and PNG, without a browser."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from .theme import CONFIG, DARK, PAPER, dark_style

THEMES = ("auto", "light", "dark")


def to_svg(spec: dict[str, Any], config: Mapping[str, Any] = CONFIG) -> str:
    """The bare SVG in light colours on no background.

    Vega-Lite's own renderer, in a process of ours: https://github.com/vega/vl-convert
    """
    import vl_convert

    # No address may be loaded, whatever a result file holds.
    return str(vl_convert.vegalite_to_svg(spec | {"config": config}, allowed_base_urls=[]))


def make_standalone_svg(spec: dict[str, Any], theme: str) -> str:
    """An SVG file of its own; `auto` follows the viewer's setting where it has one."""
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
    return _repack(vl_convert.svg_to_png(darken(svg) if theme == "dark" else svg, scale=2))


def _repack(png: bytes) -> bytes:
    """The same picture in about a quarter of the bytes: the renderer compresses fast, not well.

    Format of the chunks: https://www.w3.org/TR/png-3/#5Chunk-layout
    """
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
    """The SVG for a page with several: its ids are made unique, its size and font are left to the page, but
    for how small it may be before its letters are too small."""
    svg = _IMPLIED.sub("", svg)
    svg = _PLACE.sub(lambda found: _DIGITS.sub(r"\1", found[0]), svg)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    width, _ = find_size(svg)
    style = f"max-width:{width}px;min-width:{_SMALLEST * float(width):g}px"
    return re.sub(r'width="[^"]*" height="[^"]*" (viewBox=)', rf'style="{style}" \1', svg, count=1)


_IMPLIED = re.compile(r' (?:opacity="1"|stroke-width="1"|font-family="[^"]*")')
"""What an element has anyway."""
_PLACE = re.compile(r' (?:d|transform|x|y|x1|x2|y1|y2|width|height)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")
"""Of where something is drawn. A hundredth of a pixel is enough, and takes half of the bytes."""

_SMALLEST = 0.8
"""Letters of 12 px are no smaller than 9.6."""


def find_size(svg: str) -> tuple[str, str]:
    """Width and height, in pixels."""
    found = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    assert found is not None
    return found[1], found[2]
