"""Bytes from columns: what all encoders are made of."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from simulator.encoding import binary_rows as binary_rows_module
from simulator.encoding import rows as rows_module
from simulator.encoding.binary_rows import BinaryRows
from simulator.encoding.columns import (
    all_alike,
    bool_texts,
    bounds,
    client_keys,
    digits,
    escape,
    escape_json,
    find_period,
    is_constant,
    iso_times,
    text_format,
    with_client_key,
)
from simulator.encoding.rows import (
    PlacedRows,
    find_pieces,
    format_requests,
    format_rows,
    format_singles,
    text_form,
    text_values,
)
from simulator.testing.events import rows_of
from simulator.workloads.cpu import Cpu
from simulator.workloads.schema import Column, ColumnType
from simulator.workloads.temperature import Temperature


def test_digits_are_zero_padded() -> None:
    numbers = [0, 7, 10, 99, 12345, 10**12 - 1]
    text = digits(np.array(numbers), 12)
    assert [bytes(row) for row in text] == [b"%012d" % number for number in numbers]


def test_times_as_texts() -> None:
    """Across the ends of days, months and years, in any order."""
    times = [1_704_067_199_999, 1_704_067_200_000, 0, 1_709_164_800_045, 4_102_444_799_999]
    assert iso_times(np.array(times)).tolist() == [
        b"2023-12-31T23:59:59.999Z",
        b"2024-01-01T00:00:00.000Z",
        b"1970-01-01T00:00:00.000Z",
        b"2024-02-29T00:00:00.045Z",
        b"2099-12-31T23:59:59.999Z",
    ]


@pytest.mark.parametrize("other", range(5))
def test_whether_all_are_alike(other: int) -> None:
    data = np.array([b"device-%d" % (number == other) for number in range(4)])
    assert all_alike(data) == (other == 4)
    assert all_alike(data[::2]) == (other not in (0, 2))
    assert all_alike(data[:1])


def test_client_keys_are_made_of_the_natural_key() -> None:
    block = Temperature(device_spread=3).block(4, 999_998, 7)
    expected = [f"{device}{at:013d}{n:012d}".encode() for at, device, n, _ in rows_of(block)]
    assert client_keys(block).tolist() == expected


def test_client_keys_without_a_sequence_number() -> None:
    block = Cpu(device_spread=2).block(0, 5, 4)
    times = block.columns["ts"].tolist()
    devices = block.devices.tolist()
    expected = [b"%b%013d" % pair for pair in zip(devices, times, strict=True)]
    assert client_keys(block).tolist() == expected


def test_client_keys_of_every_fourth_event() -> None:
    """Parts are strided views, which can't be reinterpreted byte by byte."""
    block = Temperature(device_spread=3).block(0, 0, 20)
    assert client_keys(block.part(1, 20, 4)).tolist() == client_keys(block).tolist()[1::4]


def test_client_keys_sort_by_device_then_time() -> None:
    block = Temperature(device_spread=3).block(0, 95, 30)
    order = np.argsort(client_keys(block), kind="stable")
    natural = sorted(range(30), key=lambda row: (rows_of(block)[row][1], rows_of(block)[row][0]))
    assert order.tolist() == natural


def test_the_key_comes_first() -> None:
    block = Temperature().block(0, 0, 3)
    columns, values = with_client_key(block)
    assert columns == (Column("id", ColumnType.TEXT), *block.schema.columns)
    assert list(values) == [column.name for column in columns]
    assert values["id"].tolist() == client_keys(block).tolist()


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (Column("a", ColumnType.TEXT), b"100 %", b"100 %"),
        (Column("a", ColumnType.JSON), b"{}", b"{}"),
        (Column("a", ColumnType.INT32), -5, b"-5"),
        (Column("a", ColumnType.INT64), -(2**63), b"-9223372036854775808"),
        (Column("a", ColumnType.TIMESTAMP_MS), 1704067200000, b"1704067200000"),
        (Column("a", ColumnType.FLOAT32, decimals=2), 21.350000381, b"21.35"),
        (Column("a", ColumnType.FLOAT32, decimals=0), -0.6, b"-1"),
        (Column("a", ColumnType.FLOAT32), 16777217.0, b"16777217"),
    ],
)
def test_text_formats(column: Column, value: object, text: bytes) -> None:
    assert text_format(column) % (value,) == text


