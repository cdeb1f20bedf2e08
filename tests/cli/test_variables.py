"""${VARIABLES}, as a shell puts them in."""

from __future__ import annotations

import pytest

from cli.plan.target import VariableError, hide_values, list_values, replace_variables


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET", "pa$$word")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("UNSET", raising=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_06_02
        ("${SET}", "pa$$word"), ("${EMPTY}", ""),
        ("${SET:-d}", "pa$$word"), ("${EMPTY:-d}", "d"), ("${UNSET:-d}", "d"), ("${UNSET:-}", ""),
        ("${SET-d}", "pa$$word"), ("${EMPTY-d}", ""), ("${UNSET-d}", "d"),
        ("${SET:?m}", "pa$$word"), ("${SET?m}", "pa$$word"), ("${EMPTY?m}", ""),
        ("${SET:+y}", "y"), ("${EMPTY:+y}", ""), ("${UNSET:+y}", ""),
        ("${SET+y}", "y"), ("${EMPTY+y}", "y"), ("${UNSET+y}", ""),
        ("a$$b", "a$b"), ("$${SET}", "${SET}"), ("$$SET", "$SET"), ("${UNSET:-a$$b}", "a$b"),
        ("cost$", "cost$"), ("$5", "$5"), ("^a$|b", "^a$|b"),
        ("host=${UNSET:-x} port=${EMPTY:-1}", "host=x port=1"),
    ],
)  # fmt: skip
def test_they_are_put_in_as_by_a_shell(text: str, value: str) -> None:
    assert replace_variables(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${UNSET}", "environment variable UNSET is not set; set it, or write ${UNSET:-default}"),
        ("${UNSET:?the password of bench}", "environment variable UNSET: the password of bench"),
        ("${EMPTY:?m}", "environment variable EMPTY: m"),
        ("${UNSET?}", "environment variable UNSET is not set"),
        ("pa$word", "$word has two readings: write ${word} for a variable, or $$ for a dollar sign"),
        ("$SET", "write ${SET} for a variable, or $$ for a dollar sign"),
        ("${SET%x}", "write ${NAME} for a variable, or $$ for a dollar sign"),
        ("${}", "or $$ for a dollar sign"), ("${SET", "or $$ for a dollar sign"),
        ("${UNSET:-${SET}}", "or $$ for a dollar sign"), ("${UNSET:-$SET}", "write ${SET}"),
    ],
)  # fmt: skip
def test_what_has_two_readings_is_refused(text: str, problem: str) -> None:
    with pytest.raises(VariableError) as refused:
        replace_variables(text)
    assert problem in str(refused.value)


def test_what_a_user_is_shown() -> None:
    assert list_values("${SET:?m} ${EMPTY} $$x") == {"SET": "pa$$word"}
    assert hide_values("pa$$word", "${SET-d}") == "${SET}"
    assert (
        hide_values("user=a password=pa$$word", "user=a password=${SET}")
        == "user=a password=${SET}"
    )
    assert hide_values("$", "$$") == "$"
