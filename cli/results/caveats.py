"""What there is to know before figures are used, and of which kind it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .place import Place


class Kind(StrEnum):
    """Why a figure is to be doubted. The value is how it is printed."""

    NOT_MEASURED = "not measured"
    INCOMPLETE = "incomplete"
    DISTURBANCE = "disturbance"
    INVALID = "invalid"
    CLIENT_BOUND = "client-bound"
    SATURATED = "saturated"
    NOT_AS_ASKED = "not as asked"
    CLIENTS_PART = "client's part"
    BUSY = "busy"
    RETRIES = "retries"
    SHORT = "short"
    APART = "apart"
    UNSTABLE = "unstable"
    FEW_RUNS = "few runs"
    UNSURE = "not sure"
    NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Caveat:
    """Something to know before the figures are used."""

    kind: Kind
    text: str
    where: Place | None = None
    """None: it concerns the whole result."""
    rate: float | None = None
    """The inserts per second that don't count because of it."""
    cv: float | None = None
    """Of what is unstable, its coefficient of variation."""
