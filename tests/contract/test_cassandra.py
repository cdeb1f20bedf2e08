"""What only Cassandra has, and what is done to a node of the tests' own: stop it, ask for a password."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from cassandra import ReadTimeout
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from simulator.contract import PrimaryKey, StoredPart
from simulator.errors import SimulatorError
from simulator.modules.base import AnyModule, Job
from simulator.modules.cassandra import Cassandra
from simulator.modules.cassandra import wire as cassandra_wire
from simulator.modules.cassandra.asking import CassandraAsker
from simulator.modules.cassandra.encoding import CassandraOptions
from simulator.modules.kit.http_connection import SOCKET_OPTIONS
from simulator.oracle.answers import answer_all, compare_answers
from simulator.testing.events import insert, insert_with, most_at_once, rows_of
from simulator.testing.server import as_observer, new_job
from simulator.testing.suite.test_answers import DEFINED_PARTS, list_askable, list_queries
from simulator.testing.suite.test_queries import (
    SEED,
    check_answer,
    fill,
    prepare_queries,
    workload_of,
)
from simulator.worker import connect
from simulator.worker.measure import Recorder
from simulator.workloads import load_workload
from simulator.workloads.base import Workload
from simulator.workloads.cpu import Cpu
from simulator.workloads.drawing import Stored, draw
from simulator.workloads.temperature import Temperature

from ..helpers import eventually
from .cassandra import CassandraClusterUnderTest, CassandraUnderTest
from .cassandra_server import OwnNode, listening, own_node
from .entries import ENTRIES

USER, PASSWORD = "cassandra", "cassandra"


@pytest.fixture(scope="module")
def node_address() -> tuple[str, int]:
    """The node under test. The tests are skipped without it, or fail if it is required."""
    [entry] = [entry for entry in ENTRIES if entry.name == "cassandra"]
    hosts, port = entry.values()
    return hosts.split(",")[0], int(port)


@pytest.fixture(scope="module")
def keyspace(node_address: tuple[str, int]) -> Iterator[CassandraUnderTest]:
    with CassandraUnderTest.started(node_address[0], str(node_address[1])) as adapter:
        yield adapter


@pytest.fixture
def cassandra(keyspace: CassandraUnderTest) -> CassandraUnderTest:
    """A keyspace on the node under test, empty."""
    keyspace.clear()
    return keyspace


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[CassandraClusterUnderTest]:
    [entry] = [entry for entry in ENTRIES if entry.name == "cassandra-three"]
    hosts, port = entry.values()
    with CassandraClusterUnderTest.started(hosts, port) as adapter:
        assert isinstance(adapter, CassandraClusterUnderTest)
        yield adapter


@dataclass
class Guarded:
    """A node of the tests' own that asks for a password, and speaks TLS if the client likes."""

    node: OwnNode
    certificates: trustme.CA

    def options(self, **changes: Any) -> dict[str, Any]:
        """How to reach it."""
        defaults = {
            "contact_points": self.node.host, "port": self.node.port, "keyspace": "own",
            "replication_factor": 1, "connect_timeout": 5, "scan_ranges": 4,
            "username": USER, "password": PASSWORD,
        }  # fmt: skip
        values = defaults | changes
        return {key: value for key, value in values.items() if value is not None}

    @property
    def trusted(self) -> str:
        """Its authority's certificate."""
        return self.certificates.cert_pem.bytes().decode()


