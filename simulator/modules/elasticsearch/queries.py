"""The workloads' queries in the servers' query language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ...workloads.base import FIRST_TIMESTAMP_MS, Column, ColumnType, Schema
from ...workloads.cpu import (
    HIGH_CPU_ABOVE,
    HIGH_CPU_UNTIL_MS,
    HOUR_MS,
    MAX_ALL_HOSTS,
    MAX_ALL_UNTIL_MS,
    METRICS,
)
from ..base import Query
from .server import Connection

# Buckets or documents in one page of an answer: the default of index.max_result_window, and well
# below that of search.max_buckets (65,536).
_PAGE = 10_000

# Without it, an answer from some of the shards would look like one from all.
_WHOLE = "allow_partial_search_results=false"


class Queries:
    """What is asked of one index."""

    def __init__(self, connect: Callable[[], Connection], index: str, schema: Schema) -> None:
        """`connect` is called when something is asked."""
        self._connect = connect
        self._index = index
        self._schema = schema

    def of_workload(self) -> Mapping[str, Query]:
        """Those of the schema's workload, in its order."""
        return {
            name: partial(QUERIES[name], self) for name in self._schema.queries if name in QUERIES
        }

    def count_events(self) -> list[tuple[Any, ...]]:
        """How many events there are."""
        answer = self._search({"size": 0, "track_total_hits": True})
        return [(answer["hits"]["total"]["value"],)]

    def stats(self, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
        """The statistics of these names, over all temperatures."""
        asked = {name: {name: {"field": "temperature"}} for name in wanted}
        found = self._search({"size": 0, "track_total_hits": False, "aggs": asked})["aggregations"]
        return [tuple(found[name]["value"] for name in wanted)]

    def stats_per_device(self) -> list[tuple[Any, ...]]:
        """Device, least, mean and greatest temperature."""
        stats = {"temperature": {"stats": {"field": "temperature"}}}
        return [
            (bucket["key"]["device_id"], *(bucket["temperature"][n] for n in ("min", "avg", "max")))
            for bucket in self._buckets(["device_id"], stats)
        ]

    def newest_per_device(self) -> list[tuple[Any, ...]]:
        """Each device's newest temperature."""
        return [
            (device, *values)
            for device, values in self._newest(Column("temperature", ColumnType.FLOAT32))
        ]

    def _newest(self, *columns: Column) -> Iterator[tuple[str, list[Any]]]:
        """Each device and these columns of its newest event.

        By top_hits, not the cheaper top_metrics, which only Elastic's own distribution has.
        """
        schema = self._schema
        names = [column.name for column in columns]
        newest = {
            "size": 1,
            "sort": [{schema.time: "desc"}],
            "_source": False,
            "docvalue_fields": names,
        }
        for bucket in self._buckets([schema.device], {"newest": {"top_hits": newest}}):
            [hit] = bucket["newest"]["hits"]["hits"]
            yield bucket["key"][schema.device], _read_values(hit, names)

    def cpu_max_all(self) -> list[tuple[Any, ...]]:
        """The greatest value of each metric per hour, over some hosts."""
        hours = {
            "date_histogram": {"field": "ts", "fixed_interval": f"{HOUR_MS}ms", "min_doc_count": 1},
            "aggs": {name: {"max": {"field": name}} for name in METRICS},
        }
        answer = self._search(
            {
                "size": 0,
                "track_total_hits": False,
                "query": require_all(
                    {"terms": {"tags.hostname": MAX_ALL_HOSTS}},
                    {"range": {"ts": {"gte": FIRST_TIMESTAMP_MS, "lt": MAX_ALL_UNTIL_MS}}},
                ),
                "aggs": {"hours": hours},
            }
        )
        return [
            (bucket["key"], *(bucket[name]["value"] for name in METRICS))
            for bucket in answer["aggregations"]["hours"]["buckets"]
        ]

    def high_cpu(self) -> list[tuple[Any, ...]]:
        """All events of hosts that were busy."""
        names = ["tags.hostname", "ts", *METRICS]
        question = {
            "size": _PAGE,
            "sort": ["_doc"],
            "_source": False,
            "docvalue_fields": names,
            "query": require_all(
                {"range": {"usage_user": {"gt": HIGH_CPU_ABOVE}}},
                {"range": {"ts": {"gte": FIRST_TIMESTAMP_MS, "lt": HIGH_CPU_UNTIL_MS}}},
            ),
        }
        return [tuple(_read_values(hit, names)) for hit in self._scroll(question)]

    def last_point(self) -> list[tuple[Any, ...]]:
        """Each host's newest event."""
        columns = [self._schema.column(name) for name in ("ts", *METRICS)]
        return [(host, *values) for host, values in self._newest(*columns)]

    def _search(self, question: Mapping[str, Any]) -> Any:
        return search(self._connect(), self._index, question)

    def _buckets(self, columns: Sequence[str], aggregations: Mapping[str, Any]) -> Iterator[Any]:
        return group_events(self._connect(), self._index, self._schema, columns, aggregations)

    def _scroll(self, question: Mapping[str, Any]) -> Iterator[Any]:
        """All hits, page by page (a scroll is never answered from the request cache)."""
        answer = self._connect().ask("POST", f"/{self._index}/_search?scroll=1m&{_WHOLE}", question)
        try:
            while hits := answer["hits"]["hits"]:
                yield from hits
                more = {"scroll": "1m", "scroll_id": answer["_scroll_id"]}
                answer = self._connect().ask("POST", "/_search/scroll", more)
        finally:
            self._connect().ask("DELETE", "/_search/scroll", {"scroll_id": answer["_scroll_id"]})


Rows = Sequence[tuple[Any, ...]]

QUERIES: Mapping[str, Callable[[Queries], Rows]] = {
    "count-events": Queries.count_events,
    "temperature-min-max": lambda queries: queries.stats(("min", "max")),
    "temperature-stats": lambda queries: queries.stats(("min", "avg", "max")),
    "temperature-stats-per-device": Queries.stats_per_device,
    "newest-per-device": Queries.newest_per_device,
    "cpu-max-all": Queries.cpu_max_all,
    "high-cpu": Queries.high_cpu,
    "last-point": Queries.last_point,
}


def find_field(schema: Schema, name: str) -> str:
    """The name of the field that holds a column's values."""
    if name == schema.device and schema.device_path:
        return f"{name}.{schema.device_path}"
    return name


def require_all(*conditions: Mapping[str, Any]) -> dict[str, Any]:
    """A query for what fits all conditions, unranked."""
    return {"bool": {"filter": list(conditions)}}


def _read_values(hit: Mapping[str, Any], names: Sequence[str]) -> list[Any]:
    """The values of a hit's docvalue_fields; dates come as text and become numbers."""
    fields = hit["fields"]
    return [int(v) if name == "ts" else v for name in names for v in fields[name]]


def search(connection: Connection, names: str, question: Mapping[str, Any]) -> Any:
    """Search without the request cache, whose answers would measure nothing."""
    return connection.ask("POST", f"/{names}/_search?request_cache=false&{_WHOLE}", question)


def group_events(
    connection: Connection,
    names: str,
    schema: Schema,
    columns: Sequence[str],
    aggregations: Mapping[str, Any],
    query: Mapping[str, Any] | None = None,
) -> Iterator[Any]:
    """The events grouped by columns, all groups, page by page."""
    groups: dict[str, Any] = {
        "size": _PAGE,
        "sources": [{name: {"terms": {"field": find_field(schema, name)}}} for name in columns],
    }
    question: dict[str, Any] = {"size": 0, "track_total_hits": False}
    if query:
        question["query"] = query
    while True:
        grouping: dict[str, Any] = {"composite": groups}
        if aggregations:
            grouping["aggs"] = aggregations
        answer = search(connection, names, question | {"aggs": {"groups": grouping}})
        found = answer["aggregations"]["groups"]
        yield from found["buckets"]
        if len(found["buckets"]) < _PAGE:
            return
        groups["after"] = found["after_key"]
