"""Who may scrape: TLS, certificates of clients, and basic authentication.

prometheus_client's own server has no authentication, shakes hands with one client at a time before it accepts the
next, and starts a thread for each: so its application is served by a server of ours, and what guards it is here.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import ssl
import stat
from typing import Optional


class AccessError(Exception):
    """A file cannot be used; the message is one line for the user."""


def tls_context(certificate: str, key: Optional[str], client_ca: Optional[str]) -> ssl.SSLContext:
    """With `client_ca` scrapers must show a certificate that it has signed; raises AccessError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=lambda: b"")  # nobody is there to be asked
    except (OSError, ValueError) as error:
        files = certificate if key is None else f"{certificate} with {key}"
        raise AccessError(f"{files}: no certificate and key that belong together: {_words(error)}") from None
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except (OSError, ValueError) as error:
            raise AccessError(f"{client_ca}: no certificates in it: {_words(error)}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def read_credentials(path: str) -> bytes:
    """ "USER:PASSWORD" of a file that nobody else can read; raises AccessError."""
    try:
        with open(path, "rb") as file:
            info = os.fstat(file.fileno())
            line = file.read(4096).rstrip(b"\r\n")
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(info.st_mode) or info.st_uid not in (os.geteuid(), 0):
        raise AccessError(f"{path}: not a file of yours")
    if info.st_mode & 0o077:
        raise AccessError(f"{path} can be read by others: chmod 600 {path}")
    user, _, password = line.partition(b":")
    if not user or not password or b"\n" in line:
        raise AccessError(f"{path}: one line USER:PASSWORD is wanted in it")
    return line


def is_authorised(header: str, credentials: bytes) -> bool:
    """Whether an Authorization header has these; takes as long whatever is wrong with them."""
    scheme, _, encoded = header.partition(" ")
    try:
        given = base64.b64decode(encoded.strip(), validate=True) if scheme.lower() == "basic" else b""
    except (binascii.Error, ValueError):
        given = b""
    return hmac.compare_digest(given, credentials)