@pytest.fixture(scope="module")
def guarded(
    node_address: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    authority = trustme.CA()
    # For the name, and not for the address that the clients are given.
    certificate = authority.issue_cert("cassandra.example")
    file = tmp_path_factory.mktemp("tls") / "node.pem"
    # Cassandra reads keys in PKCS #8 only.
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    file.write_bytes(key + certificate.cert_chain_pems[0].bytes())
    encryption = {
        "enabled": True,
        "optional": True,
        "ssl_context_factory": {
            "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"
        },
        "keystore": str(file),
    }
    with own_node(
        *node_address, authenticator="PasswordAuthenticator", client_encryption_options=encryption
    ) as node:
        guarded_node = Guarded(node, authority)
        # The superuser is made after the port has been opened.
        module = module_with(guarded_node.options(), new_job(Temperature.schema))
        eventually(lambda: gets_in(module), "superuser")
        yield guarded_node


def gets_in(module: Cassandra) -> bool:
    """Whether the node lets the module in."""
    try:
        module.open()
    except SimulatorError:
        return False
    module.close()
    return True


def module_with(options: dict[str, Any], job: Job) -> Cassandra:
    """The module, with these options alone."""
    return Cassandra(CassandraOptions(**options), job)


def prepared(module: AnyModule) -> None:
    module.open()
    module.prepare()
    module.close()


# --- getting in -----------------------------------------------------------------------------------


def test_password_and_certificate_let_in(guarded: Guarded, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text(guarded.trusted)
    job = new_job(Temperature.schema, batch=10)
    for ca_certs in (None, str(file), guarded.trusted):
        # The certificate is for a name, so it is checked without that: see the next test.
        tls = {"tls": ca_certs is not None, "ca_certs": ca_certs, "verify_certs": False}
        for in_flight in (1, 16):
            module = module_with(guarded.options(**tls, max_sync_calls=in_flight), job)
            prepared(module)
            with connect(module.writer()) as writer:
                insert(writer, Temperature(), 500)
            module.open()
            assert module.count() == 500
            module.close()


@pytest.mark.parametrize(
    ("changes", "remedy"),
    [
        ({"password": "the-wrong-passw0rd"}, "check username and password"),
        ({"username": "nobody", "password": "the-wrong-passw0rd"}, "check username and password"),
        ({"username": None, "password": None}, "check username and password"),
        # Certificates of another authority, and of the right one for another name.
        ({"tls": True}, "check tls, ca_certs"),
        ({"tls": True, "ca_certs": "right"}, "the certificate is for the names in contact_points"),
        ({"local_datacenter": "elsewhere"}, "set local_datacenter to an existing one: "),
    ],
)
def test_who_is_not_let_in_learns_why(
    guarded: Guarded, changes: dict[str, Any], remedy: str
) -> None:
    if changes.get("ca_certs") == "right":
        changes = {**changes, "ca_certs": guarded.trusted}
    module = module_with(guarded.options(**changes), new_job(Temperature.schema))
    for enter in (module.open, module.writer().open):
        with pytest.raises(SimulatorError) as refused:
            enter()
        text = str(refused.value)
        assert f"{guarded.node.host}:{guarded.node.port}" in text
        assert remedy in text
        assert "passw0rd" not in text
        assert "\n" not in text


def test_certificates_that_are_none_are_refused(cassandra: CassandraUnderTest) -> None:
    for ca_certs in ("/no/such/file", "-----BEGIN CERTIFICATE-----\nnone\n"):
        options = {"tls": True, "ca_certs": ca_certs}
        module = cassandra.module(new_job(Temperature.schema), options=options)
        with pytest.raises(SimulatorError, match="ca_certs can't be used"):
            module.open()


# --- stopped during the run -------------------------------------------------------------------------


def test_a_node_that_is_stopped_and_started_again(guarded: Guarded) -> None:
    """Every event is stored once, every failure counted; by two workers at once, with one request under
    way and with several."""
    workload = Temperature(seed=1, device_spread=3)
    job = new_job(workload.schema, batch=20)
    module = module_with(guarded.options(), job)
    prepared(module)
    node = guarded.node
    # Stopped before the second request of both, started again once the first failure is known.
    stopping = threading.Barrier(2, action=node.stop)
    starting = threading.Thread(target=node.start)
    lock = threading.Lock()

    def start() -> None:
        with lock:
            if not starting.ident:
                starting.start()

    def insert_by(worker: int, in_flight: int) -> Recorder:
        own = module_with(guarded.options(max_sync_calls=in_flight), job)
        with connect(own.writer()) as writer:
            return insert(
                writer, workload, 1000, worker=worker, before={1: stopping.wait},
                max_retries=100, abort=start,
            )  # fmt: skip

    with ThreadPoolExecutor(2) as workers:
        recorders = list(workers.map(insert_by, (0, 1), (1, 16)))
    starting.join()
    for recorder in recorders:
        assert recorder.events == 1000
        assert recorder.errors["connection_lost"] >= 1
        assert recorder.retries == sum(recorder.errors.values())
    module.open()
    assert module.count() == 2000
    module.close()


@pytest.mark.parametrize("in_flight", [1, 8])
def test_others_take_over_from_a_node_that_hangs(
    three_nodes: CassandraClusterUnderTest, in_flight: int
) -> None:
    """Two of three copies are enough, whoever is asked to write them; so nothing waits for the third."""
    three_nodes.clear()
    workload = Temperature(seed=5, device_spread=12)
    job = new_job(workload.schema, batch=10)
    observer = three_nodes.module(as_observer(job))
    observer.open()
    observer.prepare()
    device = workload.block(0, 1199, 1).devices[0].decode()
    process = listening(three_nodes.first_replica(device), three_nodes.port)
    options = {"request_timeout": 2, "max_sync_calls": in_flight}
    try:
        with connect(three_nodes.module(job, options=options).writer()) as writer:
            recorder = insert(writer, workload, 1200, before={1: process.suspend})
    finally:
        process.resume()
    assert recorder.events == 1200
    assert recorder.errors["client_timeout"] >= 1
    # Those that were under way to it, and no more: it is left out afterwards.
    assert sum(recorder.errors.values()) <= in_flight
    assert three_nodes.rows(job.schema, "events") == sorted(rows_of(workload.block(0, 0, 1200)))
    observer.close()


@pytest.mark.timeout(240)
def test_a_node_that_hangs_costs_retries_only(three_nodes: CassandraClusterUnderTest) -> None:
    """With consistency ALL, writes time out until the third node goes on."""
    three_nodes.clear()
    workload = Temperature(seed=4)
    job = new_job(workload.schema, batch=50)
    observer = three_nodes.module(as_observer(job))
    observer.open()
    observer.prepare()
    process = listening(three_nodes.hosts[2], three_nodes.port)
    options = {"consistency_level": "ALL", "request_timeout": 10}
    try:
        with connect(three_nodes.module(job, options=options).writer()) as writer:
            recorder = insert(
                writer, workload, 200, before={1: process.suspend}, abort=process.resume
            )
    finally:
        process.resume()
    # The coordinator says so, unless it is the one that hangs.
    assert set(recorder.errors) & {"write_timeout", "client_timeout"}
    assert recorder.retries == sum(recorder.errors.values())
    assert three_nodes.rows(job.schema, "events") == sorted(rows_of(workload.block(0, 0, 200)))
    observer.close()


@pytest.mark.parametrize("in_flight", [1, 8])
def test_statements_that_a_node_has_forgotten_are_prepared_again(
    cassandra: CassandraUnderTest, in_flight: int
) -> None:
    """As a node forgets all statements for a table that is altered."""
    workload = Temperature(seed=6)
    job = new_job(workload.schema, batch=10)
    module = cassandra.module(job, options={"max_sync_calls": in_flight})
    prepared(module)

    def alter() -> None:
        cassandra.ask(f"ALTER TABLE {cassandra.keyspace}.events ADD more int")

    with connect(module.writer()) as writer:
        recorder = insert(writer, workload, 500, before={20: alter})
    assert recorder.errors["unprepared"] >= 1
    assert recorder.retries == sum(recorder.errors.values()) <= in_flight
    assert cassandra.rows(job.schema, "events") == sorted(rows_of(workload.block(0, 0, 500)))


def test_a_table_that_is_dropped_ends_the_run(cassandra: CassandraUnderTest) -> None:
    workload = Temperature()
    job = new_job(workload.schema, batch=10)
    module = cassandra.module(job)
    prepared(module)

    def drop() -> None:
        cassandra.ask(f"DROP TABLE {cassandra.keyspace}.events")

    with (
        connect(module.writer()) as writer,
        pytest.raises(SimulatorError, match=r"missing_table.*events.*the table was dropped"),
    ):
        insert(writer, workload, 500, before={20: drop})


# --- too much at once -----------------------------------------------------------------------------


@pytest.mark.parametrize("tls", [False, True])
def test_a_full_queue_is_waited_for(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    """A node that takes nothing more for a while holds up its own requests; that is no error."""
    workload = Temperature()
    job = new_job(workload.schema, batch=1000)
    encryption = {"tls": tls, "ca_certs": guarded.trusted, "verify_certs": False}
    module = module_with(guarded.options(max_sync_calls=10, **encryption), job)
    prepared(module)
    # Otherwise all would fit into the sockets of both ends.
    small = (socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
    monkeypatch.setattr(cassandra_wire, "SOCKET_OPTIONS", [*SOCKET_OPTIONS, small])
    hung_s, reached_s = 1.5, []

    def note() -> None:
        reached_s.append(time.monotonic())

    def hang() -> None:
        guarded.node.hang(hung_s)
        note()

    with connect(module.writer()) as writer:
        recorder = insert(writer, workload, 50_000, before={1: hang, 8: note, 49: note})
    first, in_flight, last = reached_s
    assert in_flight - first < hung_s * 0.5, "a request waited though there was a place for it"
    assert last - first > hung_s * 0.8, "nothing waited for the node"
    # A slow node may say itself that it was too slow.
    assert set(recorder.errors) <= {"write_timeout"}
    module.open()
    assert module.count() == 50_000
    module.close()


def test_requests_are_under_way_at_once(cassandra: CassandraUnderTest) -> None:
    workload = Temperature()
    job = new_job(workload.schema)
    observer = cassandra.module(as_observer(job))
    observer.open()
    observer.prepare()
    at_once = {}
    for in_flight in (1, 20):
        module = cassandra.module(job, options={"max_sync_calls": in_flight})
        with connect(module.writer()) as writer:
            at_once[in_flight] = most_at_once(insert(writer, workload, 1000))
    assert at_once[1] == 1
    assert 4 < at_once[20] <= 20
    assert observer.count() == 1000
    observer.close()


def test_copies_that_there_are_no_nodes_for_are_unavailable(cassandra: CassandraUnderTest) -> None:
    options = {"replication_strategy": "SimpleStrategy", "replication_factor": 3}
    options["keyspace"] = f"{cassandra.keyspace}_3"
    job = new_job(Temperature.schema, batch=10)
    module = cassandra.module(job, options={**options, "consistency_level": "QUORUM"})
    try:
        module.open()
        module.prepare()
        module.close()
        with (
            connect(module.writer()) as writer,
            pytest.raises(SimulatorError, match=r"gave up after 1 retries \(unavailable\)"),
        ):
            insert(writer, Temperature(), 20, max_retries=1)
        # One copy is there, so with that consistency it works.
        lenient = cassandra.module(job, options={**options, "consistency_level": "ONE"})
        with connect(lenient.writer()) as writer:
            assert insert(writer, Temperature(), 20).events == 20
    finally:
        cassandra.ask(f"DROP KEYSPACE {options['keyspace']}")


# --- keyspace and tables --------------------------------------------------------------------------


def test_a_missing_keyspace_says_what_to_do(cassandra: CassandraUnderTest) -> None:
    options = {"keyspace": "no_such_keyspace"}
    module = cassandra.module(new_job(Temperature.schema), options=options)
    with pytest.raises(SimulatorError, match=r"no_such_keyspace.*run insert first"):
        module.writer().open()
    module.open()
    with pytest.raises(SimulatorError, match=r"no_such_keyspace.*run insert first"):
        module.count()
    module.close()


def test_another_replication_than_asked_for_is_refused(cassandra: CassandraUnderTest) -> None:
    module = cassandra.module(new_job(Temperature.schema), options={"replication_factor": 2})
    module.open()
    with pytest.raises(
        SimulatorError, match=r"has replication .*'1'.*, not .*'2'.*: drop or alter"
    ):
        module.prepare()
    module.close()


def test_more_copies_must_answer_than_there_are_nodes(cassandra: CassandraUnderTest) -> None:
    nodes = 1 + len(cassandra.ask("SELECT peer FROM system.peers"))
    for level, factor, fits in (("LOCAL_QUORUM", 2 * nodes, False), ("ONE", 2 * nodes, True)):
        values = {"replication_factor": factor, "consistency_level": level}
        module = cassandra.module(new_job(Temperature.schema), options=values)
        module.open()
        problem = (
            rf"needs {nodes + 1} nodes, and data center .* has {nodes}: set replication_factor to"
        )
        with nullcontext() if fits else pytest.raises(SimulatorError, match=problem):
            module.check()
        module.close()


def test_compaction_is_that_of_the_option(cassandra: CassandraUnderTest) -> None:
    option = "TimeWindowCompactionStrategy, compaction_window_unit=HOURS, compaction_window_size=2"
    module = cassandra.module(new_job(Temperature.schema), options={"compaction": option})
    module.open()
    module.prepare()
    module.close()
    [(compaction,)] = cassandra.ask(
        "SELECT compaction FROM system_schema.tables WHERE keyspace_name = %s", cassandra.keyspace
    )
    assert compaction["class"].endswith("TimeWindowCompactionStrategy")
    assert compaction["compaction_window_unit"] == "HOURS"
    assert compaction["compaction_window_size"] == "2"


def test_a_device_is_a_partition_newest_event_first(cassandra: CassandraUnderTest) -> None:
    for workload, names in (
        (Temperature(device_spread=3), ("device_id", "timestamp", "sequence_number")),
        (Cpu(device_spread=3), ("hostname", "ts")),
    ):
        columns = layout(cassandra, workload, PrimaryKey.DB)
        assert columns == [(names[0], "partition_key", "none"), *_descending(*names[1:])]
        columns = layout(cassandra, workload, PrimaryKey.CLIENT)
        assert columns == [(names[0], "partition_key", "none"), *_descending(names[1], "id")]


def layout(
    cassandra: CassandraUnderTest, workload: Workload, key: PrimaryKey
) -> list[tuple[str, str, str]]:
    """The key's columns in their order: name, kind, order."""
    module = cassandra.module(new_job(workload.schema, primary_key=key))
    module.open()
    module.prepare()
    module.close()
    rows = cassandra.ask(
        "SELECT column_name, kind, clustering_order, position FROM system_schema.columns"
        " WHERE keyspace_name = %s AND table_name = %s",
        cassandra.keyspace,
        workload.schema.table,
    )
    keys = [row for row in rows if row[1] != "regular"]
    return [row[:3] for row in sorted(keys, key=lambda row: (row[1] != "partition_key", row[3]))]


def _descending(*names: str) -> list[tuple[str, str, str]]:
    return [(name, "clustering", "desc") for name in names]


@pytest.mark.parametrize("batch_type", ["logged", "unlogged"])
@pytest.mark.parametrize("consistency", ["ONE", "ALL"])
def test_batch_types_and_consistency_levels(
    cassandra: CassandraUnderTest, batch_type: str, consistency: str
) -> None:
    workload = Temperature(device_spread=2)
    options = {"batch_type": batch_type, "consistency_level": consistency}
    for batch in (0, 10):
        job = new_job(workload.schema, batch=batch)
        module = cassandra.module(job, options=options)
        module.open()
        module.prepare()
        with connect(module.writer()) as writer:
            insert(writer, workload, 50)
        assert module.count() == 50
        module.close()
        expected = sorted(rows_of(workload.block(0, 0, 50)))
        assert cassandra.rows(job.schema, "events") == expected


@pytest.mark.parametrize("protocol_version", ["3", "4", "5"])
def test_protocol_versions(cassandra: CassandraUnderTest, protocol_version: str) -> None:
    """Version 4 is what YCQL speaks."""
    workload = Cpu(device_spread=2)
    for batch in (0, 10):
        job = new_job(workload.schema, batch=batch, primary_key=PrimaryKey.UUID)
        module = cassandra.module(job, options={"protocol_version": protocol_version})
        module.open()
        module.prepare()
        with connect(module.writer()) as writer:
            insert(writer, workload, 50)
        info = module.server_info()
        module.close()
        assert info["settings"]["protocol_version"] == int(protocol_version)
        expected = sorted(rows_of(workload.block(0, 0, 50)))
        assert cassandra.rows(job.schema, "cpu") == expected


def test_server_info_has_what_decides_durability(cassandra: CassandraUnderTest) -> None:
    module = cassandra.module(new_job(Temperature.schema), options={"consistency_level": "TWO"})
    module.open()
    settings = module.server_info()["settings"]
    module.close()
    assert settings["commitlog_sync"] in ("periodic", "batch", "group")
    assert settings["replication"] == {"class": "NetworkTopologyStrategy", "datacenter1": "1"}
    assert settings["durable_writes"] is True
    assert settings["consistency_level"] == "TWO"
    assert settings["nodes"] == 1


# --- queries --------------------------------------------------------------------------------------


class LateAnswers:
    """Makes the first answers to questions that may take too long come too late."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.answered = 0
        self._take = CassandraAsker._take

    @property
    def take(self) -> Callable[..., None]:
        """Replaces `CassandraAsker._take`."""

        def take(asker: CassandraAsker, sent: Any, result: Any, answered_s: float) -> None:
            if sent.question.may_be_late:
                self.answered += 1
                if self.answered <= self.count:
                    result = ReadTimeout("too slow")
            self._take(asker, sent, result, answered_s)

        return take


@pytest.mark.parametrize("flavor", ["cassandra", "ycql"])
@pytest.mark.parametrize("query", Temperature.schema.queries[:4])
def test_ranges_that_take_too_long_are_asked_in_slices_of_time(
    cassandra: CassandraUnderTest, monkeypatch: pytest.MonkeyPatch, query: str, flavor: str
) -> None:
    """As if the first six answers had come too late: of all four ranges, then of two slices."""
    workload = workload_of(query)
    fill(cassandra, workload)
    late = LateAnswers(6)
    monkeypatch.setattr(CassandraAsker, "_take", late.take)
    with prepare_queries(cassandra, workload, {"flavor": flavor}) as module:
        check_answer(module, query)
        assert late.answered > 16
        # From now on the ranges are not tried.
        late.answered = 6
        check_answer(module, query)
        assert late.answered > 4 + 16


# --- YCQL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Temperature, Cpu])
def test_ycqls_way_of_asking_has_the_same_answers(
    cassandra: CassandraUnderTest, kind: type[Workload]
) -> None:
    """On Cassandra: there is no YugabyteDB to ask. Its CQL knows all that these queries use."""
    workload = workload_of(kind.schema.queries[0])
    fill(cassandra, workload)
    with prepare_queries(cassandra, workload, {"flavor": "ycql"}) as module:
        for query in kind.schema.queries:
            check_answer(module, query)


@pytest.mark.parametrize(("flavor", "late"), [("cassandra", 8), ("ycql", 0)])
def test_described_queries_whatever_the_server_lacks(
    cassandra: CassandraUnderTest, monkeypatch: pytest.MonkeyPatch, flavor: str, late: int
) -> None:
    """Their answers are right though the first ones come too late, or nothing is grouped."""
    workload = load_workload("machines")(seed=SEED, device_spread=10, late=0.1)
    fill(cassandra, workload, DEFINED_PARTS)
    stored = Stored(workload, [StoredPart(*part) for part in DEFINED_PARTS])
    asked = list_askable(cassandra.module_type, workload.schema, list_queries(workload))
    queries = [query for query in asked if query.per or flavor == "ycql"]
    bounds = [draw(query, stored, 0, 0) for query in queries]
    answers = LateAnswers(late)
    monkeypatch.setattr(CassandraAsker, "_take", answers.take)
    with prepare_queries(cassandra, workload, {"flavor": flavor}) as module:
        for bound, right in zip(bounds, answer_all(bounds, stored), strict=True):
            answers.answered = 0
            assert compare_answers(right, module.fetch(module.compile(bound))) is None, bound


def test_a_flush_leaves_the_mark_and_the_comments_of_others(cassandra: CassandraUnderTest) -> None:
    """It gives the table another comment."""
    job = new_job(Temperature.schema, batch=5)
    with cassandra.prepare(job) as module:
        insert_with(cassandra.module(job), Temperature(), 10)
        assert module.storage().copies
    comment = (
        f"SELECT comment FROM system_schema.tables WHERE keyspace_name = '{cassandra.keyspace}'"
    )
    assert cassandra.ask(comment)[0][0].startswith("made by iot-database-benchmark, flushed at ")
    # Other columns, and the mark alone tells whose it is.
    with cassandra.prepare(new_job(replace(Cpu.schema, table="events"))):
        pass
    cassandra.clear()
    cassandra.make_neighbour("events")
    cassandra.ask(f"ALTER TABLE {cassandra.keyspace}.events WITH comment = 'mine'")
    with (
        connect(cassandra.module(job)) as module,
        pytest.raises(SimulatorError, match="did not make"),
    ):
        module.storage()
    assert cassandra.ask(comment) == [("mine",)]
