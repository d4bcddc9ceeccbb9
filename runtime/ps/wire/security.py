"""Access control of servers: an optional token, and TLS, mutual if trainers have certificates."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import WireError

TOKEN_KEY = "x-fluid-token"
"""The key of the token in a call's metadata."""


@dataclass(frozen=True)
class Security:
    """The token and the files of TLS; all are None for a job without them.

    `authority` is the CA certificate that signed those of the others: servers that have one only
    accept trainers with such a certificate.
    """

    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    authority: bytes | None = None

    @staticmethod
    def from_env(
        environ: Mapping[str, str] = os.environ, given: Mapping[str, str] | None = None
    ) -> Security:
        """Read FLUID_PS_TOKEN, and the files FLUID_PS_CERT, FLUID_PS_KEY and FLUID_PS_CA.

        If a variable is not set, `given` has its value under `ps_token`, `ps_cert`, `ps_key` or
        `ps_ca`. Raises WireError for a file that cannot be read, and for a certificate without its
        key.
        """
        fields = given or {}
        token = environ.get("FLUID_PS_TOKEN") or fields.get("ps_token") or None
        certificate, key, authority = (_file(environ, fields, n) for n in ("cert", "key", "ca"))
        if (certificate is None) != (key is None):
            raise WireError(
                "FLUID_PS_CERT and FLUID_PS_KEY belong together, as config.ps_cert and "
                "config.ps_key do: one is not set"
            )
        return Security(token, certificate, key, authority)

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.certificate is not None or self.authority is not None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata that a trainer sends with every call."""
        return () if self.token is None else ((TOKEN_KEY, self.token),)

    def accepts(self, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
        """Whether a call's metadata contain the token; compared in constant time."""
        if self.token is None:
            return True
        given = [value for key, value in metadata if key == TOKEN_KEY]
        return any(hmac.compare_digest(_raw(value), self.token.encode()) for value in given)


def _raw(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _file(environ: Mapping[str, str], given: Mapping[str, str], name: str) -> bytes | None:
    """Read the PEM file named by a variable, or else by a field of the settings."""
    variable, field = f"FLUID_PS_{name.upper()}", f"ps_{name}"
    named = variable if environ.get(variable) else f"config.{field}"
    path = environ.get(variable) or given.get(field)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise WireError(f"{named} is {path}, which cannot be read: {error.strerror}") from error