def test_floats_without_decimals_survive_as_text() -> None:
    bits = np.random.Generator(np.random.PCG64(1)).integers(0, 2**32, 5000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    form = text_format(Column("a", ColumnType.FLOAT32))
    texts = [form % value for value in values.tolist()]
    assert (np.array([np.float32(text.decode()) for text in texts]) == values).all()


def test_escaping_is_done_in_order() -> None:
    values = np.array([b"a\\b", b"tab\t", b"", b"\\\t"])
    escaped = escape(values, [(b"\\", b"\\\\"), (b"\t", b"\\t")])
    assert escaped.tolist() == [b"a\\\\b", b"tab\\t", b"", b"\\\\\\t"]


@pytest.mark.parametrize("period", [1, 3, 50, 51, 100])
def test_texts_that_repeat_are_escaped_as_others_are(period: int) -> None:
    """The second half of a text may be the beginning of the first one: that is no repetition."""
    texts = [b'a"%d' % (n % 7) + b'\\"' * (n % 4) + b"a" * (n % 5) for n in range(period)]
    values = np.resize(np.array(texts, dtype="S16"), 100)
    alone = [escape(values[n : n + 1], [(b"\\", b"\\\\"), (b'"', b'\\"')])[0] for n in range(100)]
    assert escape(values, [(b"\\", b"\\\\"), (b'"', b'\\"')]).tolist() == alone
    assert escape_json(values).tolist() == [escape_json(values[n : n + 1])[0] for n in range(100)]


def test_a_period_is_that_of_whole_texts() -> None:
    devices = np.array([b"w%02d" % n for n in range(10)])
    assert find_period(np.resize(devices, 95)) == 10
    assert find_period(np.resize(devices[3:], 64)) == 7
    assert find_period(np.resize(devices, 63)) == 0  # too few to look
    # Twice within its half, but not at the end.
    broken = np.resize(devices, 100)
    broken[-1] = b"w99"
    assert find_period(broken) == 0
    # The first text is in the others, between two of them.
    shifted = np.array([b"ab", b"xa", b"bx"] * 40)
    assert find_period(shifted) == 3
    assert find_period(np.array([b"w%03d" % n for n in range(100)])) == 0


def test_what_is_the_same_in_all_rows_is_escaped_once() -> None:
    values = np.broadcast_to(np.array([b'a"b']), (3,))
    escaped = escape(values, [(b'"', b'""')])
    assert escaped.tolist() == [b'a""b'] * 3
    assert is_constant(escaped)
    assert is_constant(escape_json(values))
    assert escape_json(values).tolist() == [b'a\\"b'] * 3


def test_what_needs_no_escaping_is_not_copied() -> None:
    values = np.array([b"plain", b"text"])
    assert escape(values, [(b"'", b"''")]) is values


@pytest.mark.parametrize(
    ("count", "batch", "expected"),
    [
        (10, 4, [(0, 4), (4, 8), (8, 10)]),
        (8, 4, [(0, 4), (4, 8)]),
        (3, 10, [(0, 3)]),
        (2, 1, [(0, 1), (1, 2)]),
        (0, 4, []),
    ],
)
def test_bounds(count: int, batch: int, expected: list[tuple[int, int]]) -> None:
    assert bounds(count, batch) == expected


# --- binary rows ----------------------------------------------------------------------------------

_FORMS = {
    ColumnType.INT64: ">q",
    ColumnType.TIMESTAMP_MS: ">q",
    ColumnType.INT32: ">i",
    ColumnType.FLOAT32: ">f",
}


def rows_one_by_one(columns: Any, prefix: Any, json_prefix: bytes) -> Iterator[bytes]:
    """The rows that `BinaryRows` has to make."""
    names, values = columns
    for row in range(len(values[names[0].name])):
        parts = [prefix if isinstance(prefix, bytes) else prefix[row].tobytes()]
        for column in names:
            value = values[column.name][row].item()
            if column.type in _FORMS:
                value = struct.pack(_FORMS[column.type], value)
            elif column.type is ColumnType.JSON:
                value = json_prefix + value
            parts += [struct.pack(">i", len(value)), value]
        yield b"".join(parts)


def made_columns(count: int, texts: Any, documents: Any) -> Any:
    """A column of each kind: two that repeat the given texts in turn, and one of numpy's type V."""
    numbers = np.arange(count)
    columns = (
        Column("document", ColumnType.JSON),
        Column("at", ColumnType.TIMESTAMP_MS),
        Column("small", ColumnType.INT32),
        Column("uuid", ColumnType.TEXT),
        Column("measure", ColumnType.FLOAT32),
        Column("note", ColumnType.TEXT),
    )
    return columns, {
        "document": np.resize(np.array(documents), count),
        "at": numbers * 10**11,
        "small": (-numbers).astype(np.int32),
        "uuid": np.arange(2 * count).view("V16"),
        "measure": (numbers / 7).astype(np.float32),
        "note": np.resize(np.array(texts), count),
    }


@pytest.mark.parametrize("window", [1, 100, 1000, 10**6])
@pytest.mark.parametrize("documents", [[b"{}", b"[]"], [b"{}", b"[1, 2, 3]", b""]])
@pytest.mark.parametrize("texts", [[b"same"], [b"", b"abc", b"ab"]])
def test_binary_rows_in_windows_of_any_size(
    monkeypatch: pytest.MonkeyPatch, window: int, documents: list[bytes], texts: list[bytes]
) -> None:
    """Requests that are smaller and larger than what is made at once, with and without padding."""
    monkeypatch.setattr(binary_rows_module, "WINDOW_BYTES", window)
    columns = made_columns(23, texts, documents)
    for prefix in (b"", b"pre", np.arange(23, dtype=np.int32).view("V4")):
        expected = list(rows_one_by_one(columns, prefix, b"\x01"))
        rows = BinaryRows(columns, prefix, b"\x01")
        for size in (1, 4, 23):
            for start, stop in bounds(23, size):
                body = b"<" + b"".join(expected[start:stop]) + b">"
                assert rows.join(start, stop, b"<", b">") == body
        assert rows.join(0, 0, b"<", b">") == b"<>"
        assert BinaryRows(columns, prefix, b"\x01").singles() == expected


@pytest.mark.parametrize("value", [b"", b"{}", b"wide\x01 text"])
@pytest.mark.parametrize("kind", [ColumnType.TEXT, ColumnType.JSON])
def test_a_value_that_is_the_same_in_all_rows(kind: ColumnType, value: bytes) -> None:
    column = np.broadcast_to(np.array([value], dtype="S20"), (9,))
    assert is_constant(column)
    columns = ((Column("a", kind), Column("b", ColumnType.INT32)), {"a": column, "b": np.arange(9)})
    expected = list(rows_one_by_one(columns, b"p", b"\x01"))
    for part in (columns, (columns[0], {name: data[::1] for name, data in columns[1].items()})):
        assert BinaryRows(part, b"p", b"\x01").singles() == expected


def test_another_constant_of_the_same_length_is_not_mistaken_for_the_last_one() -> None:
    """What is the same in each row is kept from one block to the next."""
    for value in (b"one", b"two", b"one"):
        data = np.broadcast_to(np.array([value]), (3,))
        rows = BinaryRows(((Column("a", ColumnType.TEXT),), {"a": data}), b"")
        assert rows.singles() == [b"\0\0\0\3" + value] * 3


def test_only_what_is_stored_once_is_constant() -> None:
    assert not is_constant(np.array([b"a", b"a"]))
    assert not is_constant(np.broadcast_to(np.array([b"a"]), (0,)))


# --- rows of text ---------------------------------------------------------------------------------

# The ends of each number of digits, as `%d` and `%.2f` must tell them apart.
_ENDS = [0, *(10**n + offset for n in range(19) for offset in (-1, 0) if 10**n + offset)]


def integers(most: int) -> Any:
    ends = np.array([number for number in _ENDS if number <= most])
    return np.concatenate((ends, np.random.default_rng(1).integers(0, most + 1, 3000)))[:3000]


def floats(most: float) -> Any:
    """Also ties, which are rounded to the even number, and negative ones that become -0.00."""
    ties = np.arange(-999, 999) / 8
    random = np.random.default_rng(1).uniform(-most, most, 1000)
    values = np.concatenate(([0.0, -0.0, -0.001, -0.005, 9.995, 99.999, most, -most], ties, random))
    return np.resize(values, 3000).astype(np.float32)


def exact(most: float) -> Any:
    """In float64."""
    random = np.random.default_rng(2).uniform(-most, most, 2990)
    return np.concatenate(
        ([0.0, -0.0, -0.001, 0.05, 9.995, 99.999, 1e-300, most, -most, 7], random)
    )


TEXT_COLUMNS = [
    *((b"%d", integers(most)) for most in (0, 9, 999, 1000, 999_999, 10**6, 10**13, 2**63 - 1)),
    (b"%d", integers(100).astype(np.int32)),
    (b"%d", integers(10**9) + 10**12),
    *((b"%d", integers(most) * -1) for most in (100, 2**63 - 1)),
    (b"%d", integers(10**9).astype(np.int32) - 10**8),
    (b"%d", np.resize(np.array([-(2**63), 5]), 3000)),
    *((form, floats(most)) for form in (b"%.1f", b"%.2f", b"%.3f") for most in (99.0, 1e5, 3e38)),
    *((b"%%.%df" % places, floats(1e5)) for places in (0, 4, 5, 6, 7)),
    # Those that decimals of the column would leave, and some that need all digits to be rounded.
    *((b"%%.%df" % places, np.round(exact(1e4), places)) for places in range(7)),
    *((b"%%.%df" % places, exact(most)) for places in (0, 1, 3, 6) for most in (99.0, 1e12)),
    (b"%.2f", np.resize(np.array([1.005, 0.125, 2.675, 0.045, 1e15 / 3]), 3000)),
    (b"%.2f", np.resize(np.array([np.nan, np.inf, -1.0], dtype=np.float32), 3000)),
    (b"%.9g", floats(1e5)),
    (b"%b", np.resize(np.array([b"", b"a %d", "Grüße".encode()]), 3000)),
    (b"%b", np.broadcast_to(np.array([b"100 %"]), (3000,))),
    (
        b"%b",
        np.broadcast_to(np.array(["so lang, daß es später eingesetzt wird ".encode() * 3]), 3000),
    ),
]


def formatted_one_by_one(row: bytes, columns: Any) -> list[bytes]:
    return [row % values for values in zip(*(data.tolist() for data in columns), strict=True)]


@pytest.mark.parametrize(("form", "data"), TEXT_COLUMNS)
def test_rows_of_text_are_as_by_the_operator(form: bytes, data: Any) -> None:
    row = b'{"%%": "' + form + b'", ' + form + b"}"
    columns = [data, data[::-1]]
    expected = formatted_one_by_one(row, columns)
    assert format_singles(row, columns) == expected
    for separator in (b"", b",\n"):
        assert format_rows(row, separator, columns) == separator.join(expected)


@pytest.mark.parametrize("window", [1, 1000, 10**6])
def test_rows_of_text_in_windows_of_any_size(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    monkeypatch.setattr(rows_module, "WINDOW_BYTES", window)
    columns = [integers(10**13)[:1100], floats(99.0)[:1100], integers(999)[:1100]]
    expected = formatted_one_by_one(b"%d,%.2f;%d", columns)
    for size in (7, 700, 1100):
        requests = format_requests(b"%d,%.2f;%d", b"|", columns, size)
        assert requests == [b"|".join(expected[slice(*span)]) for span in bounds(1100, size)]
    few = [data[:300] for data in columns]
    assert format_rows(b"%d,%.2f;%d", b"|", few) == b"|".join(expected[:300])
    assert format_rows(b"%d", b"|", [columns[0][:0]]) == b""


def test_what_only_python_can_format() -> None:
    for form, data, is_known in (
        (b"%d", integers(9), True), (b"%d", -integers(9), True), (b"%.9g", floats(9.0), False),
        (b"%d", np.array([-(2**63)]), False), (b"%.17g", exact(9.0), False),
        (b"%.2f", floats(9.0), True), (b"%.2f", floats(3e38), False), (b"%.7f", floats(9.0), False),
        (b"%.2f", np.round(exact(9.0), 2), True), (b"%.2f", exact(9.0), False),
        (b"%b", np.array([b"a"]), True),
    ):  # fmt: skip
        assert (find_pieces(form, b"", [data]) is not None) == is_known
    with pytest.raises(AssertionError):
        find_pieces(b"%5d", b"", [integers(9)])


# Values of equal length that need one, two, three and more than three tables; the last has common digits.
EVEN = [
    *(np.arange(3000) * step % (9 * unit) + unit for step, unit in ((1, 1), (7, 10), (17, 10**4))),
    *(np.arange(3000) * step + 10**12 for step in (0, 1, 31, 10**5, 10**8)),
    np.arange(3000) + (2**63 - 3000),
    np.array([b"device-%04d" % number for number in range(3000)]),
]


@pytest.mark.parametrize("window", [1, 1000, 10**6])
def test_rows_with_few_parts_of_different_length_are_placed(
    monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(rows_module, "WINDOW_BYTES", window)
    count = 3000 if window > 1 else 450
    for even in (data[:count] for data in EVEN):
        kind = b"%b" if even.dtype.kind == "S" else b"%d"
        uneven, small = np.clip(floats(99.0), -99, 99)[:count], integers(999)[:count]
        for row, columns, is_placed in (
            (kind, [even], True),
            (kind + b",", [even], True),
            (kind + b",%.2f", [even, uneven], True),
            (b"%.2f," + kind, [uneven, even], True),
            (b"<%.2f" + kind + b"%d and more>", [uneven, even, small], True),
            # Padding of the second one would reach the next row.
            (kind + b"%.2f;%d", [even, uneven, small], False),
            (b"%.2f %d %d and more " + kind, [uneven, small, small, even], False),
        ):
            pieces = find_pieces(row, b"\n", columns)
            assert pieces is not None
            assert (PlacedRows.of(pieces, count) is not None) == is_placed, row
            expected = formatted_one_by_one(row, columns)
            for size in (count, 170):
                spans = bounds(count, size)
                requests = format_requests(row, b"\n", columns, size)
                assert requests == [b"\n".join(expected[slice(*span)]) for span in spans]


@pytest.mark.parametrize("count", [3, 3000])
@pytest.mark.parametrize(
    ("kind", "form", "data"),
    [
        (ColumnType.FLOAT64, b"%.3f", exact(1e4)),
        (ColumnType.FLOAT32, b",heat=%.1f", floats(99.0)),
        (ColumnType.FLOAT64, b"%.17g", exact(1e4)),
        (ColumnType.INT32, b"%di", integers(9) - 5),
        (ColumnType.TEXT, b'"%b"', np.resize(np.array([b"", b"x", b"longer"]), 3000)),
        (ColumnType.BOOL, b"%b", integers(1) > 0),
    ],
)
def test_nullable_columns_have_null_where_a_value_is_missing(
    count: int, kind: ColumnType, form: bytes, data: Any
) -> None:
    """However long it is; both for few rows and for many, and for every fourth."""
    column = Column("a", kind, nullable=True)
    data, missing = data[:count], np.arange(count) % 3 == 1
    texts = [
        form % value for value in (bool_texts(data) if kind is ColumnType.BOOL else data).tolist()
    ]
    for null in (b"", b"null", b"-- nothing there --"):
        expected = [
            null if is_missing else text for text, is_missing in zip(texts, missing, strict=True)
        ]
        values = text_values(column, form, data, missing, null)
        row = b"<" + text_form(column, form) + b">"
        assert format_singles(row, [values]) == [b"<%b>" % text for text in expected]
        assert format_rows(b"%b", b",", [values[1::4]]) == b",".join(expected[1::4])
    assert format_singles(b"%b", [text_values(column, form, data, None, b"")]) == texts
