"""What a module has to do with queries: which it can ask, by which statements, and who asks them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import OptionError, Retryable, SimulatorError, did_you_mean
from ..workloads.drawing import BoundQuery, bind
from ..workloads.queries import Query as Description
from .asking import Asker, Rows
from .capabilities import Capabilities
from .own_statements import find_own_statement, refuse_statements

if TYPE_CHECKING:
    from .base import Job

TUNED = "-tuned"
"""Ends the name of a query that asks the same in the way that suits a database best."""

Query = Callable[[], Rows]
"""A statement of a `CallingAsker`: asks and decodes."""


class QueryingModule(ABC):
    """The part of a `Module` that is about queries."""

    name: ClassVar[str]
    CAPABILITIES: ClassVar[Capabilities]
    job: Job
    options: Any
    _fetcher: Asker | None = None
    """Asks what isn't measured; made when it is first needed."""

    def workload_queries(self) -> Mapping[str, Any]:
        """Statements of queries of the job's workload that aren't compiled from a description: the module's
        own texts, or variants that suit the database better."""
        return {}

    def compile(self, bound: BoundQuery) -> Any:
        """The statement, in the database's language, that asks what is bound: what the module's asker takes.
        Only called for queries that are made of `CAPABILITIES.shapes`."""
        raise OptionError(f"module {self.name} compiles no queries")

    def take_statement(self, text: str, bound: BoundQuery) -> Any:
        """What the module's asker takes of a workload's own statement, with what is bound for its parameters.
        Only called with what is in the language of `CAPABILITIES.statements`."""
        raise OptionError(refuse_statements(self.name))

    def make_statement(self, bound: BoundQuery) -> Any:
        """The statement that asks what is bound: the workload's own, or else what `compile` gives."""
        text = find_own_statement(type(self), bound.query)
        return self.compile(bound) if text is None else self.take_statement(text, bound)

    def describe_statement(self, statement: Any) -> str:
        """What `compile` gave, as it is sent, for a person to read. Needs no connection. OptionError if the
        module can't show it."""
        if isinstance(statement, str):
            return statement
        if isinstance(statement, dict | list):
            return json.dumps(statement, indent=2, ensure_ascii=False)
        raise OptionError(f"module {self.name} can't show what it sends")

    def answer(self, statement: Any) -> Rows:
        """Ask and decode what `compile` gave: for a module without an asker of its own."""
        rows: Rows = statement()
        return rows

    @abstractmethod
    def make_asker(self, in_flight: int) -> Asker:
        """An asker by the lean way."""

    def asker(self, in_flight: int = 1) -> Asker:
        """What asks a reader's questions, with so many of them under way at once: by the vendor's client if
        the options name it."""
        client = self.CAPABILITIES.clients.get(self.options.client)
        if client is None or client.asker is None:
            return self.make_asker(in_flight)
        asker: Asker = resolve_name(client.asker)(self, in_flight)
        return asker

    def fetch(self, statement: Any) -> Rows:
        """The rows of a statement's answer, decoded: for whoever isn't measured. After `open`. Raises
        Retryable if the database has gone away since then, or SimulatorError."""
        try:
            if self._fetcher is None:
                self._fetcher = self.make_asker(1)
                try:
                    self._fetcher.open()
                except SimulatorError as error:
                    # The module has been connected: a server that is away for a while comes back.
                    raise Retryable("connection_lost", str(error)) from error
            return self._fetcher.fetch(statement)
        except Retryable:
            self.close_fetcher()
            raise

    def close_fetcher(self) -> None:
        """Disconnect what `fetch` asks by."""
        if self._fetcher is not None:
            self._fetcher.close()
            self._fetcher = None

    def queries(self) -> Mapping[str, Any]:
        """The statements to ask that are the same in each execution.

        Raises OptionError for a name that there isn't.
        """
        own = self.workload_queries()
        statements = {}
        for name in self.choose_queries(own):
            description = self._described().get(name)
            if name in own:
                statements[name] = own[name]
            elif description is not None and not description.is_drawn:
                statements[name] = self.make_statement(bind(description, self.job.schema.epoch_ms))
        return statements

    def drawn_queries(self) -> Mapping[str, Description]:
        """The queries to ask whose parameters are drawn for each execution; OptionError as `queries`."""
        drawn = {name: query for name, query in self._described().items() if query.is_drawn}
        # Without any, the database needn't be asked what `workload_queries` may have to know.
        return (
            {name: drawn[name] for name in self.choose_queries() if name in drawn} if drawn else {}
        )

    def choose_queries(self, own: Collection[str] | None = None) -> list[str]:
        """Names of all queries to ask: those for the workload, or those that the job's load names.

        `own`: names of `workload_queries`, if the caller has them. Raises OptionError for a name that isn't
        among them, or that the module can't ask.
        """
        schema, described = self.job.schema, self._described()
        own_names = self.workload_queries() if own is None else own
        own = dict.fromkeys(
            name for name in schema.queries if name in own_names or name in described
        )
        own |= dict.fromkeys(own_names)
        available = [*own, *(name for name in described if name not in own)]
        chosen = self.job.load.queries
        if chosen is None:
            if own:
                return list(own)
            hint = f", except with --queries {','.join(available)}" if available else ""
            raise OptionError(f"module {self.name} has no queries for this workload{hint}")
        for name in chosen:
            if name not in available:
                raise OptionError(f"option queries: {self.explain_query(name, available)}")
        return [name for name in available if name in chosen]

    def describe_query(self, name: str) -> Description | None:
        """The description of a query, or of the plain query if it's a variant; None if there is none."""
        schema = self.job.schema
        return schema.description(name) or schema.description(name.removesuffix(TUNED))

    def _described(self) -> dict[str, Description]:
        """The described queries that can be asked."""
        return {query.name: query for query in self.job.schema.descriptions if self.can_ask(query)}

    def can_ask(self, query: Description) -> bool:
        """Whether it can be compiled, or has a statement of the workload's own."""
        if find_own_statement(type(self), query) is not None:
            return True
        return query.shapes(self.job.schema) <= frozenset(self.CAPABILITIES.shapes)

    def explain_query(self, name: str, available: Sequence[str]) -> str:
        """Why a query can't be asked; `available`: the queries that can."""
        schema = self.job.schema
        hint = f"(known: {', '.join(available)})"
        description = schema.description(name)
        if description is None:
            return f"there is no query {name!r}{did_you_mean(name, available)} {hint}"
        lacking = description.shapes(schema) - frozenset(self.CAPABILITIES.shapes)
        if impossible := lacking & frozenset(self.CAPABILITIES.impossible_shapes):
            return (
                f"module {self.name} can't ask {name}: the database has no queries with"
                f" {', '.join(sorted(impossible))} {hint}"
            )
        return (
            f"module {self.name} can't ask {name} yet: it compiles no queries with"
            f" {', '.join(sorted(lacking))} {hint}"
        )
