"""A certificate for tests of TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path, address: str = "127.0.0.1") -> Path:
    """A PEM file with key and certificate of a server at this address; made once in each folder."""
    file = folder / f"{address}.pem"
    if not file.exists():
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName=IP:{address}",
                "-keyout", key, "-out", certificate,
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        file.write_text(key.read_text() + certificate.read_text())
    return file
