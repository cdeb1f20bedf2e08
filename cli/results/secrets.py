"""What must not be public: secrets, which are looked for before results are published, and hidden; and where
things lie on the machine that measured. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

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


# --- results that are published -------------------------------------------------------------------


_SECRET_KEY = re.compile(CONFIDENTIAL, re.IGNORECASE)
_PLACE_KEYS = frozenset({"workload_file", "kubeconfig"})
"""Keys whose values name a file on a machine."""
_ROOTS = "home|root|tmp|var|mnt|srv|opt|work|run|media|private|Users|usr|data"
_PATHS = (
    re.compile(rf"(?<![\w.])/(?:{_ROOTS})/[^\s'\",;:)\]]+"),
    re.compile(r"\b[A-Za-z]:\\[^\s'\",;)\]]+"),
)


def redact_result(document: Mapping[str, Any]) -> dict[str, Any]:
    """A result as plain values, without secrets, names of machines and paths on them; its shape is kept."""
    environment = document.get("environment") or {}
    host = (environment.get("client") or {}).get("host")
    redacted = _redact(document, "", host if isinstance(host, str) else None)
    assert isinstance(redacted, dict)
    return redacted


def _redact(value: Any, key: str, host: str | None) -> Any:
    if isinstance(value, Mapping):
        return {redact_text(name): _redact(inner, name, host) for name, inner in value.items()}
    if isinstance(value, list):
        return [_redact(inner, key, host) for inner in value]
    if not isinstance(value, str) or not value:
        return value
    if value == host or key in ("host", "hostname"):
        return "(a host)"
    if key in _PLACE_KEYS or (_SECRET_KEY.search(key) and not value.isdigit()):
        return HIDDEN
    return redact_text(value)


def redact_text(text: str) -> str:
    """The text without secrets and paths."""
    text = hide_secrets(text)
    for pattern in _PATHS:
        text = pattern.sub("(a path)", text)
    return text
