"""The syntax of option values, on a command line or in a campaign's file: amounts, times, labels, pairs,
limits, rates and their stages. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from simulator.contract import Measure, RunLimit, parse_stages
from simulator.errors import did_you_mean
from simulator.units import parse_amount, parse_duration_ms, parse_share, read_duration_s

Schema = dict[str, Any]

LATEST = "latest"
"""Names the newest result, so it can't be a label."""
_LONGEST_LABEL = 80
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": ["number", "string"]}


class Kind:
    """A kind of value; this one is any text."""

    name: str = "TEXT"
    """Its name in `--help`."""
    made: ClassVar[type | tuple[type, ...]] = str
    """The value's type: parsed values are accepted as they are."""
    schema: ClassVar[Schema] = _TEXT
    """What a file may contain in its place, as JSON Schema."""

    def parse(self, text: str) -> Any:
        """The parsed value; ValueError with the reason if it is wrong."""
        return text


class Flag(Kind):
    """Given or not."""

    made = bool
    schema: ClassVar[Schema] = {"type": "boolean"}


class File(Kind):
    """The path of a file."""

    name = "FILE"
    made = object

    def __init__(self, dir_okay: bool = False) -> None:
        self.dir_okay = dir_okay


class Folder(Kind):
    """A folder, or its address."""

    name = "FOLDER|URL"
    made = object


class Choice(Kind):
    """One of several words."""

    def __init__(self, names: Sequence[str], case_sensitive: bool = True) -> None:
        self.names, self.case_sensitive = [str(name) for name in names], case_sensitive

    def parse(self, text: str) -> str:
        for name in self.names:
            if text == name or (not self.case_sensitive and text.lower() == name.lower()):
                return name
        raise ValueError(f"{text!r} is not one of {', '.join(map(repr, self.names))}.")


class Number(Kind):
    """A number in a range."""

    schema = _NUMBER
    whole: ClassVar[bool] = False
    hint: ClassVar[str] = ""
    """How to write it."""

    def __init__(
        self, least: float | None = None, most: float | None = None, above: bool = False
    ) -> None:
        """`above`: exclude the minimum."""
        self.least, self.most, self.above = least, most, above
        self.name = "INTEGER RANGE" if self.whole else "FLOAT RANGE"

    def read_number(self, text: str) -> Any:
        """The number; None if it isn't one."""
        try:
            return int(text) if self.whole else float(text)
        except ValueError:
            return None

    def parse(self, text: str) -> float:
        number = self.read_number(text)
        if number is None or math.isnan(number):
            what = "a whole number" if self.whole and not self.hint else "a number"
            raise ValueError(f"{text!r} is not {what}{self.hint}")
        if self.whole and number != int(number):
            raise ValueError(f"{text!r} is not a whole number")
        number = int(number) if self.whole else float(number)
        too_small = self.least is not None and (
            number <= self.least if self.above else number < self.least
        )
        if too_small or (self.most is not None and number > self.most):
            raise ValueError(f"{number} is not in the range {self.describe_range()}.")
        return number

    def describe_range(self) -> str:
        """`1<=x<=10`, `x>0`: as in click."""
        if self.least is None or self.most is None:
            least = f"x{'>' if self.above else '>='}{self.least}"
            return f"x<={self.most}" if self.least is None else least
        return f"{self.least}{'<' if self.above else '<='}x<={self.most}"


class Whole(Number):
    """A whole number, written in digits."""

    whole = True


class Rate(Number):
    """A number, with suffixes for large ones: 50k."""

    hint = ": write a number as in 50000, 50k, 1M or 1e6"

    def __init__(
        self, least: float | None = None, most: float | None = None, above: bool = False
    ) -> None:
        super().__init__(least, most, above)
        self.name = "NUMBER"

    def read_number(self, text: str) -> Any:
        return parse_amount(text)


class Amount(Rate):
    """A whole number, with the same suffixes."""

    whole = True


class StagedRate(Rate):
    """A rate, or stages: `2m:1000,10m:5000`."""

    made = list

    def __init__(self) -> None:
        super().__init__(0, above=True)
        self.name = "NUMBER|TIME:NUMBER,..."

    def parse(self, text: str) -> Any:
        return parse_stages(text) if ":" in text else super().parse(text)


class Speed(Rate):
    """A factor above 0, or `max`."""

    made = float

    def __init__(self) -> None:
        super().__init__(0, above=True)
        self.name = "NUMBER|max"

    def parse(self, text: str) -> float:
        return 0.0 if text == "max" else super().parse(text)


class Pair(Kind):
    """`KEY=VALUE`."""

    name = "KEY=VALUE"
    made = tuple

    def parse(self, text: str) -> tuple[str, str]:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not (key and equals and value and text.isprintable()):
            raise ValueError(f"{text!r}: write a key and a value, as in build=42")
        return key, value


