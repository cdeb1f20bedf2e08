"""What the suite doesn't ask of Elasticsearch and OpenSearch: TLS, refused documents, large answers, …"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.contract import PrimaryKey, StoredPart, Tables
from simulator.errors import SimulatorError
from simulator.modules.base import Job
from simulator.modules.elasticsearch import queries
from simulator.modules.elasticsearch.server import ElasticsearchWriter
from simulator.modules.sending import Request
from simulator.oracle.answers import answer_all, compare_answers
from simulator.testing.events import insert, insert_with, rows_of
from simulator.testing.server import ServerUnderTest, new_job
from simulator.testing.suite.test_answers import list_askable, list_queries
from simulator.worker import connect
from simulator.workloads import load_workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import Stored, draw
from simulator.workloads.queries import Query
from simulator.workloads.temperature import Temperature

from ..helpers import eventually
from .elasticsearch import SearchUnderTest
from .http_server import count_inserted, prepare

pytestmark = pytest.mark.module("elasticsearch")


@pytest.fixture
def search(server: ServerUnderTest) -> SearchUnderTest:
    assert isinstance(server, SearchUnderTest)
    return server


def stored(search: SearchUnderTest, job: Job) -> list[Any]:
    return search.rows(job.schema, *job.table_names)


# --- getting in -----------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["text", "file", "nobody"])
def test_credentials_over_tls(search: SearchUnderTest, trust: str, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(search.trusted)
    trusting: dict[str, dict[str, Any]] = {
        "text": {"ca_certs": search.trusted},
        "file": {"ca_certs": str(file)},
        "nobody": {"verify_certs": False},
    }
    way_in = {"endpoint": search.guarded, "username": "elastic", "password": "right"}
    options = trusting[trust] | way_in
    job = new_job(Temperature.schema, batch=10)
    assert count_inserted(search, job, 20, **options) == 20


def test_a_certificate_file_that_is_none(search: SearchUnderTest, tmp_path: Path) -> None:
    options = {"endpoint": search.guarded, "ca_certs": str(tmp_path / "absent.pem")}
    with pytest.raises(SimulatorError, match="ca_certs can't be used"):
        search.module(new_job(Temperature.schema), options=options).open()


def test_a_server_of_the_other_kind_is_told(search: SearchUnderTest) -> None:
    flavor = search.options["flavor"]
    other = "opensearch" if flavor == "elasticsearch" else "elasticsearch"
    with pytest.raises(SimulatorError, match=r"leave flavor out|set flavor: opensearch"):
        search.module(new_job(Temperature.schema), options={"flavor": other}).open()


# --- indices --------------------------------------------------------------------------------------


def test_indices_are_made_as_the_options_say(search: SearchUnderTest) -> None:
    options = {"shards": 2, "replicas": 0, "refresh_interval": "-1"}
    job = new_job(Temperature.schema)
    prepare(search, job, **options)
    module = search.module(job, options=options)
    module.open()
    info = module.server_info()
    module.close()
    assert info["settings"]["nodes"] == len(search.urls)
    shown = {name: str(value).lower() for name, value in info["settings"].items()}
    assert shown["index.number_of_shards"] == "2"
    assert shown["index.number_of_replicas"] == "0"
    assert shown["index.refresh_interval"] == "-1"
    # What an acknowledgement means: synced to disk on every copy that is there.
    assert shown["index.translog.durability"] == "request"
    assert info["version"].startswith(search.options["flavor"])


def test_events_count_though_nothing_makes_them_visible(search: SearchUnderTest) -> None:
    job = new_job(Temperature.schema, batch=10)
    prepare(search, job, refresh_interval="-1")
    insert_with(search.module(job), Temperature(), 20)
    module = search.module(job)
    module.open()
    assert module.count() == 20
    assert module.fetch(module.queries()["count-events"]) == [(20,)]
    module.close()


@pytest.mark.parametrize("batch", [0, 5])
def test_an_index_that_goes_away_is_not_made_up(search: SearchUnderTest, batch: int) -> None:
    """By itself, a server would make another one, with a mapping that it guesses."""
    job = new_job(Temperature.schema, batch=batch)
    prepare(search, job)
    with (
        connect(search.module(job).writer()) as writer,
        pytest.raises(SimulatorError, match=r"index_not_found.*the table was dropped"),
    ):
        insert(writer, Temperature(), 10, before={1: search.clear})
    assert not search.tables()


def test_attributes_can_be_searched_by(search: SearchUnderTest) -> None:
    workload = Cpu(device_spread=3, extra_tags=1000)
    job = new_job(workload.schema, batch=10)
    prepare(search, job)
    insert_with(search.module(job), workload, 10)
    assert len(stored(search, job)) == 10
    index = f"{search.prefix}cpu"
    for attribute, hosts in (("hostname", "w00000d000001"), ("tag_999", "value_0")):
        question = {"query": {"term": {f"tags.{attribute}": hosts}}}
        assert search.ask("POST", f"/{index}/_count", question)["count"] == 3


# --- refusals of single documents -----------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, 5])
def test_a_refused_document_ends_the_run_and_says_why(search: SearchUnderTest, batch: int) -> None:
    """A bulk request is answered with 200 even if one of its documents is refused."""
    job = new_job(Temperature.schema, batch=batch)
    index = f"{search.prefix}events"
    fields = {"temperature": {"type": "ip"}}
    mapping = {"mappings": {"properties": fields}}
    search.ask("PUT", f"/{index}", mapping | {"aliases": {f"{index}-write": {}}})
    with (
        connect(search.module(job).writer()) as writer,
        pytest.raises(SimulatorError, match=r"pars\w+_exception: .*failed to parse field .temp"),
    ):
        insert(writer, Temperature(), 5)
    assert not stored_count(search, index)


def stored_count(search: SearchUnderTest, index: str) -> int:
    search.ask("POST", f"/{index}/_refresh")
    return int(search.ask("POST", f"/{index}/_count")["count"])


@pytest.mark.parametrize("batch", [0, 5])
def test_an_event_of_an_earlier_run_is_no_success(search: SearchUnderTest, batch: int) -> None:
    """A conflict means that a document is stored only if an earlier try can have done it."""
    job = new_job(Temperature.schema, batch=batch, primary_key=PrimaryKey.CLIENT)
    prepare(search, job)
    insert_with(search.module(job), Temperature(), 7)
    with pytest.raises(SimulatorError, match="an earlier run has stored the event"):
        insert_with(search.module(job), Temperature(), 7, first=6)


# --- exactly once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [PrimaryKey.DB, PrimaryKey.CLIENT])
def test_a_request_that_the_server_still_works_on_is_waited_for(
    search: SearchUnderTest, key: PrimaryKey
) -> None:
    """The client is cut off while the server stores a request of thousands of events."""
    job = new_job(Temperature.schema, batch=20_000, primary_key=key)
    prepare(search, job)
    states: list[bool] = []

    def cut_later() -> None:
        search.proxy.fate = "cut while it works"

    def note() -> None:
        # Whether the race that this is about took place; it is won either way.
        states.append(bool(at_work(search)))

    with connect(search.module(job).writer()) as writer:
        recorder = insert(writer, Temperature(), 20_000, before={0: cut_later}, abort=note)
    # More often than once on a machine that takes longer than one retry waits.
    assert set(recorder.errors) == {"connection_lost"}
    assert states
    # The last answer may be here before the server calls its work done. What else was at work could
    # still add to the count.
    eventually(lambda: not at_work(search), "end of all the server's work")
    assert stored_count(search, f"{search.prefix}events") == 20_000


def at_work(search: SearchUnderTest) -> list[Any]:
    answer = search.ask("GET", "/_tasks?actions=indices:data/write/bulk")
    return [task for node in answer["nodes"].values() for task in node["tasks"].values()]


@pytest.mark.parametrize("key", [PrimaryKey.DB, PrimaryKey.CLIENT])
@pytest.mark.parametrize("fate", ["drop request", "drop answer"])
def test_exactly_once_with_requests_in_flight(
    search: SearchUnderTest, key: PrimaryKey, fate: Any
) -> None:
    workload = Temperature(device_spread=3)
    job = new_job(
        workload.schema, batch=5, primary_key=key, tables=Tables.MULTIPLE, run_id="in-flight"
    )
    prepare(search, job)

    def trigger() -> None:
        search.proxy.fate = fate

    with connect(search.module(job, options={"max_in_flight": 4}).writer()) as writer:
        recorder = insert(writer, workload, 400, before={20: trigger})
        names = {line.last("x-opaque-id") for line in search.proxy.lines("x-opaque-id", "iot-benc")}
    assert stored(search, job) == sorted(rows_of(workload.block(0, 0, 400)))
    assert recorder.errors == {"connection_lost": 1}
    assert recorder.retries == 1
    # Several at once, which the server can tell apart.
    assert len({name for name in names if "in-flight" in name}) > 1


def test_only_what_is_missing_is_sent_again(search: SearchUnderTest) -> None:
    """After a request in doubt that was stored in part, as when a node dies in the middle of it."""
    workload = Temperature(device_spread=3)
    job = new_job(workload.schema, batch=8, tables=Tables.MULTIPLE)
    prepare(search, job)
    block = workload.block(0, 0, 8)
    with connect(search.module(job).writer()) as writer:
        assert isinstance(writer, ElasticsearchWriter)
        for rows in ([6, 1, 4], [0]):
            # Some of its events by another request.
            (payload,) = writer.encoder.encode(block)
            [request] = payload.data
            request.keep(rows, payload)
            send(writer, payload)
        (payload,) = writer.encoder.encode(block)
        writer.doubt(payload.data[0], "nobody")
        assert not writer.settle(payload)
        assert list(payload.data[0].rows) == [2, 3, 5, 7]
        assert send(writer, payload) == 8
        (payload,) = writer.encoder.encode(block)
        writer.doubt(payload.data[0], "nobody")
        assert writer.settle(payload)
    assert stored(search, job) == sorted(rows_of(block))


def send(writer: ElasticsearchWriter, payload: Request) -> int:
    return writer.send(payload)


# --- queries --------------------------------------------------------------------------------------


def open_filled(search: SearchUnderTest, workload: Any) -> Any:
    """The module, ready to be asked about 50 events."""
    job = new_job(workload.schema, batch=50)
    prepare(search, job)
    insert_with(search.module(job), workload, 50)
    module = search.module(job)
    module.open()
    module.prepare_queries()
    return module


def test_all_pages_of_an_answer_are_fetched(
    search: SearchUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE", 4)
    for workload, answers in (
        (Temperature(device_spread=9), {"temperature-stats-per-device": 9, "newest-per-device": 9}),
        (Temperature(device_spread=8), {"newest-per-device": 8}),
        (Cpu(device_spread=10), {"last-point": 10, "high-cpu": 6}),
    ):
        module = open_filled(search, workload)
        statements = module.queries()
        for name, rows in answers.items():
            assert len(module.fetch(statements[name])) == rows, name
        module.close()


def test_a_page_may_end_amid_events_that_nothing_tells_apart(
    search: SearchUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE", 4)
    workload = Cpu(device_spread=10)
    job = new_job(workload.schema, batch=50)
    prepare(search, job)
    for _ in range(3):
        insert_with(search.module(job), workload, 50)
    module = search.module(job)
    module.open()
    module.prepare_queries()
    assert len(module.fetch(module.queries()["high-cpu"])) == 3 * 6
    monkeypatch.setattr(queries, "PAGE", 3)
    with pytest.raises(SimulatorError, match="at least 3 events have the same sort values"):
        module.fetch(module.queries()["high-cpu"])
    module.close()


def test_described_queries_of_several_shards_and_by_pages(
    search: SearchUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "PAGE", 20)
    monkeypatch.setattr(queries, "_MOST_DOCVALUE_FIELDS", 5)
    # More devices than a page holds.
    workload = load_workload("machines")(seed=4, device_spread=25, late=0.1)
    schema = workload.schema
    job = new_job(schema, batch=200)
    prepare(search, job, shards=3)
    insert_with(search.module(job), workload, 400)
    # The server would refuse to compare with limits beyond a field's range.
    limits = [
        ("errors", "above", 2.0**31),
        ("errors", "below", 2.0**31),
        ("pieces", "below", -1e19),
    ]
    beyond = [
        Query.model_validate(
            {"name": "q", "compute": [{"function": "count"}], "where": {"column": name, how: limit}}
        )
        for name, how, limit in limits
    ]
    stored = Stored(workload, [StoredPart(0, 0, 400)])
    asked = list_askable(search.module_type, schema, list_queries(workload))
    bounds = [draw(query, stored, 0, 0) for query in (*asked, *beyond)]
    module = search.module(job)
    module.open()
    module.prepare_queries()
    wrong = {}
    exactness = module.CAPABILITIES.exactness
    for bound, right in zip(bounds, answer_all(bounds, stored, exactness=exactness), strict=True):
        problem = compare_answers(right, module.fetch(module.compile(bound)))
        if problem:
            wrong[bound] = problem
    module.close()
    assert not wrong


@pytest.mark.parametrize("kind", [Temperature, Cpu])
def test_no_answer_comes_from_the_cache(search: SearchUnderTest, kind: Any) -> None:
    workload = kind()
    module = open_filled(search, workload)
    for _ in range(2):
        for statement in module.queries().values():
            module.fetch(statement)
    module.close()
    assert cached(search, workload.schema.table) == {"hit_count": 0, "miss_count": 0}


def cached(search: SearchUnderTest, table: str) -> dict[str, int]:
    stats = search.ask("GET", f"/{search.prefix}{table}/_stats/request_cache")
    total = stats["_all"]["total"]["request_cache"]
    return {name: total[name] for name in ("hit_count", "miss_count")}


def test_the_cache_would_have_answered(search: SearchUnderTest) -> None:
    """The test above can fail: the server counts requests that don't ask to bypass the cache."""
    job = new_job(Temperature.schema, batch=50)
    prepare(search, job)
    insert_with(search.module(job), Temperature(), 50)
    index = f"/{search.prefix}events"
    search.ask("POST", f"{index}/_refresh")
    question: dict[str, Any] = {"size": 0, "aggs": {"m": {"max": {"field": "temperature"}}}}
    answers: Sequence[Any] = [search.ask("POST", f"{index}/_search", question) for _ in range(9)]
    assert len(answers) == 9
    assert cached(search, "events")["hit_count"] > 0


# --- what somebody else has made ------------------------------------------------------------------


def test_aliases_of_others_lead_where_they_did(search: SearchUnderTest) -> None:
    """To what a run would drop by an alias' name, and by the name that it writes to."""
    job = new_job(Temperature.schema)
    before: Any = search.make_neighbour("others")
    others = f"/{search.prefix}others"
    search.ask("PUT", f"{others}/_alias/{search.prefix}events0")
    with search.prepare(job), search.prepare(job):
        pass
    after: Any = search.read_neighbour("others")
    assert after[0] == {others[1:]: {"aliases": {f"{search.prefix}events0": {}}}}
    assert after[1] == before[1]
    search.clear()
    search.make_neighbour("others")
    search.ask("PUT", f"{others}/_alias/{search.prefix}events-write")
    problem = "needs the names events-write, but"
    with connect(search.module(job)) as module, pytest.raises(SimulatorError, match=problem):
        module.prepare()
    assert search.tables() == {"others"}
