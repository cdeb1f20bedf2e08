"""Files of strangers are read within limits, and whatever is wrong with them is one line."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from simulator.documents import (
    MOST_BYTES_YAML,
    DocumentError,
    parse_json,
    parse_yaml,
    read_json,
    read_yaml,
)

LAUGHS = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{','.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, "5: there are too many parts, or aliases"),
        (MERGES, "6: there are too many parts, or aliases"),
        ("a: &a " + "x" * 400_000 + "\nb: [" + "*a," * 6 + "]", "2: there are too many parts"),
        ("[" + "a," * 200_000 + "]", "1: there are too many parts"),
        ("[" * 5_000, "1: parts are nested more than 40 levels deep"),
        ("\n".join(" " * n + "a:" for n in range(900)), "41: parts are nested"),
        ("\na: &a [*a]", "2: this part contains itself"),
        ("a: " + "9" * 5_000, "1: not valid YAML: a number of 5,000 characters"),
        ("a: 0x" + "9" * 5_000, "1: not valid YAML: a number of 5,002 characters"),
        ("a: 010", "1: not valid YAML: 010 is octal to some: write 10, or put it in quotes"),
        ("a:\n- {b: 1, b: 2}", "2: a.b: duplicate key: remove one"),
        ("a:\n\t- b", "2: not valid YAML: found character '\\t' that cannot start any token: indent by"),
        ("a: .inf", "1: not valid YAML: .inf is no finite number"),
        ("a: 1.0e+999", "1: not valid YAML: 1.0e+999 is no finite number"),
        ('a: !!int ""', "1: not valid YAML: '' is no int"),
        ("a: !!bool x", "1: not valid YAML: 'x' is no bool"),
        ("a: !!python/name:os.system", "1: not valid YAML: could not determine a constructor"),
        ("a: !!binary aGFsbG8=", "1: not valid YAML: could not determine a constructor"),
        ("? [a]\n: b", "1: not valid YAML: found unhashable key"),
        ("a: \0", "1: not valid YAML: unacceptable character"),
    ],
)  # fmt: skip
def test_yaml_beyond_the_limits(text: str, problem: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_yaml(text)
    message = refused.value.at("x.yaml")
    assert message.startswith(f"x.yaml:{problem}")
    assert "\n" not in message


def test_what_yaml_may_have() -> None:
    _, values = parse_yaml(
        "a: &a {b: [1, 1.5, yes, ~, 2024-01-02, text]}\nc: *a\nd: {<<: *a, e: 0x10}"
    )
    part = {"b": [1, 1.5, True, None, "2024-01-02", "text"]}
    assert values == {"a": part, "c": part, "d": {**part, "e": 16}}
    assert parse_yaml("")[1] is None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[" * 41 + b"]" * 41, "is nested more than 40 levels deep"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a": Infinity}', "is not valid JSON"),
        (b'{"a": 1e999}', "is not valid JSON"),
        (b"9" * 5_000, "is not valid JSON"),
        (b"[-1e30]", "has the number -1e+30, which is too large"),
        (b"[" + b"1," * 1_000_001 + b"1]", "has more than 1,000,000 values"),
        (
            b"{%b}" % b",".join(b'"%d":1' % n for n in range(10_001)),
            "has a part with more than 10,000",
        ),
        (b'"\xff"', "is not text"),
        (b"", "is not valid JSON"),
    ],
)
def test_json_beyond_the_limits(content: bytes, problem: str) -> None:
    with pytest.raises(DocumentError, match=re.escape(problem)):
        parse_json(content)


@pytest.mark.parametrize(
    "number",
    [
        "1e20", "1E20", "1e+20", "2.5E+0020", "0.1e22", "123456789012345678e9", "18446744073709999999",
        "123456789012345678901.5", f"0.{'0' * 50}1e90", f"1{'0' * 40}e3",
    ],
)  # fmt: skip
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize(
    "place",
    ["{}", "[{}]", "[1,{}]", "[1,\n\t{}]", '{{"a":{}}}', '{{"a": {}}}', '{{"5e8":0,"a":\r\n{}}}'],
)
def test_numbers_that_are_too_large_are_found_wherever_they_stand(
    place: str, sign: str, number: str
) -> None:
    with pytest.raises(DocumentError, match="which is too large"):
        parse_json(place.format(sign + number).encode())


def test_what_only_looks_like_a_large_number_is_taken() -> None:
    text = b'{"5e80":["0x9e99","7e77",0.0055596026024205955,1e-30,"11111111111111111111"],"at":1.5}'
    assert parse_json(text)["5e80"][3:] == [1e-30, "11111111111111111111"]


def test_what_json_may_have() -> None:
    document: Any = [2**64 - 1, -1.5, True, None, "\0", {"a": "1e99"}]
    assert parse_json(b'[18446744073709551615,-1.5,true,null,"\\u0000",{"a":"1e99"}]') == document


@pytest.mark.parametrize("read", [read_yaml, read_json])
def test_only_regular_files_of_some_size_are_read(tmp_path: Path, read: Any) -> None:
    """A pipe would be waited for, and a device would never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(MOST_BYTES_YAML * 100)
    for path, problem in (
        (pipe, "is no regular file"),
        (Path("/dev/zero"), "is no regular file"),
        (tmp_path, "can't be read: Is a directory"),
        (large, "is larger than"),
        (Path("a\0b"), "can't be read: embedded null byte"),
    ):
        with pytest.raises(DocumentError, match=problem):
            read(path)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")


def test_modes_of_files_are_octal() -> None:
    """As in a pod's volumes: Kubernetes reads YAML 1.1, in which its pages write 0440."""
    _, values = parse_yaml("volumes: [{secret: {defaultMode: 0440, items: [{mode: 0400}]}}]")
    secret = values["volumes"][0]["secret"]
    assert (secret["defaultMode"], secret["items"]) == (0o440, [{"mode": 0o400}])