class Label(Kind):
    """A user's name for a result."""

    made = ()

    def parse(self, text: str) -> str:
        label = text.strip()
        if not label or not label.isprintable() or len(label) > _LONGEST_LABEL:
            raise ValueError(f"write one line of 1 to {_LONGEST_LABEL} printable characters")
        if label == LATEST:
            raise ValueError(f"{LATEST!r} names the newest result: choose another label")
        return label


class Share(Kind):
    """`5%` or `0.05` -> 0.05."""

    name = "SHARE"
    made = float
    schema = _NUMBER

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def parse(self, text: str) -> float:
        share = parse_share(text)
        if share is None or not self._least <= share <= self._most:
            raise ValueError(
                f"{text!r}: write a share from {self._least:.0%} to {self._most:.0%}, as in 5%"
            )
        return share


class Duration(Kind):
    """`90`, `90s`, `1.5m`, `1h` -> seconds."""

    name = "DURATION"
    made = float
    schema = _NUMBER

    def __init__(self, least_s: float = 0.0, above: bool = False) -> None:
        """`above`: exclude the minimum."""
        self._least_s, self._above = least_s, above

    def parse(self, text: str) -> float:
        seconds = read_duration_s(text)
        if seconds < self._least_s or (self._above and seconds == self._least_s):
            raise ValueError(f"{text!r}: the time must be longer than {self._least_s:g} s")
        return seconds


class WorkerCounts(Kind):
    """`1,4,8` -> (1, 4, 8)."""

    name = "N[,N...]"
    made = tuple
    schema: ClassVar[Schema] = {
        "type": ["integer", "string", "array"],
        "items": {"type": "integer"},
    }

    def __init__(self, most: int = 10**9) -> None:
        self._most = most

    def parse(self, text: str) -> tuple[int, ...]:
        parts = text.split(",")
        numbers = [int(part) for part in parts if part.isascii() and part.isdigit()]
        if len(numbers) < len(parts) or min(numbers) < 1 or max(numbers) > self._most:
            raise ValueError(
                f"{text!r}: write numbers from 1 to {self._most}, separated by commas, as in 1,4,8"
            )
        if twice := [number for number in numbers if numbers.count(number) > 1]:
            raise ValueError(
                f"{text!r} names {twice[0]} more than once: for more runs of each count use --runs"
            )
        return tuple(numbers)


class WeightedQueries(Kind):
    """`newest-per-device=3,count-events` -> name -> weight."""

    name = "NAME[=WEIGHT],..."
    made = dict
    schema: ClassVar[Schema] = {
        "type": ["string", "array", "object"],
        "items": _TEXT,
        "additionalProperties": _NUMBER,
    }

    def parse(self, text: str) -> dict[str, float]:
        weights: dict[str, float] = {}
        for part in text.split(","):
            name, equals, weight = (word.strip() for word in part.partition("="))
            if not re.fullmatch(r"\d+(\.\d+)?", weight or "1") or (equals and not weight):
                raise ValueError(f"{part!r}: write a weight as in count-events=3")
            if not name or name in weights:
                raise ValueError(f"{text!r}: write each query once, as in count-events=3,raw-range")
            weights[name] = float(weight or 1)
        if not any(weights.values()):
            raise ValueError(f"{text!r}: at least one weight must be above 0")
        return weights


_LIMIT = re.compile(r"(?:query:(?P<query>[^:=]+):)?(?P<measure>[^:=]+)=(?P<value>.*)")


def parse_limit(text: str) -> RunLimit:
    """`p99=100ms`, `error_share=0.1%`, `query:NAME:p99=2s`; ValueError explains the syntax."""
    match = _LIMIT.fullmatch(text.strip())
    if not match:
        raise ValueError(
            f"{text!r}: write a limit as in p99=100ms, error_share=0.1% or query:NAME:p99=2s"
        )
    name, value = match["measure"].strip(), match["value"].strip()
    names = [str(measure) for measure in Measure]
    if name not in names:
        raise ValueError(
            f"{text!r}: there is no {name!r}{did_you_mean(name, names)} (there are: {', '.join(names)})"
        )
    measure = Measure(name)
    if measure.is_time:
        at_most = parse_duration_ms(value)
        if at_most is None or at_most <= 0:
            written = text.partition("=")[0].strip()
            raise ValueError(
                f"{text!r}: write a time above 0 with its unit, as in {written}=100ms or {written}=2s"
            )
    else:
        at_most = parse_share(value)
        if at_most is None or at_most > 1:
            raise ValueError(f"{text!r}: write a share as in error_share=0.1% or error_share=0.001")
    query = match["query"].strip() if match["query"] else None
    return RunLimit(measure=measure, query=query, at_most=at_most)


class Limit(Kind):
    """`p99=100ms`, `error_share=0.1%`, `query:NAME:p99=2s`."""

    name = "MEASURE=VALUE"
    made = RunLimit

    def parse(self, text: str) -> RunLimit:
        return parse_limit(text)
