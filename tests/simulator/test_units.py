"""Quantities as people write and read them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from simulator.units import (
    format_bytes,
    format_count,
    format_digits,
    format_span,
    join_words,
    parse_amount,
    parse_bytes,
    parse_duration_ms,
    parse_duration_s,
    parse_share,
    read_duration_ms,
    read_duration_s,
)


@pytest.mark.parametrize(
    ("text", "bare", "seconds"),
    [
        ("30s", None, 30),
        ("1.5m", None, 90),
        (" 2 h ", None, 7200),
        ("0.3ms", None, 0.0003),
        ("5us", None, 5e-6),
        ("1d", None, 86_400),
        ("-30s", None, -30),
        ("15.034s", None, 15.034),
        ("1h2m3s4ms", None, 3723.004),
        ("1m0s", None, 60),
        ("90", "s", 90),
        ("1", "M", 31 * 86_400),
        ("100y", "M", 100 * 365 * 86_400),
        ("90", None, None),
        ("", "s", None),
        ("soon", "s", None),
        ("1x", "s", None),
        ("5 minutes", "s", None),
    ],
)
def test_durations(text: str, bare: str | None, seconds: float | None) -> None:
    assert parse_duration_s(text, bare) == seconds
    assert parse_duration_ms(text, bare) == (None if seconds is None else seconds * 1000)


def test_milliseconds_are_exact() -> None:
    """Events have times by them."""
    assert parse_duration_ms("0.3ms") == 0.3
    assert parse_duration_ms("450ms") == 450.0


@pytest.mark.parametrize("value", [90, 90.0, "90", "90s", "1.5m"])
def test_an_option_may_be_a_number(value: object) -> None:
    assert read_duration_s(value) == 90.0


@pytest.mark.parametrize("value", ["-1s", "soon", True, None])
def test_what_is_no_duration_of_an_option(value: object) -> None:
    with pytest.raises(ValueError, match="write a time as in 30s, 5m or 1h"):
        read_duration_s(value)


@pytest.mark.parametrize("value", [450, "450"])
def test_a_definition_needs_units(value: object) -> None:
    with pytest.raises(ValueError, match="with its unit: 450ms"):
        read_duration_ms(value)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1,000", 1000), ("1_000", 1000), ("50k", 50_000), ("1.5M", 1_500_000), ("1e6", 10**6),
        ("1,00", None), ("k", None), ("1T", None),
    ],
)  # fmt: skip
def test_amounts(text: str, amount: int | None) -> None:
    assert parse_amount(text) == (None if amount is None else Decimal(amount))


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("5 %", 0.05), ("x", None)]
)
def test_shares(text: str, share: float | None) -> None:
    assert parse_share(text) == share


def test_counts_have_plurals() -> None:
    assert [format_count(count, "worker") for count in (0, 1, 1000)] == [
        "0 workers", "1 worker", "1,000 workers",
    ]  # fmt: skip
    assert format_count(2, "query", "queries") == "2 queries"


def test_words_are_joined() -> None:
    assert [join_words(list("abc")[:count]) for count in range(4)] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert join_words(["a", "b"], "or") == "a or b"


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.123"), (26.94, "26.9"), (999.4, "999"), (3238.0, "3,238")]
)
def test_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert format_digits(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(12, "12 bytes"), (1234, "1.23 kB"), (2.35e12, "2.35 TB"), (4.1e15, "4,100 TB")]
)  # fmt: skip
def test_bytes(value: float, text: str) -> None:
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(12.4, "12 s"), (299, "299 s"), (300, "5 min"), (10_800, "3 h 00 min")]
)
def test_spans(seconds: float, text: str) -> None:
    assert format_span(seconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2TB", 2e12), ("500 GB", 5e11), ("1.5GiB", 1.5 * 2**30), ("8B", 8.0), ("3kB", 3000.0),
        ("2", None), ("2T", None), ("-1GB", None), ("1iB", None), ("", None), ("GB", None),
    ],
)  # fmt: skip
def test_sizes_have_their_unit(text: str, size: float | None) -> None:
    assert parse_bytes(text) == size
