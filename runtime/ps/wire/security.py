"""Access control of servers: an optional token, and TLS, mutual if trainers have certificates."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path

from compiler.support.dataclass import dataclass
from compiler.support.settings.parameter_servers import (
    FLUID_PS_CA,
    FLUID_PS_CERT,
    FLUID_PS_KEY,
    FLUID_PS_TOKEN,
)
from compiler.support.settings.setting import Environ, Setting
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
    def from_env(environ: Environ = None, given: Mapping[str, str] | None = None) -> Security:
        """Read FLUID_PS_TOKEN, and the files FLUID_PS_CERT, FLUID_PS_KEY and FLUID_PS_CA.

        If a variable is not set, `given` has its value under `ps_token`, `ps_cert`, `ps_key` or
        `ps_ca`. Raises WireError for a file that cannot be read, and for a certificate without its
        key.
        """
        fields = given or {}
        token = FLUID_PS_TOKEN.text(environ) or fields.get("ps_token") or None
        certificate = _file(FLUID_PS_CERT, environ, fields.get("ps_cert"))
        key = _file(FLUID_PS_KEY, environ, fields.get("ps_key"))
        authority = _file(FLUID_PS_CA, environ, fields.get("ps_ca"))
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
        tokens = [value for key, value in metadata if key == TOKEN_KEY]
        return any(hmac.compare_digest(_raw(value), self.token.encode()) for value in tokens)


def _raw(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def _file(setting: Setting[str | None], environ: Environ, configured: str | None) -> bytes | None:
    """Read the PEM file named by a variable, or else by a field of the settings."""
    path = setting.read_or(configured, environ)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        field = f"config.{setting.name.removeprefix('FLUID_').lower()}"
        named = setting.name if setting.is_set(environ) else field
        raise WireError(f"{named} is {path}, which cannot be read: {error.strerror}") from error
