"""Colours and type of all figures, and how they change on a dark page."""

from __future__ import annotations

from typing import Any

INK, MUTED, GRID, PAPER = "#1b1f24", "#59636e", "#d8dee4", "#fffffe"

# Six hues of Okabe & Ito's palette (https://jfly.uni-koeln.de/color/), darkened where a line
# could hardly be seen on white, and two greys; a test checks that they can be told apart with the three
# kinds of colour blindness. Series differ in shape, too.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc5fa0", "#332288", "#333333", "#8c8c8c")
SHAPES = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right",
)  # fmt: skip

PHASES = {
    "start": SERIES[6],
    "prepare": SERIES[4],
    "prefill": SERIES[3],
    "barrier": SERIES[1],
    "run": SERIES[0],
    "verify": SERIES[2],
    "check": MUTED,
    "clean_up": SERIES[5],
}

DARK = {
    INK: "#e6edf3",
    MUTED: "#9aa4af",
    GRID: "#30363d",
    PAPER: "#0d1117",
    "#0072b2": "#56b4e9",
    "#d55e00": "#e06c1f",
    "#009e73": "#1aa37a",
    "#cc5fa0": "#d98cb8",
    "#332288": "#f0e442",
    "#333333": "#ffffff",
    "#8c8c8c": "#7f7f7f",
}
"""Light colour -> its counterpart on a dark page. Figures are drawn in light colours."""

# The first comes with the renderer, for machines on which no font is installed.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

CONFIG: dict[str, Any] = {
    "font": FONT,
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "gridColor": GRID, "domainColor": MUTED,
        "tickColor": MUTED, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "titlePadding": 8, "labelLimit": 260, "labelSeparation": 12,
    },
    "legend": {
        "labelColor": INK, "titleColor": INK, "labelFontSize": 12, "labelLimit": 600,
        "orient": "top", "direction": "vertical", "title": None, "columns": 1,
    },
    "header": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12},
    "title": {
        "color": INK, "subtitleColor": MUTED, "anchor": "start", "fontSize": 15,
        "subtitleFontSize": 12, "offset": 12, "frame": "group",
    },
}  # fmt: skip
"""Vega-Lite's `config`: https://vega.github.io/vega-lite/docs/config.html"""


def dark_style(selector: str = "") -> str:
    """CSS that turns the figures within `selector` dark."""
    return "\n".join(
        f'{selector} [fill="{light}"]{{fill:{dark}}}{selector} [stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in DARK.items()
    )
