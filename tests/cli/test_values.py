"""What may be written after an option."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from cli.commands.values import Amount, Label, Pair, Rate, Since


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1000", 1000), ("1,000,000", 10**6), ("1_000", 1000), ("50k", 50_000), ("50K", 50_000),
        ("1.5M", 1_500_000), ("2G", 2 * 10**9), ("1e6", 10**6), ("2.5E3", 2500), (7, 7), ("1e0", 1),
    ],
)  # fmt: skip
def test_amounts(text: object, amount: int) -> None:
    assert Amount(min=1).convert(text, None, None) == amount


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("many", "1M or 1e6"), ("1,00", "1M or 1e6"), ("1m", "1M or 1e6"), ("", "1M or 1e6"),
        ("1.5", "not a whole number"), ("1e-3", "not a whole number"), ("0", "1<=x"), ("-1k", "1<=x"),
        ("1e99", "x<=1000000000"), ("nan", "1M or 1e6"),
    ],
)  # fmt: skip
def test_what_is_no_amount(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        Amount(min=1, max=10**9).convert(text, None, None)


def test_rates() -> None:
    rate = Rate(0.0, min_open=True)
    assert rate.convert("0.5", None, None) == 0.5
    assert rate.convert("12.5k", None, None) == 12_500.0
    assert rate.convert(3.0, None, None) == 3.0
    for text in ("0", "-1", "1/s"):
        with pytest.raises(click.BadParameter):
            rate.convert(text, None, None)


def test_pairs() -> None:
    assert Pair().convert(" build = a=b ", None, None) == ("build", "a=b")
    for text in ("build", "=3", "build=", "a=b\nc"):
        with pytest.raises(click.BadParameter, match="build=42"):
            Pair().convert(text, None, None)


def test_labels() -> None:
    assert Label().convert(" after the upgrade ", None, None) == "after the upgrade"
    for text in ("", " ", "a\nb", "latest", "x" * 81):
        with pytest.raises(click.BadParameter):
            Label().convert(text, None, None)


def test_times_past() -> None:
    since = Since().convert("36h", None, None)
    assert abs(datetime.now(UTC) - timedelta(hours=36) - since) < timedelta(seconds=5)
    assert Since().convert("2026-11-20", None, None) == datetime(2026, 11, 20, tzinfo=UTC)
    assert Since().convert("2026-11-20T08:30+01:00", None, None) == datetime(
        2026, 11, 20, 7, 30, tzinfo=UTC
    )
    for text in ("yesterday", "3", "-2h", "2026-13-01"):
        with pytest.raises(click.BadParameter, match="2h, 3d"):
            Since().convert(text, None, None)
