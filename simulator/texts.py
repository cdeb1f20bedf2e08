"""Texts from elsewhere (databases, files of strangers) as a terminal, a figure or a page may have them."""

from __future__ import annotations

import re
from typing import Any

# C0 but tab and line break, DEL, C1; marks that change the direction of what follows, or hide; line
# separators; surrogates; what is no character (XML has none of these, and so no figure may).
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\ufdd0-\ufdef\U000e0000-\U000e007f"
    + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(1, 17))
    + "]"
)
_BREAKS = re.compile(r"[\t\n]")


def printable(text: str) -> str:
    r"""The text with every control character and the like as Python writes it: `\x1b`, `\u202e`."""
    return _HARMFUL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def printable_line(text: str) -> str:
    """Likewise, on one line."""
    return printable(_BREAKS.sub(" ", text))


def make_printable(document: Any) -> Any:
    """Plain values with all texts, keys included, made printable, each on one line."""
    if isinstance(document, str):
        return printable_line(document)
    if isinstance(document, dict):
        return {printable_line(key): make_printable(value) for key, value in document.items()}
    if isinstance(document, list):
        return [make_printable(value) for value in document]
    return document
