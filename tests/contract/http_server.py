"""What the adapters of databases that speak HTTP have in common: each is reached by way of a proxy."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, ClassVar

import httpx
import psutil
import pytest
import trustme

from simulator.modules.base import Job
from simulator.testing.events import insert_with
from simulator.testing.server import Fault, FaultHandle, Refusal, ServerUnderTest
from simulator.workloads.base import Workload
from simulator.workloads.temperature import Temperature

from ..helpers import eventually
from .http_proxy import UNAUTHORIZED, Fate, HttpProxy, HttpRequest, Refuse, http_proxy
from .lost import ANSWER_LOST, REQUEST_LOST


class HttpServerUnderTest(ServerUnderTest):
    """A database behind a proxy, from which its failures come."""

    reconnects_unasked = True
    locks = False
    agent_header: ClassVar[str] = "user-agent"
    """The header in which a request names its run."""
    agent: ClassVar[str] = "iot-benchmark {run_id}"
    """How that header begins."""

    def __init__(
        self,
        module: str,
        urls: Sequence[str],
        writes: Callable[[HttpRequest], bool],
        options: Callable[[Sequence[str]], Mapping[str, Any]],
        stack: ExitStack,
    ) -> None:
        """`urls`: where the nodes really are; `writes`: which requests can be struck; `options`: how
        the module reaches it at the proxy's URLs; `stack`: closes what is opened here."""
        self._real_urls = urls
        self._writes = writes
        self._stack = stack
        self.proxy = self.another_proxy()
        super().__init__(module, options(self.proxy.endpoints))
        self._silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        """Takes connections and never answers."""
        self._closed = stack.enter_context(socket.socket())
        """Bound, so that its port stays free, but not listening."""
        self._closed.bind(("127.0.0.1", 0))
        self.authority = trustme.CA()

    @property
    def trusted(self) -> str:
        """The PEM text of the authority that the encrypting proxies' certificates are from."""
        return self.authority.cert_pem.bytes().decode()

    def encrypting(
        self, authorization: str | None = None, denial: Refuse = UNAUTHORIZED
    ) -> HttpProxy:
        """A proxy that ends TLS and may ask for credentials, which the test servers can't."""
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("localhost").configure_cert(tls)
        proxy = HttpProxy(
            self._real_urls, self._writes, tls=tls, authorization=authorization, denial=denial,
            instead=self.answer_instead,
        )  # fmt: skip
        return self._stack.enter_context(http_proxy(proxy))

    def another_proxy(self) -> HttpProxy:
        """A proxy to the same nodes, to be struck, or to die, alone."""
        proxy = HttpProxy(self._real_urls, self._writes, instead=self.answer_instead)
        return self._stack.enter_context(http_proxy(proxy))

    def answer_instead(self, request: HttpRequest) -> Refuse | None:
        """An answer to what a stand-in doesn't know; None: it is asked."""
        return None

    @property
    def refusing(self) -> str:
        """The URL of a node that isn't there."""
        return f"http://127.0.0.1:{self._closed.getsockname()[1]}"

    def connections(self, run_id: str) -> set[str]:
        return {str(line.number) for line in self._lines(run_id)}

    def kill_connections(self, run_id: str) -> int:
        return self.proxy.cut(self._lines(run_id))

    def _lines(self, run_id: str) -> Any:
        return self.proxy.lines(self.agent_header, self.agent.format(run_id=run_id))

    def unreachable(self, secret: str, **options: Any) -> list[Refusal]:
        """One server that isn't there, and one that doesn't answer."""
        ports = [endpoint.getsockname()[1] for endpoint in (self._closed, self._silent)]
        return [
            Refusal(
                {"endpoint": f"http://127.0.0.1:{port}", **options},
                f"127.0.0.1:{port}",
                "check that the server runs",
                secret,
            )
            for port in ports
        ]

    # --- failures ---------------------------------------------------------------------------------

    @contextmanager
    def fated(self, fate: Fate, wait_s: float = 0.0, **options: Any) -> Iterator[FaultHandle]:
        """The proxy does something to the next request that writes; it is not sent again before
        `wait_s`. `options`: of the writer's module."""

        def trigger() -> None:
            self.proxy.write_times.clear()
            self.proxy.fate = fate

        yield FaultHandle(trigger, options)
        assert self.proxy.fate is None, "no request met its fate"
        if wait_s:
            assert self.proxy.write_times[1] - self.proxy.write_times[0] >= wait_s

    @contextmanager
    def ended(self, job: Job) -> Iterator[FaultHandle]:
        """The writer's connections are ended before the request is sent."""

        def trigger() -> None:
            assert self.kill_connections(job.run_id)

        yield FaultHandle(trigger)

    @contextmanager
    def away(self, job: Job) -> Iterator[FaultHandle]:
        """The connections are cut, and the next two are refused."""

        def trigger() -> None:
            self.proxy.refused_connections = 2
            assert self.kill_connections(job.run_id)

        yield FaultHandle(trigger)
        assert not self.proxy.refused_connections


ENDED = Fault(
    "connection ended", {}, lambda server, job: server.ended(job), reconnects=True, once=True
)
AWAY = Fault(
    "away for a while", {"connection_lost": 2}, lambda server, job: server.away(job), once=True
)
LOST = (ANSWER_LOST, REQUEST_LOST, ENDED, AWAY)
"""What may happen to the connection of each."""
GATEWAY_GAVE_UP = Fault(
    "gateway gave up", {"unavailable": 1}, lambda server, job: server.fated("give up")
)
NO_ANSWER_IN_TIME = Fault(
    "no answer in time", {"timeout": 1},
    lambda server, job: server.fated("hold answer", request_timeout_s=2), reconnects=True, once=True,
)  # fmt: skip


def prepare(server: ServerUnderTest, job: Job, **options: Any) -> None:
    """Make the tables of a job anew, with these options of the module."""
    with server.prepare(job, options=options):
        pass


def count_inserted(
    server: ServerUnderTest, job: Job, count: int, workload: Workload | None = None, **options: Any
) -> int | None:
    """How many events there are after `count` were inserted into new tables, with these options."""
    prepare(server, job, **options)
    insert_with(server.module(job, options=options), workload or Temperature(), count)
    module = server.module(job, options=options)
    module.open()
    counted = module.count()
    module.close()
    return counted


def find_program(url: str, name: str = "") -> str:
    """The program that serves `url`. The test is skipped unless it is a process of this machine
    with a name that begins so: in front of a container, another one listens."""
    port = httpx.URL(url).port
    for connection in psutil.net_connections("tcp"):
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr[1:] == (port,)
            and connection.pid
        ):
            process = psutil.Process(connection.pid)
            if process.name().startswith(name):
                return process.exe()
    pytest.skip("the server must be a process of this machine")


def await_health(url: str, name: str) -> None:
    """Wait until the server says that it is well."""

    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/health").status_code == httpx.codes.OK
        return False

    eventually(answers, f"answer from {name}")


def refused(name: str, kind: str, refuse: Refuse, wait_s: float = 0.0) -> Fault:
    """A request that is refused, and counted as `kind`. `wait_s`: how long the server asks the client to
    wait, which is read in one place."""
    return Fault(name, {kind: 1}, lambda server, job: server.fated(refuse, wait_s), once=wait_s > 0)
