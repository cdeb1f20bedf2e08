"""Whom to trust with TLS, and what to show to whom."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from contextlib import ExitStack
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

from ...errors import SimulatorError


def is_pem(text: str) -> bool:
    """Whether it is the content of a PEM file, and not the path of one."""
    return "-----BEGIN" in text


def make_tls_context(
    ca_certs: str | None,
    verify_certs: bool = True,
    client_cert: str | None = None,
    client_key: str | None = None,
) -> ssl.SSLContext:
    """A client's context that checks certificates and host names, unless told not to.

    `ca_certs`: the authorities to trust, instead of the system's; `client_cert`: what to show to a server
    that asks, with `client_key` unless that is in the same file. Each is the path of a PEM file, or its text
    (in a pod there may be no place for a file). Raises SimulatorError if one of them can't be used.
    """
    try:
        if ca_certs is not None and is_pem(ca_certs):
            context = ssl.create_default_context(cadata=ca_certs)
        else:
            context = ssl.create_default_context(cafile=ca_certs)
    except OSError as error:  # ssl.SSLError is one
        raise SimulatorError(
            f"ca_certs can't be used: {error}; give the path of a PEM file, or its text"
        ) from error
    if not verify_certs:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if client_cert is not None:
        _load_client_cert(context, client_cert, client_key)
    return context


def _load_client_cert(context: ssl.SSLContext, cert: str, key: str | None) -> None:
    with ExitStack() as files:

        def find_file(pem: str) -> str:
            if not is_pem(pem):
                return pem
            # OpenSSL reads files alone; nobody else may read this one, which is gone at once.
            file = files.enter_context(NamedTemporaryFile("w", suffix=".pem"))
            file.write(pem + "\n")
            file.flush()
            return file.name

        try:
            # A key with a passphrase would be asked for on the terminal.
            context.load_cert_chain(find_file(cert), key and find_file(key), lambda: b"")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise SimulatorError(
                f"client_cert and client_key can't be used: {error}; give paths or texts of PEM"
                " files, with a key that has no passphrase"
            ) from error


def any_encrypted(urls: Iterable[str]) -> bool:
    """Whether one of the URLs says https."""
    return any(urlsplit(url).scheme == "https" for url in urls)
