"""Answers that need several searches: how each is counted, which search follows, and how all are read.

The first part of a search selects events; the second, the tail, says what to return. Only tails differ from
page to page.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import orjson

from ...errors import SimulatorError
from ...workloads.queries import Query
from ..kit.series import Row, put_in_order
from ..sending import explain_length, most_answer_bytes

Question = dict[str, Any]
Bucket = Mapping[str, Any]
"""A group in an answer."""

GROUPS = "groups"
"""The name of groups in a search, and the groups within them."""


_HIT, _BUCKET, _SORT = b'{"_index":"', b'"doc_count":', b'"sort":'
_GROUPED = b'"%s":{' % GROUPS.encode()
# Texts, numbers and the like, within one pair of brackets.
_FLAT = rb'(?:[^"\[\]{}]|"(?:[^"\\]|\\.)*")*'
_AFTER = re.compile(rb'"after_key":(\{%b\})' % _FLAT)
_SORTED = re.compile(rb'"sort":(\[%b\])' % _FLAT)


class ScannedPage:
    """A complete answer to a search, as bytes. They are searched for patterns that no text in them can
    contain, since its quotes would be escaped."""

    def __init__(self, body: bytes) -> None:
        self.content = body
        self.size = len(body)
        """The size in bytes; 0 if unknown."""

    def count_hits(self) -> int:
        """The number of events."""
        return self.content.count(_HIT)

    def count_groups(self) -> int:
        """The number of innermost groups."""
        # Each group but the innermost has groups within it, and so has the answer.
        above = self.content.count(_GROUPED)
        return self.content.count(_BUCKET) - above + 1 if above else 0

    def find_after(self) -> bytes:
        """The JSON after which the next groups begin."""
        match = _AFTER.search(self.content)
        if match is None:
            raise SimulatorError("an answer lacks the group after which the next ones follow")
        return match[1]

    def find_whole(self) -> tuple[int, bytes]:
        """The number of events whose sort values equal those of the last one, if there is one; and, as JSON,
        the sort values of the event before them, if there is one."""
        # From the end, since a page is long and few events are equal.
        at = self.content.rfind(_SORT)
        like_last = _SORT + self._read_sort(at)
        alike = 0
        while at >= 0 and self.content.startswith(like_last, at):
            alike += 1
            at = self.content.rfind(_SORT, 0, at)
        return alike, b"" if at < 0 else self._read_sort(at)

    def _read_sort(self, at: int) -> bytes:
        match = _SORTED.match(self.content, max(0, at))
        if match is None:
            raise SimulatorError("an answer lacks the sort values of its events")
        return match[1]


class ParsedPage:
    """The same, for an answer that a client has decoded."""

    size = 0

    def __init__(self, answer: Any) -> None:
        self.content = answer

    def count_hits(self) -> int:
        return len(self.content["hits"]["hits"])

    def count_groups(self) -> int:
        # The outermost groups: where there are pages, they have none within them.
        return len(self.content["aggregations"][GROUPS]["buckets"])

    def find_after(self) -> bytes:
        return orjson.dumps(self.content["aggregations"][GROUPS]["after_key"])

    def find_whole(self) -> tuple[int, bytes]:
        sorts = [hit["sort"] for hit in self.content["hits"]["hits"]]
        alike = sorts.count(sorts[-1])
        return alike, b"" if alike == len(sorts) else orjson.dumps(sorts[-alike - 1])


Page = ScannedPage | ParsedPage


# --- plans ----------------------------------------------------------------------------------------


class PageContent(NamedTuple):
    rows: int
    tail: bytes = b""
    """The tail of the next search; empty: there is none."""
    plan: Plan | None = None
    """The plan for reading it; earlier pages aren't read."""


class Plan(ABC):
    """What to search for, page by page."""

    FURTHER: ClassVar[str] = ""
    """How it continues after the first search, for people to read; empty: it doesn't."""
    tail: bytes
    most: int | None = None
    """The most rows in an answer."""

    @abstractmethod
    def take(self, page: Page, before: int) -> PageContent:
        """A page's result, and the next search; `before`: the number of rows before the page."""

    @abstractmethod
    def read(self, answers: Sequence[Any]) -> Sequence[Row]:
        """The rows of all pages. KeyError and the like if one isn't in the form of an answer."""


def write_tail(question: Question) -> bytes:
    """The end of a search."""
    return b"," + orjson.dumps(question)[1:]


class Totals(Plan):
    """A single row of values computed over all events."""

    def __init__(self, aggregations: Question, read: Callable[[Any], Row]) -> None:
        self.tail = write_tail({"size": 0, "aggs": aggregations})
        self._read = read

    def take(self, page: Page, before: int) -> PageContent:
        return PageContent(1)

    def read(self, answers: Sequence[Any]) -> Sequence[Row]:
        return [self._read(answers[0])]


class Groups(Plan):
    """Groups that come in one answer."""

    def __init__(
        self, query: Query, groups: Question, read: Callable[[Bucket], Iterable[Row]]
    ) -> None:
        """`read`: reads the aggregations over all events."""
        self.tail = write_tail({"size": 0, "aggs": groups})
        self.most = query.limit if query.order else None
        self._query = query
        self._read = read

    def take(self, page: Page, before: int) -> PageContent:
        return PageContent(page.count_groups())

    def read(self, answers: Sequence[Any]) -> Sequence[Row]:
        return put_in_order(self._query, self._read(answers[0]["aggregations"]))


