"""The files of a published result folder: their hashes, and what must not be public."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from simulator.modules.options import HIDDEN

from ..system.errors import ConfigError
from ..system.output import explain

MANIFEST = "SHA256SUMS"
"""As `sha256sum` writes and checks it."""

_LEFT_OUT = (MANIFEST, ".lock")
_PROGRAMS = re.compile(r"<script(?![^>]*json)[^>]*>.*?</script>", re.DOTALL)
"""Code in a report that is part of the tool."""
_SHOWN = 40
"""How many characters before a secret are shown."""


def list_files(folder: Path) -> list[Path]:
    """All files that belong to the folder, in order."""
    try:
        return sorted(
            path for path in folder.rglob("*") if path.is_file() and path.name not in _LEFT_OUT
        )
    except OSError as error:
        raise ConfigError(f"can't read {folder}: {explain(error)}") from error


def hash_files(folder: Path) -> dict[str, str]:
    """Path below the folder -> its SHA-256."""
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in list_files(folder)
    }


def write_lines(digests: Mapping[str, str]) -> str:
    """The lines of a manifest."""
    return "".join(f"{digest}  {path}\n" for path, digest in digests.items())


def compare_manifest(folder: Path) -> list[str]:
    """Differences from the manifest, or that it is missing."""
    file = folder / MANIFEST
    if not file.is_file():
        return [f"{MANIFEST} is missing: pack its folder anew"]
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = [line.partition("  ") for line in lines if line.strip()]
    noted = {path: digest for digest, _, path in pairs}
    digests = hash_files(folder)
    changed = [path for path in noted if path in digests and noted[path] != digests[path]]
    return [
        *(f"{path} is in {MANIFEST}, but missing" for path in noted if path not in digests),
        *(f"{path} is not in {MANIFEST}" for path in digests if path not in noted),
        *(f"{path} was changed since {MANIFEST} was written" for path in changed),
    ]


def list_secrets(folder: Path) -> Iterator[str]:
    """Each place that seems to contain a secret, with the text before it but not the secret."""
    for path in list_files(folder):
        text = path.read_bytes().decode(errors="replace")
        if path.suffix == ".html":
            text = _PROGRAMS.sub("", text)
        for match in find_secrets(text):
            place = match.start("value")
            begin = max(text.rfind("\n", 0, place) + 1, place - _SHOWN)
            line = text.count("\n", 0, match.start()) + 1
            before = " ".join(text[begin:place].split())
            yield f"{path.relative_to(folder)}:{line} may contain a secret: {before}…"


# --- secrets -----------------------------------------------------------------------------------------
# What must not be public: secrets, which are searched for before publishing, and hidden; and where
# files are on the machine that measured. Pure.


CONFIDENTIAL = r"password|passwd|pwd|secret|token|api_?key|access_key|private_?key|credential"
"""Words in the names of secrets."""

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
"""Named secrets, secrets in URLs and headers, keys, and tokens of known forms."""
_ONLY_HIDDEN = (
    re.compile(_NAMED + r"(?P<value>[^\s\"',;&]+)"),
    re.compile(r"\w+://[^\s:/@]*:(?P<value>[^\s/@]+)@"),
    re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<value>[\w.~+/=-]{8,})"),
)
"""These err on the side of hiding. Whole files have many lookalikes that are no secrets."""
_HARMLESS = re.compile(r"\*+|\$\{?\w+.*|null|none|true|false", re.IGNORECASE)
"""Placeholders for a secret, or for none."""


def find_secrets(text: str) -> Iterator[re.Match[str]]:
    """The first of each kind, as a match whose group `value` is the secret."""
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
    """A result as plain values, without secrets, host names and paths, in the same structure."""
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
