"""Pages without their pictures, for tests of what stands around these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

_EMPTY = '<svg width="1" height="1" viewBox="0 0 1 1"></svg>'


@contextmanager
def undrawn() -> Iterator[None]:
    """Each picture of a page is empty: to draw one takes a quarter of a second and more."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("to_svg", "draw_narrow"):
            patch.setattr(f"cli.show.drawing.{name}", lambda spec: _EMPTY)
        yield