class GroupPages(Plan):
    """Any number of groups, a page at a time."""

    FURTHER = "and so on with `after` while pages are full"

    def __init__(
        self,
        sources: Mapping[str, Question],
        aggregations: Question,
        read: Callable[[Bucket], Row],
        page: int,
        query: Query | None = None,
    ) -> None:
        """`sources`: by name, what events are grouped by; `read`: reads a group; `page`: groups per page;
        `query`: the rows' order and limit."""
        composite = {"sources": [{name: source} for name, source in sources.items()], "size": page}
        groups = {"aggs": aggregations, "composite": composite}
        self.tail = write_tail({"size": 0, "aggs": {GROUPS: groups}})
        self.most = query.limit if query and query.order else None
        self._read = read
        self._page = page
        self._query = query

    def take(self, page: Page, before: int) -> PageContent:
        rows = page.count_groups()
        if rows < self._page:
            return PageContent(rows)
        end = b"}}}}"
        return PageContent(
            rows, self.tail.removesuffix(end) + b',"after":' + page.find_after() + end
        )

    def read(self, answers: Sequence[Any]) -> Sequence[Row]:
        pages = (answer["aggregations"][GROUPS]["buckets"] for answer in answers)
        rows = [self._read(bucket) for page in pages for bucket in page]
        return rows if self._query is None else put_in_order(self._query, rows)


class EventPages(Plan):
    """Events in an order, a page at a time, without a context that the server would have to keep."""

    FURTHER = "and so on with `search_after` while pages are full"

    def __init__(
        self, question: Question, read: Callable[[Any], Row], page: int, limit: int | None
    ) -> None:
        """`question`: fields and their order; `read`: reads a hit; `page`: events per page."""
        self.most = limit
        self._begin = write_tail(question)[:-1]
        self._read = read
        self._page = page
        self.tail = b'%b,"size":%d}' % (self._begin, self._size(0))

    def _size(self, before: int) -> int:
        """The size of the page after `before` rows."""
        return self._page if self.most is None else min(self._page, self.most - before)

    def take(self, page: Page, before: int) -> PageContent:
        hits, size = page.count_hits(), self._size(before)
        if hits < size or before + hits == self.most:
            return PageContent(hits)
        # The page may end amid events with equal sort values: those come with the next page.
        alike, after = page.find_whole()
        if alike == hits:
            raise SimulatorError(f"at least {size:,} events have the same sort values")
        size = self._size(before + hits - alike)
        return PageContent(
            hits - alike, b'%b,"size":%d,"search_after":%b}' % (self._begin, size, after)
        )

    def read(self, answers: Sequence[Any]) -> Sequence[Row]:
        rows: list[Row] = []
        for number, answer in enumerate(answers, 1):
            hits = answer["hits"]["hits"]
            if number < len(answers):
                last = hits[-1]["sort"]
                hits = [hit for hit in hits if hit["sort"] != last]
            rows += map(self._read, hits)
        return rows


class Newest(Plan):
    """Each device's newest event, for as many devices as a page holds; a collapsed search has no further
    pages."""

    FURTHER = "and by groups, page by page, if there are more devices"

    def __init__(
        self, query: Query, question: Question, read: Callable[[Any], Row], page: int, more: Plan
    ) -> None:
        """`question`: fields, their order, and the field to collapse by; `read`: reads a hit; `more`: how to
        query further devices."""
        self.tail = write_tail({**question, "size": page})
        self.most = query.limit if query.order else None
        self._query = query
        self._read = read
        self._page = page
        self._more = more

    def take(self, page: Page, before: int) -> PageContent:
        hits = page.count_hits()
        # There may be more.
        return (
            PageContent(hits) if hits < self._page else PageContent(0, self._more.tail, self._more)
        )

    def read(self, answers: Sequence[Any]) -> Sequence[Row]:
        return put_in_order(self._query, map(self._read, answers[0]["hits"]["hits"]))


# --- fetching -------------------------------------------------------------------------------------


class Statement(NamedTuple):
    """A query, compiled."""

    events: Question
    """The first part of each search, which selects events."""
    plan: Plan

    @property
    def begin(self) -> bytes:
        """The first part as bytes."""
        return orjson.dumps(self.events)[:-1]


class Pages:
    """The pages of an answer so far, and the plan for reading them."""

    def __init__(self, begin: bytes, plan: Plan) -> None:
        """`begin`: the first part of each search; `plan`: of the first one."""
        self.plan = plan
        self.contents: list[Any] = []
        self.rows = 0
        self.size = 0
        """The size in bytes, including pages that aren't read."""
        self._begin = begin

    def add(self, page: Page) -> bytes:
        """Add the next page. Returns the next search, or empty after the last page. SimulatorError if there
        are too many pages for memory or their events can't be told apart."""
        self.size += page.size
        if self.size > most_answer_bytes():
            raise explain_length(self.size)
        taken = self.plan.take(page, self.rows)
        if taken.plan is None:
            self.contents.append(page.content)
            self.rows += taken.rows
        else:
            self.plan, self.contents, self.rows = taken.plan, [], 0
        if taken.tail:
            return self._begin + taken.tail
        if self.plan.most is not None:
            self.rows = min(self.rows, self.plan.most)
        return b""
