"""What a result must not make public: passwords, and where things lie on the machine that measured. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simulator.modules.options import HIDDEN

from ..results.secrets import CONFIDENTIAL, hide_secrets

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
