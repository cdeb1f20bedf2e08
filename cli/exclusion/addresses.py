"""Databases that a command keeps for itself, by the addresses of their servers."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..cluster import Place
from ..config import ExecutorName
from ..errors import ConfigError

if TYPE_CHECKING:
    from ..experiments.session import Session

_HOST = re.compile(r"\b(?:host|hostaddr)\s*=\s*(?:'([^']*)'|(\S+))")
_PORT = re.compile(r"\bport\s*=\s*'?(\d+)")
_LOOPBACK = re.compile(r"^(?:127\.[\d.]+|\[?::1\]?)(?=:\d|$)")


@dataclass(frozen=True)
class Claim:
    """A database, by one of its addresses."""

    target: str = field(compare=False)
    address: str
    place: Place | None
    """The namespace from which it is reached; None: from this machine."""

    @property
    def key(self) -> str:
        """The same for whoever means this database."""
        return hashlib.sha256(self.address.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"the database of target {self.target} ({self.address})"


def refuse(claim: Claim, holder: str) -> ConfigError:
    """The error of whoever finds that somebody else holds it."""
    return ConfigError(
        f"{holder or 'another run'} is at work on {claim}: wait for its end, or use another database"
    )


def list_claims(sessions: Iterable[Session]) -> list[Claim]:
    """The databases of these, each address once."""
    found: list[Claim] = []
    for session in sessions:
        place = session.place if session.executor is ExecutorName.KUBERNETES else None
        found += [Claim(session.target.name, one, place) for one in _find_addresses(session)]
    return list(dict.fromkeys(found))


def _find_addresses(session: Session) -> list[str]:
    if session.target.data_dir is not None:
        return [str(Path(session.target.data_dir).expanduser().resolve())]
    return read_addresses(session.values.get(session.module.options_model.ADDRESSES))


def read_addresses(value: Any) -> list[str]:
    """`host`, `host:port` or a socket's folder, of each server that an option names."""
    texts = value if isinstance(value, list) else [] if value is None else [value]
    found: list[str] = []
    for text in map(str, texts):
        found += _read_connection(text) if "=" in text.partition("://")[0] else _read_list(text)
    return list(dict.fromkeys(filter(None, map(_normalize, found))))


def _read_connection(text: str) -> list[str]:
    """Of libpq's `host=a,b port=5432`."""
    host, port = _HOST.search(text), _PORT.search(text)
    names = (host[1] or host[2]).split(",") if host else ["localhost"]
    return [f"{name}:{port[1] if port else 5432}" for name in names]


def _read_list(text: str) -> list[str]:
    scheme, mark, rest = text.partition("://")
    if mark and scheme.startswith("postgres"):
        # libpq's URLs have several hosts in one: a@h1:1,h2:2/db
        return rest.partition("/")[0].rpartition("@")[2].split(",")
    return [urlsplit(one).netloc.rpartition("@")[2] if "://" in one else one
            for one in map(str.strip, text.split(","))]  # fmt: skip


def _normalize(address: str) -> str:
    return _LOOPBACK.sub("localhost", address.strip().lower())
