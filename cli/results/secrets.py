"""What looks like a secret in texts: it is looked for before results are published, and hidden. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulator.modules.options import HIDDEN

CONFIDENTIAL = r"password|passwd|pwd|secret|token|api_?key|access_key|private_?key|credential"
"""What the names of secrets contain."""

_NAMED = (
    r"(?i)\b(?:password|passwd|pwd|secret|token|api_?key|access_key|secret_key)"
    r"[\"']?\s*[=:]\s*[\"']?"
)
_SECRETS = (
    re.compile(_NAMED + r"(?P<value>[^\s\"',;}&<)\]\\]+)"),
    re.compile(r"://[^/\s:@\"']*:(?P<value>[^@/\s\"']+)@"),
    re.compile(
        r"(?i)\bauthorization[\"']?\s*:\s*[\"']?(?:basic|bearer|token|apikey)\s+(?P<value>\S+)"
    ),
    re.compile(r"(?P<value>-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*)"),
    re.compile(r"(?P<value>\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"),
    re.compile(r"(?P<value>\bAKIA[0-9A-Z]{16}\b)"),
)
"""Secrets with a name, in URLs and headers, keys, and tokens of known forms."""
_ONLY_HIDDEN = (
    re.compile(_NAMED + r"(?P<value>[^\s\"',;&]+)"),
    re.compile(r"\w+://[^\s:/@]*:(?P<value>[^\s/@]+)@"),
    re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<value>[\w.~+/=-]{8,})"),
)
"""These hide rather too much than too little. Whole files have much like it that is no secret."""
_HARMLESS = re.compile(r"\*+|\$\{?\w+.*|null|none|true|false", re.IGNORECASE)
"""What stands for a secret, or for none."""


def find_secrets(text: str) -> Iterator[re.Match[str]]:
    """The first of each kind, as a match whose `value` is the secret."""
    for pattern in _SECRETS:
        matches = (
            match for match in pattern.finditer(text) if not _HARMLESS.fullmatch(match["value"])
        )
        first = next(matches, None)
        if first is not None:
            yield first


def hide_secrets(text: str) -> str:
    """The text with its secrets hidden."""
    for pattern in (*_ONLY_HIDDEN, *_SECRETS):
        text = pattern.sub(_hide, text)
    return text


def _hide(match: re.Match[str]) -> str:
    begin, end = (place - match.start() for place in match.span("value"))
    return f"{match[0][:begin]}{HIDDEN}{match[0][end:]}"
