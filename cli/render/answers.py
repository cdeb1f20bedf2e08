"""What was found of the answers that readers got, in words."""

from __future__ import annotations

from ..results.model import Result

_MOST_NAMED = 3


def describe_answers(result: Result) -> str | None:
    """How many answers were checked, and why others weren't; None if none were to be."""
    found = result.answers
    if not found:
        return None
    checked, unchecked = sum(a.checked for a in found), sum(a.unchecked for a in found)
    wrong = sum(len(one.workers) for answers in found for one in answers.wrong)
    if not checked and not unchecked:
        return "Answers: there were none to check."
    said = []
    if checked:
        said.append(f"{checked:,} checked, {f'{wrong:,} of them wrong' if wrong else 'all right'}")
    if unchecked:
        said.append(f"{unchecked:,} not checked: {_list_reasons(result)}")
    return f"Answers: {'; '.join(said)}."


def _list_reasons(result: Result) -> str:
    reasons: dict[str, list[str]] = {}
    for answers in result.answers:
        for reason, queries in answers.reasons.items():
            known = reasons.setdefault(reason, [])
            known += [query for query in queries if query not in known]
    if len(reasons) == 1 and not any(answers.checked for answers in result.answers):
        return next(iter(reasons))
    return "; ".join(f"{_name(queries)} ({reason})" for reason, queries in reasons.items())


def _name(queries: list[str]) -> str:
    more = len(queries) - _MOST_NAMED
    return ", ".join(queries[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
