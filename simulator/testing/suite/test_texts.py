"""Texts with characters that protocols escape, or end texts by: kept in events, tags and answers by each
client, or refused beforehand."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ...contract import StoredPart
from ...errors import OptionError
from ...modules.base import Encoding, await_count, connect
from ...modules.capabilities import find_refused_text
from ...oracle.answers import answer, compare_answers
from ...workloads.base import Workload
from ...workloads.drawing import Stored, bind
from ...workloads.queries import Query
from ...workloads.schema import ColumnType
from ..events import insert_with, make_texts, rows_of
from ..server import ServerUnderTest, batch_of, new_job
from .test_queries import prepare_queries

TEXTS = {
    "quotes": ['say "\\"', "it''s", "a\\, b=c d", "\\N", "$1 %s {} ?", "ﬀ", "🌡"],
    "tabs": ["\t", "a\tb", "\x0b", "\x1f\x85\u2028x"],
    "breaks": ["\n", "a\n,b", "back\\"],
    "returns": ["\r", "a\r\n,b", "c\r"],
}
COUNT = 40

kinds = pytest.mark.parametrize("kind", TEXTS)


def find_workload(server: ServerUnderTest, kind: str) -> Workload:
    """Events with these texts, also in columns of their own where the module has such."""
    can_hold = ColumnType.TEXT in server.module_type.CAPABILITIES.column_types
    return make_texts(TEXTS[kind], in_events=can_hold)


def check_stored(
    server: ServerUnderTest, workload: Workload, encoding: Encoding, options: Mapping[str, str]
) -> None:
    job = new_job(workload.schema, batch=batch_of(encoding, 10))
    with server.prepare(job, encoding) as observer:
        insert_with(server.module(job, encoding, options), workload, COUNT)
        assert await_count(observer.count, COUNT, observer.settle_s) == COUNT
    expected = sorted(rows_of(workload.block(0, 0, COUNT)))
    assert server.rows(workload.schema, workload.schema.table) == expected


@kinds
def test_texts_are_kept_or_refused(server: ServerUnderTest, kind: str) -> None:
    can, workload = server.module_type.CAPABILITIES, find_workload(server, kind)
    schema = workload.schema
    if not server.can_hold(schema):
        with pytest.raises(OptionError, match="use another value"):
            can.require_workload(schema, "texts", server.module_type.name)
        return
    for encoding in server.module_type.ENCODINGS:
        check_stored(server, workload, encoding, {})
    query = Query(name="all", events=tuple(column.name for column in schema.columns))
    if not schema.shapes_of(query) <= frozenset(can.shapes):
        return
    bound = bind(query, schema.epoch_ms)
    right = answer(bound, Stored(workload, [StoredPart(0, 0, COUNT)]))
    askers = [name for name, client in can.clients.items() if client.asker]
    for options in [{}, *({"client": name} for name in askers)]:
        with prepare_queries(server, workload, options) as module, connect(module.asker()) as asker:
            received = asker.send(asker.encode_statement(module.compile(bound)))
            assert received.rows == COUNT
            assert compare_answers(right, asker.decode(received)) is None


@kinds
def test_an_official_client_keeps_the_texts(
    server: ServerUnderTest, official_client: tuple[str, Encoding], kind: str
) -> None:
    client, encoding = official_client
    workload = find_workload(server, kind)
    if not server.can_hold(workload.schema):
        pytest.skip("refused, as tried above")
    if find_refused_text(
        server.module_type.CAPABILITIES.clients[client].refused_texts, workload.schema
    ):
        with pytest.raises(OptionError, match="use another value"):
            check_stored(server, workload, encoding, {"client": client})
    else:
        check_stored(server, workload, encoding, {"client": client})
