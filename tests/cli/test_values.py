"""What may be written after an option."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli.commands.options import Parsed, Since
from cli.plan.values import Amount, Label, Pair, Rate, Speed


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1000", 1000), ("1,000,000", 10**6), ("1_000", 1000), ("50k", 50_000), ("50K", 50_000),
        ("1.5M", 1_500_000), ("2G", 2 * 10**9), ("1e6", 10**6), ("2.5E3", 2500), (7, 7), ("1e0", 1),
    ],
)  # fmt: skip
def test_amounts(text: object, amount: int) -> None:
    assert Amount(1).parse(str(text)) == amount


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("many", "1M or 1e6"), ("1,00", "1M or 1e6"), ("1m", "1M or 1e6"), ("", "1M or 1e6"),
        ("1.5", "not a whole number"), ("1e-3", "not a whole number"), ("0", "1<=x"), ("-1k", "1<=x"),
        ("1e99", "x<=1000000000"), ("nan", "1M or 1e6"),
    ],
)  # fmt: skip
def test_what_is_no_amount(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Amount(1, 10**9).parse(str(text))


def test_a_speed_that_was_read_is_taken_as_it_is() -> None:
    """click converts what it has converted again."""
    kind = Parsed(Speed())
    for text, speed in (("max", 0.0), ("2.5", 2.5)):
        assert kind.convert(kind.convert(text, None, None), None, None) == speed


def test_rates() -> None:
    rate = Rate(0.0, above=True)
    assert rate.parse("0.5") == 0.5
    assert rate.parse("12.5k") == 12_500.0
    assert rate.parse("3.0") == 3.0
    for text in ("0", "-1", "1/s"):
        with pytest.raises(ValueError, match=r"not in the range|not a number"):
            rate.parse(text)


def test_pairs() -> None:
    assert Pair().parse(" build = a=b ") == ("build", "a=b")
    for text in ("build", "=3", "build=", "a=b\nc"):
        with pytest.raises(ValueError, match="build=42"):
            Pair().parse(str(text))


def test_labels() -> None:
    assert Label().parse(" after the upgrade ") == "after the upgrade"
    for text in ("", " ", "a\nb", "latest", "x" * 81):
        with pytest.raises(ValueError, match=r"write one line|names the newest"):
            Label().parse(text)


def test_times_past() -> None:
    since = Since().parse("36h")
    assert abs(datetime.now(UTC) - timedelta(hours=36) - since) < timedelta(seconds=5)
    assert Since().parse("2026-11-20") == datetime(2026, 11, 20, tzinfo=UTC)
    assert Since().parse("2026-11-20T08:30+01:00") == datetime(2026, 11, 20, 7, 30, tzinfo=UTC)
    for text in ("yesterday", "3", "-2h", "2026-13-01"):
        with pytest.raises(ValueError, match="2h, 3d"):
            Since().parse(str(text))
