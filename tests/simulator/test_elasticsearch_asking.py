"""Searches without a server: bodies that are made from templates, pages that are counted and followed, broken
answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import orjson
import pytest

from simulator.errors import Retryable, SimulatorError
from simulator.modules.base import Job
from simulator.modules.elasticsearch import Elasticsearch, ElasticsearchOptions
from simulator.modules.elasticsearch.paging import (
    EventPages,
    GroupPages,
    Groups,
    Newest,
    Page,
    PageContent,
    ParsedPage,
    Plan,
    ScannedPage,
    Statement,
)
from simulator.modules.elasticsearch.server import ElasticsearchAsker
from simulator.modules.options import parse_options
from simulator.testing.events import Sundry
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.queries import Query
from simulator.workloads.schema import Schema
from simulator.workloads.temperature import Temperature

from .bounds import draw_blocks
from .test_http import Scripted, answers

WORKLOADS = [Temperature(device_spread=9), Sundry(), load_workload("machines")(device_spread=9)]


def make_module(schema: Schema, endpoint: str = "http://nowhere") -> Elasticsearch:
    values = {"endpoint": endpoint, "flavor": "opensearch"}
    return Elasticsearch(parse_options(ElasticsearchOptions, values, str), Job(schema))


@pytest.mark.parametrize("workload", WORKLOADS, ids=["temperature", "sundry", "machines"])
def test_searches_ask_what_is_compiled(workload: Workload) -> None:
    """Each execution is asked for as if it were compiled alone."""
    module = make_module(workload.schema)
    asker = ElasticsearchAsker(module, 1)
    differing = 0
    for bounds in draw_blocks(workload):
        requests = list(asker.encode(bounds))
        alone = [asker.encode_statement(module.compile(bound)) for bound in bounds]
        assert [request[:5] for request in requests] == [request[:5] for request in alone]
        assert {type(request.plan) for request in requests} == {
            type(request.plan) for request in alone
        }
        assert json.loads(requests[0].body)
        differing += len({request.body for request in requests}) > 1
    assert differing > 3


# --- pages ----------------------------------------------------------------------------------------

LURE = r"]}\"sort\":[9],\"doc_count\":1,{\"_index\":\"\"groups\":{"
"""A text, as JSON, with all that is counted and looked for."""


def make_hits(*sorts: Any) -> bytes:
    hits = b",".join(
        b'{"_index":"i","_score":null,"fields":{"a":["%b"]},"sort":%b}'
        % (LURE.encode(), orjson.dumps(sort))
        for sort in sorts
    )
    return b'{"took":1,"hits":{"max_score":null,"hits":[%b]}}' % hits


def make_groups(*keys: str, after: str = "") -> bytes:
    after_key = b'"after_key":{"0":"%b"},' % after.encode() if after else b""
    buckets = b",".join(b'{"key":{"0":"%b"},"doc_count":3}' % key.encode() for key in keys)
    begin = b'{"took":1,"hits":{"hits":[]},"aggregations":{"groups":'
    return begin + b'{%b"buckets":[%b]}}}' % (after_key, buckets)


def both(body: bytes) -> list[Page]:
    return [ScannedPage(body), ParsedPage(json.loads(body))]


def test_pages_are_counted_whatever_texts_look_like() -> None:
    for page in both(make_hits([1, "a"], [2, LURE.replace("\\", "")], [3, "c"])):
        assert page.count_hits() == 3
    for page in both(make_groups("a", LURE, after=LURE)):
        assert page.count_groups() == 2
        assert json.loads(page.find_after()) == {"0": LURE.replace("\\", "")}
    assert ScannedPage(b'{"hits":{"hits":[]}}').count_groups() == 0


def test_nested_groups_count_by_the_innermost() -> None:
    inner = b'"groups":{"buckets":[{"key":1,"doc_count":2},{"key":2,"doc_count":1}]}'
    body = b'{"aggregations":{"groups":{"doc_count_error_upper_bound":0,"buckets":[%b,%b]}}}' % (
        b'{"key":"a","doc_count":3,%b}' % inner,
        b'{"key":"b","doc_count":3,%b}' % inner,
    )
    assert ScannedPage(body).count_groups() == 4


def events(page: int, limit: int | None = None) -> Plan:
    return EventPages({"sort": []}, lambda hit: (hit["sort"][0],), page, limit)


def test_events_go_on_behind_the_last_that_is_whole() -> None:
    body = make_hits([1, "a"], [2, "a"], [2, "a"])
    plan = events(3)
    tail = b',"sort":[],"size":3'
    assert plan.tail == tail + b"}"
    for page in both(body):
        rows, following, next_plan = plan.take(page, 0)
        assert (rows, next_plan) == (1, None)
        assert json.loads(b"{" + following[1:])["search_after"] == [1, "a"]
    answers = [json.loads(body), json.loads(make_hits([2, "a"], [2, "a"]))]
    assert plan.read(answers) == [(1,), (2,), (2,)]
    assert plan.take(ScannedPage(make_hits([2, "a"], [2, "a"])), 1) == PageContent(2)
    for page in both(make_hits([2], [2], [2])):
        with pytest.raises(SimulatorError, match="at least 3 events have the same sort values"):
            plan.take(page, 0)


def test_events_end_at_a_limit() -> None:
    plan = events(3, limit=4)
    rows, following, _ = plan.take(ScannedPage(make_hits([1], [2], [3])), 0)
    assert (rows, following) == (2, b',"sort":[],"size":2,"search_after":[2]}')
    assert plan.take(ScannedPage(make_hits([3], [4])), 2) == PageContent(2)
    assert events(3, limit=3).take(ScannedPage(make_hits([1], [2], [3])), 0) == PageContent(3)


def group_pages(page: int, query: Query | None = None) -> GroupPages:
    return GroupPages({"0": {}}, {}, lambda group: (group["key"]["0"],), page, query)


def test_groups_go_on_behind_the_last() -> None:
    plan = group_pages(2)
    rows, following, _ = plan.take(ScannedPage(make_groups("a", "b", after="b")), 0)
    assert rows == 2
    composite = json.loads(b"{" + following[1:])["aggs"]["groups"]["composite"]
    assert composite == {"sources": [{"0": {}}], "size": 2, "after": {"0": "b"}}
    assert plan.take(ScannedPage(make_groups("c", after="c")), 2) == PageContent(1)


def test_more_devices_than_a_page_holds_are_asked_for_by_groups() -> None:
    query = Query.model_validate({"name": "q", "events": ["a"], "newest": True})
    groups = group_pages(2)
    plan = Newest(query, {"sort": []}, tuple, 2, groups)
    assert plan.take(ScannedPage(make_hits([1])), 0) == PageContent(1)
    assert plan.take(ScannedPage(make_hits([1], [2])), 0) == PageContent(0, groups.tail, groups)


# --- answers --------------------------------------------------------------------------------------


def answer_of(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


@contextmanager
def asking(*bodies: bytes) -> Iterator[ElasticsearchAsker]:
    """An open asker of a server that answers with these bodies."""
    letting_in = answers(answer_of(b'{"version":{"number":"2.19.4"}}'))
    with closing(Scripted(letting_in, answers(*map(answer_of, bodies)))) as server:
        module = make_module(Temperature.schema, f"http://{server.address}")
        with closing(ElasticsearchAsker(module, 1)) as asker:
            asker.open()
            asker.database.close()
            yield asker


SHARDS = b'"_shards":{"total":3,"successful":3,"skipped":0,"failed":0}'
GOOD = b'{"took":5,"timed_out":false,%b,"hits":{"max_score":null,"hits":[]},' % SHARDS + (
    b'"aggregations":{"groups":{"buckets":[{"key":"a","doc_count":3},{"key":"b","doc_count":1}]}}}'
)
QUERY = Query.model_validate(
    {"name": "q", "per": ["device_id"], "compute": [{"function": "count"}]}
)
STATEMENT = Statement(
    {"track_total_hits": False},
    Groups(
        QUERY,
        {},
        lambda aggregations: [(bucket["key"],) for bucket in aggregations["groups"]["buckets"]],
    ),
)


def test_an_answer_is_counted_and_read() -> None:
    with asking(GOOD) as asker:
        received = asker.ask(asker.encode_statement(STATEMENT))
        assert received[:2] == (2, len(GOOD))
        assert asker.decode(received) == [("a",), ("b",)]


BROKEN: list[tuple[bytes, type[Exception], str]] = [
    (GOOD.replace(b'out":false', b'out":true'), SimulatorError, "ended a search at its time limit"),
    (
        GOOD.replace(
            b'"failed":0',
            b'"failed":1,"failures":[{"shard":0,"reason":{"type":"es_rejected","reason":"full"}}]',
        ),
        Retryable,
        "1 of 3 shards failed: es_rejected: full",
    ),
    (GOOD[:-1], SimulatorError, "incomplete answer"),
    (GOOD[:90], SimulatorError, "incomplete answer"),
    (b'{"took":5,"timed_out":false}', SimulatorError, "unreadable answer"),
    (b"<html>", SimulatorError, "incomplete answer"),
]


@pytest.mark.parametrize(("body", "kind", "said"), BROKEN)
def test_an_answer_that_is_no_success_ends_its_own_question(
    body: bytes, kind: type[Exception], said: str
) -> None:
    with asking(body, GOOD) as asker:
        request = asker.encode_statement(STATEMENT)
        with pytest.raises(kind, match=said) as refused:
            asker.ask(request)
        assert "\n" not in str(refused.value)
        # And no other.
        assert asker.ask(request).rows == 2


def test_an_answer_that_is_not_what_was_asked_for_is_told_when_it_is_read() -> None:
    body = b'{"took":5,"timed_out":false,%b,"hits":{"hits":[]}}' % SHARDS
    with asking(body) as asker:
        received = asker.ask(asker.encode_statement(STATEMENT))
        with pytest.raises(SimulatorError, match="it has no 'aggregations'"):
            asker.decode(received)
