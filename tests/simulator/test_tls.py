"""Whom to trust with TLS."""

from __future__ import annotations

import ssl

import pytest

from simulator.errors import SimulatorError
from simulator.modules._base.http_connection import make_tls_context_for


def test_only_who_says_https_needs_trust() -> None:
    assert make_tls_context_for(["http://a", "http://b"], "no-such-file.pem") is None
    # A scheme's case doesn't matter: https://www.rfc-editor.org/rfc/rfc3986#section-3.1
    for urls in (["http://a", "https://b"], ["HTTPS://a"]):
        context = make_tls_context_for(urls, None)
        assert context is not None
        assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
        unchecked = make_tls_context_for(urls, None, verify_certs=False)
        assert unchecked is not None
        assert not unchecked.check_hostname and unchecked.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("ca_certs", ["no-such-file.pem", "-----BEGIN CERTIFICATE-----"])
def test_authorities_that_can_not_be_used(ca_certs: str) -> None:
    with pytest.raises(SimulatorError, match="ca_certs can't be used"):
        make_tls_context_for(["https://a"], ca_certs)
