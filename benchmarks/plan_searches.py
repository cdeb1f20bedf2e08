"""Other forms of the common queries for Elasticsearch and OpenSearch, which have them in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import orjson

from simulator.modules.base import AnyModule
from simulator.modules.elasticsearch.paging import (
    GROUPS,
    Page,
    PageContent,
    Plan,
    Statement,
    write_tail,
)
from simulator.modules.elasticsearch.queries import PAGE, find_field
from simulator.modules.kit.series import Row
from simulator.worker import connect
from simulator.workloads.drawing import BoundQuery
from simulator.workloads.queries import HOUR_MS, Query

from .plan_forms import Form, find_bucket_ms

Tail = dict[str, Any]
Convert = Callable[[Any], Any]


class _Otherwise(Plan):
    """A compiled plan that is asked in another way, in one page; its answer is put into the compiled plan's
    form."""

    def __init__(self, plan: Plan, tail: Tail, convert: Convert) -> None:
        self.most = plan.most
        self.tail = write_tail(tail)
        self._plan = plan
        self._convert = convert

    def take(self, page: Page, before: int) -> PageContent:
        return PageContent(page.count_hits() or page.count_groups())

    def read(self, answers: Sequence[Any]) -> Sequence[Row]:
        return self._plan.read([self._convert(answers[0])])


def _keep(answer: Any) -> Any:
    return answer


def _form(
    module: AnyModule,
    ask: Callable[[Tail], Tail],
    convert: Convert = _keep,
    events: Callable[[Tail], Tail] = _keep,
) -> Form:
    """`ask` turns the second part of the compiled search into another; `events` does so with the first."""

    def compiled(bound: BoundQuery) -> Statement:
        statement = module.compile(bound)
        tail = ask(orjson.loads(b"{" + statement.plan.tail[1:]))
        return Statement(events(statement.events), _Otherwise(statement.plan, tail, convert))

    return Form(compiled)


def _grouped(buckets: Sequence[Any]) -> dict[str, Any]:
    return {GROUPS: {"buckets": buckets}}


def _list_newest(module: AnyModule) -> Iterator[tuple[str, Form]]:
    device = {"terms": {"field": find_field(module.job.schema, module.job.schema.device)}}

    def by_terms(tail: Tail) -> Tail:
        top_hits = {name: part for name, part in tail.items() if name != "collapse"} | {"size": 1}
        grouping = {"terms": device["terms"] | {"size": PAGE}}
        return {
            "size": 0,
            "aggs": {GROUPS: grouping | {"aggs": {"newest": {"top_hits": top_hits}}}},
        }

    def by_composite(tail: Tail) -> Tail:
        search = by_terms(tail)
        group = search["aggs"][GROUPS]
        del group["terms"]
        group["composite"] = {"sources": [{"device": device}], "size": PAGE}
        return search

    def read(answer: Any) -> Any:
        buckets = answer["aggregations"][GROUPS]["buckets"]
        return {"hits": {"hits": [bucket["newest"]["hits"]["hits"][0] for bucket in buckets]}}

    yield "terms, top_hits", _form(module, by_terms, read)
    yield "composite, top_hits", _form(module, by_composite, read)


def _list_events(module: AnyModule) -> Iterator[tuple[str, Form]]:
    def by_fields(tail: Tail) -> Tail:
        rest = {name: part for name, part in tail.items() if name != "stored_fields"}
        return rest | {"_source": False, "fields": rest.pop("docvalue_fields")}

    def by_source(tail: Tail) -> Tail:
        rest = {name: part for name, part in tail.items() if name != "stored_fields"}
        return rest | {"_source": rest.pop("docvalue_fields")}

    def read_source(answer: Any) -> Any:
        for hit in answer["hits"]["hits"]:
            pairs = hit["_source"].items()
            hit["fields"] = {name: [value] for name, value in pairs if value is not None}
        return answer

    def without_order(tail: Tail) -> Tail:
        return tail | {"sort": ["_doc"]}

    def rank(events: Tail) -> Tail:
        return events | {"query": {"bool": {"must": events["query"]["bool"]["filter"]}}}

    yield "fields", _form(module, by_fields)
    yield "_source", _form(module, by_source, read_source)
    yield "must", _form(module, _keep, events=rank)
    yield "sort by _doc", _form(module, without_order)


def _list_series(module: AnyModule, query: Query) -> Iterator[tuple[str, Form]]:
    """Forms of `downsample`."""

    def by_composite(tail: Tail) -> Tail:
        devices = tail["aggs"][GROUPS]
        times = devices["aggs"][GROUPS]
        histogram = dict(times["date_histogram"])
        del histogram["min_doc_count"]
        sources = [
            {"0": {"terms": {"field": devices["terms"]["field"]}}},
            {"1": {"date_histogram": histogram}},
        ]
        composite = {"sources": sources, "size": PAGE}
        return {"size": 0, "aggs": {GROUPS: {"composite": composite, "aggs": times["aggs"]}}}

    def read_composite(answer: Any) -> Any:
        buckets = answer["aggregations"][GROUPS]["buckets"]
        nested = [
            {"key": bucket["key"]["0"], **_grouped([{**bucket, "key": bucket["key"]["1"]}])}
            for bucket in buckets
        ]
        return {"aggregations": _grouped(nested)}

    def by_time(tail: Tail) -> Tail:
        devices = tail["aggs"][GROUPS]
        times = devices["aggs"].pop(GROUPS)
        devices["aggs"] = times["aggs"]
        return {"size": 0, "aggs": {GROUPS: {**times, "aggs": {GROUPS: devices}}}}

    def read_times(answer: Any) -> Any:
        nested = [
            {"key": bucket["key"], **_grouped([{**bucket, "key": time["key"]}])}
            for time in answer["aggregations"][GROUPS]["buckets"]
            for bucket in time[GROUPS]["buckets"]
        ]
        return {"aggregations": _grouped(nested)}

    yield "composite", _form(module, by_composite, read_composite)
    yield "times, then devices", _form(module, by_time, read_times)
    yield "hint map", _form(module, _hint_map)


def _hint_map(tail: Tail) -> Tail:
    tail["aggs"][GROUPS]["terms"]["execution_hint"] = "map"
    return tail


def _list_fleet(module: AnyModule, query: Query) -> Iterator[tuple[str, Form]]:
    """Forms of `fleet-downsample`."""

    def by_calendar(tail: Tail) -> Tail:
        histogram = tail["aggs"][GROUPS]["date_histogram"]
        del histogram["fixed_interval"]
        histogram["calendar_interval"] = "hour"
        return tail

    def by_composite(tail: Tail) -> Tail:
        group = tail["aggs"][GROUPS]
        histogram = group.pop("date_histogram")
        del histogram["min_doc_count"]
        group["composite"] = {"sources": [{"0": {"date_histogram": histogram}}], "size": PAGE}
        return tail

    if find_bucket_ms(query) == HOUR_MS:
        yield "calendar_interval", _form(module, by_calendar)
    yield "composite", _form(module, by_composite, _read_keys)


def _read_keys(answer: Any) -> Any:
    buckets = answer["aggregations"][GROUPS]["buckets"]
    return {"aggregations": _grouped([{**bucket, "key": bucket["key"]["0"]} for bucket in buckets])}


def _list_top(module: AnyModule, query: Query) -> Iterator[tuple[str, Form]]:
    """Forms of `top-devices`."""

    def by_all(tail: Tail) -> Tail:
        terms = tail["aggs"][GROUPS]["terms"]
        del terms["order"]
        terms["size"] = PAGE
        return tail

    def by_composite(tail: Tail) -> Tail:
        group = tail["aggs"][GROUPS]
        source = {"terms": {"field": group.pop("terms")["field"]}}
        group["composite"] = {"sources": [{"0": source}], "size": PAGE}
        return tail

    yield "all terms", _form(module, by_all)
    yield "composite", _form(module, by_composite, _read_keys)
    yield "hint map", _form(module, _hint_map)


def list_searches(
    module: AnyModule, query: Query, devices: Sequence[str]
) -> Iterator[tuple[str, Form]]:
    """Name and form."""
    if query.newest:
        if query.devices == "all":
            yield from _list_newest(module)
    elif query.events:
        yield from _list_events(module)
    elif query.name in _BY_NAME:
        yield from _BY_NAME[query.name](module, query)


_BY_NAME: Mapping[str, Callable[[AnyModule, Query], Iterator[tuple[str, Form]]]] = {
    "downsample": _list_series,
    "fleet-downsample": _list_fleet,
    "top-devices": _list_top,
}


def explain_search(module: Any, statement: Statement) -> str:
    """What the profile API says about a search: what finds and what collects, and the ms of each."""
    profiled = Statement(statement.events | {"profile": True}, statement.plan)
    asker = module.asker()
    with connect(asker):
        received = asker.ask(asker.encode_statement(profiled))
    _, [body, *_] = received.data
    lines: list[str] = []

    def add(part: Mapping[str, Any], depth: int) -> None:
        name = part.get("type") or part.get("name") or ""
        about = part.get("description") or part.get("reason") or ""
        took_ms = part["time_in_nanos"] / 1e6
        lines.append(f"{'  ' * depth}{name} {str(about)[:150]} {took_ms:.2f} ms")
        for inner in part.get("children", ()):
            add(inner, depth + 1)

    for shard in orjson.loads(body)["profile"]["shards"]:
        for search in shard["searches"]:
            for part in (*search["query"], *search["collector"]):
                add(part, 0)
        for part in (*shard["aggregations"], *([shard["fetch"]] if "fetch" in shard else [])):
            add(part, 0)
    return "\n".join(lines)
