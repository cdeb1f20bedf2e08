"""From a result of format 1 to one of format 2. Pure: on documents, of which nothing is checked yet.

Format 1 had a shape for each kind of run: `InsertRun` in `runs`, `QueryRun` (an execution) in the `runs` of
a query command, `ReadRun` in `reads`; what was measured of a query command stood at the top.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Document = dict[str, Any]

_OF_RUN = (
    "run", "fill_level", "began_at", "ended_at", "index_build_s", "machines", "resources", "marks", "undone",
    "phases_s",
)  # fmt: skip
"""What all groups of a run share now."""
_OF_GROUP = ("invalid_reasons", "overlap", "answers", "long_windows")
"""What a query command had at the top, and its group of readers has now."""
_NAMES = {
    "events": "count",
    "inserts_per_s": "rate_per_s",
    "inserts_per_s_mean_duration": "rate_per_s_mean_duration",
    "queries_per_s": "rate_per_s",
}
_NOTHING: tuple[Any, ...] = (None, [], {})
_NO_REASON = "it was kept as invalid without a reason"


class WrongShapeError(ValueError):
    """Not a document of format 1; the text says where and why."""


def convert(document: Mapping[str, Any]) -> Document:
    """The same result in format 2. What isn't known in format 1 stays where it is, and is refused there;
    `WrongShapeError` where something isn't the list or mapping that it must be."""
    new = dict(document)
    runs, reads = _pop_list(new, "runs"), _pop_list(new, "reads")
    baseline = _get_mapping(new.pop("baseline", None) or {}, "baseline")
    is_query = new.get("command") == "query"
    if is_query:
        shared = {name: new.pop(name) for name in (*_OF_RUN, *_OF_GROUP) if name in new}
        shared["queries_per_s"] = new.pop("queries_per_s", None)
        read = reads[0] if reads else _gather_executions(runs, new.get("options"))
        if not reads and not runs and not any(shared.values()):
            new["runs"] = []
        else:
            new["runs"] = [_make_run(_join(shared, read), "read"), *_convert_all(reads[1:], "read")]
    else:
        # For other commands these say nothing, or are refused.
        for name in (*_OF_RUN, *_OF_GROUP, "queries_per_s"):
            if new.get(name) in _NOTHING:
                new.pop(name, None)
        new["runs"] = _pair(_convert_all(runs, "write"), _convert_all(reads, "read"))
    alone = [
        *_convert_all(_pop_list(baseline, "runs", "baseline."), "write", "baseline.runs"),
        *_convert_all(_pop_list(baseline, "reads", "baseline."), "read", "baseline.reads"),
    ]
    if alone:
        new["baseline"] = alone
    summary, beside = new.pop("summary", None) or [], new.pop("query_summary_beside", None) or []
    new["insert_summary"] = [] if is_query else summary
    new["query_summary"] = summary if is_query else beside
    return new | {"format": 2}


def name_place(place: Sequence[int | str]) -> list[int | str]:
    """Where a part of the converted document stands in format 1, as far as that is the same for all."""
    parts: list[int | str] = []
    names = {new: old for old, new in reversed(_NAMES.items())}
    rest = iter(place)
    for part in rest:
        if part == "groups":
            next(rest, None)
        elif part in ("insert_summary", "query_summary"):
            parts.append("summary")
        else:
            parts.append(names.get(str(part), part))
    return parts


def _pop_list(document: Document, name: str, above: str = "") -> list[Any]:
    value = document.pop(name, None)
    if value is None:
        return []
    if not isinstance(value, list):
        raise WrongShapeError(f"{above}{name}: input should be a valid list")
    return value


def _get_mapping(value: Any, place: str) -> Document:
    if not isinstance(value, dict):
        raise WrongShapeError(f"{place}: input should be a valid dictionary")
    return dict(value)


def _convert_all(runs: Iterable[Any], role: str, place: str = "") -> list[Document]:
    place = place or ("runs" if role == "write" else "reads")
    return [
        _make_run(_get_mapping(run, f"{place}.{number}"), role) for number, run in enumerate(runs)
    ]


def _make_run(old: Mapping[str, Any], role: str) -> Document:
    """A run with one group, from all that was known of it."""
    group = {_NAMES.get(name, name): value for name, value in old.items() if name not in _OF_RUN}
    if group.pop("valid", True) is False and not group.get("invalid_reasons"):
        group["invalid_reasons"] = [_NO_REASON]
    if isinstance(spans := group.get("per_worker"), list):
        group["per_worker"] = [_rename_count(span) for span in spans]
    shared = {name: old[name] for name in _OF_RUN if name in old}
    return shared | {"groups": [{"role": role} | group]}


def _rename_count(span: Any) -> Any:
    if not isinstance(span, dict):
        return span
    return {"count" if name == "events" else name: value for name, value in span.items()}


def _join(shared: Mapping[str, Any], read: Any) -> Document:
    """What stood at the top of a query command's result, and what its readers had of their own."""
    group = _get_mapping(read, "reads.0")
    filled = {name: value for name, value in group.items() if value not in _NOTHING}
    return group | {name: value for name, value in shared.items() if value is not None} | filled


def _pair(writers: Sequence[Document], readers: Sequence[Document]) -> list[Document]:
    """Join writers and readers of the same number: they were at work in one run."""
    if not readers:
        return list(writers)
    runs = {str(run.get("run")): run for run in writers}
    for read in readers:
        if (run := runs.get(str(read.get("run")))) is not None:
            run["groups"] += read.pop("groups")
            for name, value in read.items():
                run[name] = value if run.get(name) in _NOTHING else run[name]
        else:
            runs[str(read.get("run"))] = read
    return list(runs.values())


def _gather_executions(executions: Sequence[Any], options: Any) -> Document:
    """A group of readers that asked each query a number of times, from its executions."""
    of_query: dict[str, list[Document]] = {}
    for number, run in enumerate(executions):
        execution = _get_mapping(run, f"runs.{number}")
        query = execution.pop("query", None)
        if not isinstance(query, str):
            raise WrongShapeError(f"runs.{number}.query: input should be a valid string")
        of_query.setdefault(query, []).append(execution)
    workers = options.get("workers") if isinstance(options, dict) else None
    queries = [_make_query(query, own) for query, own in of_query.items()]
    return {
        "workers": workers if isinstance(workers, int) else 1,
        "count": sum(query["executions"] for query in queries),
        "queries": queries,
    }


def _make_query(query: str, executions: list[Document]) -> Document:
    answered = [execution for execution in executions if execution.get("duration_s") is not None]
    errors = [
        execution.get("error") for execution in executions if execution.get("error") is not None
    ]
    rows = [execution["rows"] for execution in answered if isinstance(execution.get("rows"), int)]
    return {
        "query": query,
        "executions": len(answered),
        "errors": len(errors),
        "error": next(iter(errors), None),
        "rows_min": min(rows, default=None),
        "rows_max": max(rows, default=None),
        "each": executions,
    }
