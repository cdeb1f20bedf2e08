"""What a result may not say in public: passwords, and where things lie on the machine that measured. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_SECRET_KEY = re.compile(
    r"password|passwd|secret|token|api_?key|credential|private_?key", re.IGNORECASE
)
_PLACE_KEYS = frozenset({"workload_file", "kubeconfig"})
"""What names a file on a machine."""
_ROOTS = "home|root|tmp|var|mnt|srv|opt|work|run|media|private|Users|usr|data"
_IN_TEXT = (
    (
        re.compile(r"(?i)\b(password|passwd|pwd|token|secret|api_?key)(\s*[=:]\s*)[^\s,;&'\"]+"),
        rf"\1\2{HIDDEN}",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"(\w+://[^\s:/@]*):[^\s/@]+@"), rf"\1:{HIDDEN}@"),
    (re.compile(rf"(?<![\w.])/(?:{_ROOTS})/[^\s'\",;:)\]]+"), "(a path)"),
    (re.compile(r"\b[A-Za-z]:\\[^\s'\",;)\]]+"), "(a path)"),
)
"""What is hidden within a text -> what stands there instead."""


def redact_result(document: Mapping[str, Any]) -> dict[str, Any]:
    """A result as plain values, without secrets, names of machines and paths on them; its shape stays."""
    environment = document.get("environment") or {}
    host = (environment.get("client") or {}).get("host")
    found = _redact(document, "", host if isinstance(host, str) else None)
    assert isinstance(found, dict)
    return found


def _redact(value: Any, key: str, host: str | None) -> Any:
    if isinstance(value, Mapping):
        return {redact_text(name): _redact(each, name, host) for name, each in value.items()}
    if isinstance(value, list):
        return [_redact(each, key, host) for each in value]
    if not isinstance(value, str) or not value:
        return value
    if value == host or key in ("host", "hostname"):
        return "(a host)"
    if key in _PLACE_KEYS or (_SECRET_KEY.search(key) and not value.isdigit()):
        return HIDDEN
    return redact_text(value)


def redact_text(text: str) -> str:
    """A text without them."""
    for pattern, instead in _IN_TEXT:
        text = pattern.sub(instead, text)
    return text
