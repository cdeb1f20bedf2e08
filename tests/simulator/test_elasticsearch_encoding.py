"""Requests of Elasticsearch, taken apart again by json."""

from __future__ import annotations

import json
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

from simulator.contract import Load, PrimaryKey, Tables
from simulator.encoding.columns import client_keys, escape_json
from simulator.errors import OptionError
from simulator.modules.base import Job
from simulator.modules.elasticsearch import MODES, Elasticsearch, ElasticsearchOptions
from simulator.modules.elasticsearch.encoding import DocumentEncoder, Documents
from simulator.modules.elasticsearch.official import configure_nodes
from simulator.modules.elasticsearch.server import Connection, ElasticsearchWriter
from simulator.modules.kit.http_answer import Answer
from simulator.modules.options import InsertMode, parse_options, parse_payload_options
from simulator.modules.sending import Request
from simulator.testing.events import TEXTS, Awkward, Row, normalise, rows_of
from simulator.workloads.base import Workload
from simulator.workloads.temperature import Temperature

from .encoded import each_kind, make_events


def encoder(job: Job, mode: InsertMode) -> DocumentEncoder:
    return DocumentEncoder(job, mode, [f"my-{table}-write" for table in job.table_names])


def parse_payload(payload: Request) -> list[tuple[str, str, str | None, dict[str, Any]]]:
    """Each document's action, index, id and content. Checks the form of the request."""
    [request] = payload.data
    parts = urlsplit(request.target)
    path = parts.path.strip("/").split("/")
    assert "require_alias=true" in parts.query
    if path[-1] != "_bulk":
        assert b"\n" not in request.body
        document = json.loads(request.body)
        if path[1] == "_doc":
            assert (request.method, len(path)) == ("POST", 2)
            return [("index", path[0], None, document)]
        assert (request.method, len(path), path[1]) == ("PUT", 3, "_create")
        return [("create", path[0], unquote(path[2]), document)]
    assert request.method == "POST"
    assert request.body.endswith(b"\n")
    lines = [json.loads(line) for line in request.body.split(b"\n")[:-1]]
    documents = []
    for action, document in zip(lines[::2], lines[1::2], strict=True):
        [(name, meta)] = action.items()
        alias = meta.pop("_index", path[0])
        documents.append((name, alias, meta.pop("_id", None), document))
        assert not meta
    return documents


def rows(workload: Workload, payloads: list[Request]) -> list[Row]:
    names = [column.name for column in workload.schema.columns]
    documents = [document for payload in payloads for *_, document in parse_payload(payload)]
    assert all(list(document) == names for document in documents)
    return normalise(workload.schema, [list(document.values()) for document in documents])


@each_kind
@pytest.mark.parametrize("key", [PrimaryKey.DB, PrimaryKey.CLIENT])
@pytest.mark.parametrize("tables", Tables)
@pytest.mark.parametrize("batch", [0, 1, 5, 100])
def test_documents_are_the_events(
    kind: type[Workload], key: PrimaryKey, tables: Tables, batch: int
) -> None:
    workload, block, job = make_events(kind, batch=batch, primary_key=key, tables=tables)
    mode = InsertMode.BULK if batch else InsertMode.SINGLE
    payloads = encoder(job, mode).encode(block)

    assert rows(workload, payloads) == rows_of(block)
    sizes = [len(parse_payload(payload)) for payload in payloads]
    assert sizes == [payload.events for payload in payloads]
    assert sizes == [len(payload.data[0].rows) for payload in payloads]
    assert max(sizes) == min(batch or 1, 91)
    assert [payload.last for payload in payloads] == [int(end) - 1 for end in np.cumsum(sizes)]

    actions = [action for payload in payloads for action in parse_payload(payload)]
    names = [f"my-{table}-write" for table in job.table_names]
    aliases = [alias for _, alias, _, _ in actions]
    assert aliases == [names[number % len(names)] for number in range(7, 98)]
    keys = [document_id for _, _, document_id, _ in actions]
    if key is PrimaryKey.CLIENT:
        assert keys == [client_key.decode() for client_key in client_keys(block).tolist()]
    assert {action for action, *_ in actions} == {"create" if key is PrimaryKey.CLIENT else "index"}
    assert (set(keys) == {None}) == (key is PrimaryKey.DB)


def test_a_bulk_body_byte_by_byte() -> None:
    """No blanks, two decimals, as for every other database."""
    block = Temperature(seed=4).block(0, 0, 1)
    (payload,) = encoder(Job(block.schema, Load(batch=1)), InsertMode.BULK).encode(block)
    [(time, device, number, value)] = rows_of(block)
    assert payload.data[0].body.decode() == (
        '{"index":{}}\n'
        f'{{"timestamp":{time},"device_id":"{device}","sequence_number":{number},'
        f'"temperature":{value:.2f}}}\n'
    )


class Answers:
    """A connection that has one answer to everything."""

    def __init__(self, status: int, body: bytes) -> None:
        self._answer = Answer(status, body, [])

    def write(self, _request: Documents, _name: str) -> Answer:
        return self._answer


