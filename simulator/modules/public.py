"""The building blocks for a package with its own database: `iotbench.database` offers the same, and images
have it. See docs/how-to/own-database.md."""

from ..conditions import Condition
from ..contract import PrimaryKey, Retention
from ..errors import OptionError, Retryable, SimulatorError
from ..workloads.queries import Shape
from ..workloads.schema import FLOATS, ColumnType, EventBlock, Schema
from .base import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Job,
    Module,
    Needed,
    OwnSchema,
    RefusedText,
    Support,
    support_keys,
)
from .kit.exactly_once import ConnectedWriter, SettlingWriter
from .kit.http_answer import Answer
from .kit.http_connection import HttpRequest
from .kit.http_database import HttpDatabase
from .kit.module import (
    ConnectedModule,
    CountingModule,
    Found,
    IndexedModule,
    IndexOptions,
    TableModule,
    connection_lost,
    missing_table,
    stored_by_earlier_run,
)
from .kit.options import BatchOptions, EndpointOptions, InFlightOptions, LoginOptions, TlsOptions
from .kit.sql_module import DbapiModule, DbapiWriter, SqlModule
from .kit.sql_queries import (
    NewestByFunction,
    SqlDialect,
    list_aliased,
    list_aliases,
    quote_text,
)
from .options import InsertMode, Options
from .sending import CALLING, Encoder, Request, Writer

__all__ = [
    "CALLING",
    "FLOATS",
    "Ageing",
    "Answer",
    "BatchOptions",
    "Capabilities",
    "Client",
    "ColumnType",
    "Condition",
    "ConnectedModule",
    "ConnectedWriter",
    "CountingModule",
    "DbapiModule",
    "DbapiWriter",
    "Durability",
    "Encoder",
    "Encoding",
    "EndpointOptions",
    "EventBlock",
    "Found",
    "HttpDatabase",
    "HttpRequest",
    "InFlightOptions",
    "IndexOptions",
    "IndexedModule",
    "InsertMode",
    "Job",
    "LoginOptions",
    "Module",
    "Needed",
    "NewestByFunction",
    "OptionError",
    "Options",
    "OwnSchema",
    "PrimaryKey",
    "RefusedText",
    "Request",
    "Retention",
    "Retryable",
    "Schema",
    "SettlingWriter",
    "Shape",
    "SimulatorError",
    "SqlDialect",
    "SqlModule",
    "Support",
    "TableModule",
    "TlsOptions",
    "Writer",
    "connection_lost",
    "list_aliased",
    "list_aliases",
    "missing_table",
    "quote_text",
    "stored_by_earlier_run",
    "support_keys",
]
