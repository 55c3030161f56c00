"""TLS: a certificate and its key from files, read anew when told to."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from models.errors import UserError

log = logging.getLogger(__name__)


class Tls:
    """`context` is for the listener; handshakes after `reload` see the new certificate.

    `key` None: it is in the certificate's file. Raises `UserError` (`invalid_setting`).
    """

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        self._files = (certificate, key)
        self.context = _loaded(certificate, key)

    def reload(self) -> None:
        """Where the files cannot be used those in use stay, and the log says why."""
        try:
            # Tried apart from the listener: half of a pair must never be served.
            _loaded(*self._files)
            _load(self.context, *self._files)
        except UserError as error:
            log.error("the certificate was not reloaded, that in use stays: %s", error.message)
        else:
            log.info("the certificate was read again")


def _loaded(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load(context, certificate, key)
    return context


def _load(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    for path in filter(None, (certificate, key)):
        _require_readable(path)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        raise _invalid(f"{certificate} and its key cannot be used: {reason}") from None
    except (OSError, ValueError) as error:
        raise _invalid(f"{certificate} and its key cannot be used: {error}") from None


def _require_readable(path: Path) -> None:
    """OpenSSL does not say which of two files it could not read."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise _invalid(f"{path} is no regular file")
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise _invalid(f"{path} cannot be read: {error.strerror or error}") from None


def _no_password() -> str:
    """Without this OpenSSL would ask the terminal for one, and wait."""
    raise ValueError("the key is encrypted; give one without a passphrase")


def _invalid(problem: str) -> UserError:
    return UserError(f"TLS: {problem}.", code="invalid_setting", param="tls_certificate")
