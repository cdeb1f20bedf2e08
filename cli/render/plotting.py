"""One figure as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.workloads.base import Workload

from ..errors import ConfigError
from ..output import write_whole
from ..results.naming import name_results
from ..results.store import StoredResult
from .drawing import make_standalone_svg, to_png
from .figure import Figure, NamedResult
from .figures import KINDS, add_title, name_sources
from .workload_figure import draw_values

ENDINGS = (".svg", ".png")


def write_plot(
    stored: Sequence[StoredResult],
    kind: str | None,
    output: Path | None,
    title: str | None,
    theme: str,
) -> Path:
    """Draw and write; the file. ConfigError if there is nothing to draw or the file's name is wrong."""
    _check_ending(output)
    named = [
        NamedResult(name, one.result) for name, one in zip(name_results(stored), stored, strict=True)
    ]  # fmt: skip
    figure = _choose_figure(named, kind)
    spec = add_title(figure, title or figure.title, name_sources(figure.kind, named))
    return _write(spec, output or Path(f"{figure.kind}.svg"), theme)


def write_workload_plot(workload: Workload, span_ms: int, output: Path | None) -> Path:
    """Draw a workload's values and write them; the file. ConfigError as for `write_plot`."""
    _check_ending(output)
    figure = draw_values(workload, span_ms)
    return _write(add_title(figure, figure.title), output or Path(f"{figure.kind}.svg"), "auto")


def _check_ending(output: Path | None) -> None:
    if output is not None and output.suffix.lower() not in ENDINGS:
        raise ConfigError(f"--output {output}: name a file that ends in {' or '.join(ENDINGS)}")


def _write(spec: dict[str, Any], output: Path, theme: str) -> Path:
    png = output.suffix.lower() == ".png"
    write_whole(output, to_png(spec, theme) if png else make_standalone_svg(spec, theme))
    return output


def _choose_figure(named: Sequence[NamedResult], kind: str | None) -> Figure:
    for name in KINDS if kind is None else [kind]:
        figure = KINDS[name](named)
        if figure is not None:
            return figure
    possible = [name for name, draw in KINDS.items() if draw(named) is not None]
    if not possible:
        raise ConfigError("these results hold no figure that could be drawn")
    raise ConfigError(
        f"these results have no data for --kind {kind}; they have for {', '.join(possible)}"
    )