@pytest.mark.parametrize("mode", MODES)
def test_what_the_servers_have_sent_again_among_themselves_is_stored(mode: InsertMode) -> None:
    """As when a node goes away: each event is there once, and is said to have been updated (200)."""
    workload = Temperature(device_spread=3)
    size = 3 if mode is InsertMode.BULK else 1
    job = Job(workload.schema, Load(batch=3 if mode is InsertMode.BULK else 0))
    (payload,) = encoder(job, mode).encode(workload.block(0, 0, size))
    items = ",".join(f'{{"index":{{"status":{status}}}}}' for status in (201, 200, 200))
    answer = f'{{"errors":false,"items":[{items}]}}' if mode is InsertMode.BULK else "{}"
    options = parse_options(ElasticsearchOptions, {"endpoint": "http://localhost"}, str)
    writer = ElasticsearchWriter(Elasticsearch(options, job))
    writer._connection = cast(Connection, Answers(200, answer.encode()))
    writer._own.name = "a thread"
    assert writer.send(payload) == size


@pytest.mark.parametrize("kept", [[], [0], [3, 1], [0, 1, 2, 3]])
def test_what_is_sent_again_is_the_rest(kept: list[int]) -> None:
    block = Temperature().block(0, 0, 4)
    job = Job(block.schema, Load(batch=4, primary_key=PrimaryKey.CLIENT))
    (payload,) = encoder(job, InsertMode.BULK).encode(block)
    before = parse_payload(payload)
    [request] = payload.data
    request.rows = (10, 11, 12, 13)
    request.keep(kept, payload)
    assert list(request.rows) == [10 + position for position in kept]
    assert request.stored == 4 - len(kept)
    if kept:
        assert parse_payload(payload) == [before[position] for position in kept]


def test_a_json_documents_line_breaks_are_no_ends_of_lines() -> None:
    workload = Awkward()
    block = workload.block(0, 0, 1)
    columns = dict(block.columns) | {"document": np.array([b'{\n"a":\r\n[1,\n2]}'])}
    pretty = type(block)(block.schema, 0, 0, columns, block.devices)
    (payload,) = encoder(Job(block.schema, Load(batch=1)), InsertMode.BULK).encode(pretty)
    [(_, _, _, document)] = parse_payload(payload)
    assert document["document"] == {"a": [1, 2]}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_escaped_where_they_must_be(text: str) -> None:
    column = np.array([b"plain", text.encode()])
    escaped = escape_json(column).tolist()
    assert json.loads(b'"' + escaped[1] + b'"') == text
    plain = json.dumps(text, ensure_ascii=False) == f'"{text}"'
    assert (escape_json(column) is column) == plain


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"endpoint": "elastic:9200"}, "option endpoint: must be a URL like https://"),
        ({"endpoint": "http://"}, "option endpoint: must be a URL"),
        ({"endpoint": "http://host:99999"}, "option endpoint: must be a URL"),
        ({"endpoint": "http://host/?x=1"}, "option endpoint: must be a URL"),
        ({"endpoint": "http://me:hush@host"}, "must not contain a user or password"),
        ({"endpoint": ""}, "option endpoint:"),
        ({"endpoint": "http://host", "username": "me"}, "go together"),
        ({"endpoint": "http://host", "password": "hush"}, "go together"),
        (
            {"endpoint": "http://host", "username": "me", "password": "hush", "api_key": "hush"},
            "either username and password or api_key",
        ),
        ({"endpoint": "http://host", "index_prefix": "Events"}, "option index_prefix:"),
        ({"endpoint": "http://host", "index_prefix": "-x"}, "option index_prefix:"),
        ({"endpoint": "http://host", "refresh_interval": "30"}, "option refresh_interval:"),
        ({"endpoint": "http://host", "shards": "0"}, "option shards:"),
        ({"endpoint": "http://host", "flavor": "solr"}, "option flavor:"),
    ],
)
def test_options_that_can_not_work(values: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse_options(ElasticsearchOptions, values, lambda _: "target x")
    assert str(refused.value).startswith("target x: ")
    assert problem in str(refused.value)
    assert "hush" not in str(refused.value)


def test_nodes_are_reached_as_the_options_say() -> None:
    values = {
        "endpoint": "http://one, https://two:9201/es/ ,http://[::1]:9202",
        "username": "me",
        "password": "hush",
    }
    options = parse_options(ElasticsearchOptions, values, str)
    nodes = configure_nodes(options)
    assert [(node.scheme, node.host, node.port, node.path_prefix) for node in nodes] == [
        ("http", "one", 9200, ""),
        ("https", "two", 9201, "/es"),
        ("http", "::1", 9202, ""),
    ]
    for node in nodes:
        assert node.headers["authorization"] == "Basic bWU6aHVzaA=="
    assert options.server == "one:9200, two:9201, [::1]:9202"
    assert options.public()["password"] == "***"


def test_an_encoder_needs_no_endpoint() -> None:
    """`blackhole` asks with these options alone."""
    options = parse_payload_options(ElasticsearchOptions, {"index_prefix": "mine-"})
    assert (options.index("events"), options.alias("events")) == (
        "mine-events",
        "mine-events-write",
    )
