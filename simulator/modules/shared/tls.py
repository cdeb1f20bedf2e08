"""Whom to trust with TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from urllib.parse import urlsplit

from ...errors import SimulatorError


def make_tls_context(ca_certs: str | None, verify_certs: bool = True) -> ssl.SSLContext:
    """A client's context that checks certificates and host names, unless told not to.

    `ca_certs`: the authorities to trust, instead of the system's: the path of a PEM file, or its text
    (in a pod there may be no place for a file). Raises SimulatorError if it can't be used.
    """
    try:
        if ca_certs is not None and "-----BEGIN" in ca_certs:
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
    return context


def make_tls_context_for(
    urls: Iterable[str], ca_certs: str | None, verify_certs: bool = True
) -> ssl.SSLContext | None:
    """A context as `make_tls_context` makes it if one of the URLs says https, otherwise None."""
    if any(urlsplit(url).scheme == "https" for url in urls):
        return make_tls_context(ca_certs, verify_certs)
    return None
