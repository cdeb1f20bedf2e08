"""Quantities as people write and read them: durations, amounts, shares, counts, bytes. Pure.

Parsers return None for what they can't read: the caller knows what to suggest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

_SECONDS = {
    "ns": Decimal("1e-9"), "us": Decimal("1e-6"), "µs": Decimal("1e-6"), "ms": Decimal("1e-3"),
    "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86_400), "w": Decimal(604_800),
    # As in VictoriaMetrics, where a bare number means months.
    "M": Decimal(31 * 86_400), "y": Decimal(365 * 86_400),
}  # fmt: skip
_PART = r"(\d+(?:\.\d+)?) ?(ns|us|µs|ms|[smhdwMy])"
_PARTS = re.compile(_PART)
_DURATION = re.compile(rf"(-?)((?:{_PART})+)")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def parse_duration_s(text: str, bare: str | None = None) -> float | None:
    """Seconds of `450ms`, `1.5h` or `1m30s`. `bare`: the unit of a number without one; None: it needs one."""
    seconds = _parse_duration(text, bare)
    return None if seconds is None else float(seconds)


def parse_duration_ms(text: str, bare: str | None = None) -> float | None:
    """The same in milliseconds."""
    seconds = _parse_duration(text, bare)
    return None if seconds is None else float(seconds * 1000)


def read_duration_s(value: object) -> float:
    """Seconds of an option: a number, or a text as above. ValueError explains the syntax."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    seconds = parse_duration_s(str(value), "s")
    if seconds is None or seconds < 0:
        raise ValueError(f"{value!r}: write a time as in 30s, 5m or 1h")
    return seconds


def read_duration_ms(value: object) -> float:
    """Milliseconds of a text with its unit. ValueError for anything else."""
    milliseconds = parse_duration_ms(value) if isinstance(value, str) else None
    if milliseconds is None:
        raise ValueError("write a duration with its unit: 450ms, 10s, 5m, 1h or 1d")
    return milliseconds


def _parse_duration(text: str, bare: str | None) -> Decimal | None:
    text = text.strip()
    if bare is not None and _NUMBER.fullmatch(text):
        text += bare
    match = _DURATION.fullmatch(text)
    # Written as M, people mean minutes or millions.
    if match is None or ("M" in text and bare != "M"):
        return None
    total = sum(
        (Decimal(number) * _SECONDS[unit] for number, unit in _PARTS.findall(match[2])), Decimal()
    )
    return -total if match[1] else total


_SPANS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def write_duration(span_ms: int, units_ms: Mapping[str, int] = _SPANS_MS) -> str:
    """A span of time as query languages read it: a whole number of the first of these units that divides
    it."""
    unit, unit_ms = next(pair for pair in units_ms.items() if span_ms % pair[1] == 0)
    return f"{span_ms // unit_ms}{unit}"


_AMOUNTS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_AMOUNT = re.compile(r"([+-]?\d[\d_,]*(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)\s*([kKMG]?)")


def parse_amount(text: str) -> Decimal | None:
    """`1000`, `1,000`, `1_000`, `50k`, `1.5M`, `1e6`."""
    match = _AMOUNT.fullmatch(text.strip())
    if not match:
        return None
    unit = match[2] if match[2] in _AMOUNTS else match[2].lower()
    digits = match[1].replace("_", "")
    if "," in digits:
        if not re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", digits):
            return None
        digits = digits.replace(",", "")
    return Decimal(digits) * _AMOUNTS[unit]


_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*(%?)")


def parse_share(text: str) -> float | None:
    """`5%` or `0.05` -> 0.05."""
    match = _SHARE.fullmatch(text.strip())
    return float(match[1]) * (0.01 if match[2] else 1) if match else None


_BYTES = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kKMGTP]?)(i?)B")


def parse_bytes(text: str) -> float | None:
    """Bytes of `500GB`, `2 TB` or `1.5GiB`: powers of 1,000, and of 1,024 with an i."""
    match = _SIZE.fullmatch(text.strip())
    if not match or (match[3] and not match[2]):
        return None
    return float(match[1]) * float(1024 if match[3] else 1000) ** _BYTES[match[2]]


def format_count(count: int, word: str, many: str | None = None) -> str:
    """`1 worker`, `1,000 workers`; `many`: an irregular plural."""
    return f"{count:,} {word if count == 1 else many or word + 's'}"


def join_words(words: Sequence[str], last: str = "and") -> str:
    """`a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def format_digits(value: float) -> str:
    """Three digits, but never as 1.23e+03: for times in ms or µs."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def format_amount(value: float) -> str:
    """A number as options take it, to three digits: `3.11G`, `104M`, `200k`, `50`."""
    return _scale(value, ("", "k", "M", "G", "T"))


def format_bytes(value: float) -> str:
    """Bytes in the unit that gives one to three digits before the point."""
    return _scale(value, (" bytes", " kB", " MB", " GB", " TB"))


def _scale(value: float, units: Sequence[str]) -> str:
    """A number in the first of the units, each a thousand of the previous one, that makes it less than
    1,000."""
    for unit in units[:-1]:
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{format_digits(value)}{units[-1]}"


def format_duration(seconds: float) -> str:
    """A duration as options take it, in the largest unit that divides it: `90d`, `450ms`."""
    return write_duration(round(seconds * 1000))


def format_span(seconds: float) -> str:
    """A duration in the unit that gives two or three digits."""
    if seconds < 300:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 180 else f"{minutes // 60} h {minutes % 60:02d} min"


def format_in_unit(seconds: float) -> str:
    """A duration in the largest unit of which it has at least one: `1.5 d`."""
    units = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
    unit = next((name for name, length_s in units.items() if seconds >= length_s), "s")
    return f"{seconds / units[unit]:.3g} {unit}"
