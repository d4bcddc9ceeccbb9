"""What is installed here: the release whose names this is, and what of it is left out."""

from __future__ import annotations

import re
from typing import NoReturn

from fluid.recording.checks import check_type

__all__ = [
    "load_op_library",
    "require_version",
]

RELEASE = "1.8.5"
"""The release of the reference whose names and behaviour this package has."""


class VersionError(Exception):
    """The release whose names this is lies outside what a script requires."""


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Raise VersionError unless 1.8.5 lies between two versions, both included.

    Raises TypeError for what is no string and ValueError for what is no version.

    >>> require_version("1.6.0")
    >>> require_version("1.6.0", max_version="1.8")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    VersionError: a version from 1.6.0 to 1.8 is required, but this is 1.8.5
    """
    check_type(min_version, "min_version", str, "require_version")
    check_type(max_version, "max_version", (str, type(None)), "require_version")
    least = _numbers(min_version, "min_version")
    most = None if max_version is None else _numbers(max_version, "max_version")
    installed = _numbers(RELEASE, "RELEASE")
    if installed < least or (most is not None and installed > most):
        wanted = f"from {min_version} to {max_version}" if most else f"of {min_version} or higher"
        raise VersionError(f"a version {wanted} is required, but this is {RELEASE}")


def _numbers(version: str, name: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+(\.\d+){0,3}", version):
        raise ValueError(
            f"The value of {name!r} in require_version must be in format '\\d+(\\.\\d+){{0,3}}', "
            f"like '1.5.2.0', but received {version}"
        )
    numbers = [int(number) for number in version.split(".")]
    return (*numbers, *[0] * (4 - len(numbers)))


def load_op_library(lib_filename: str) -> NoReturn:
    """Raises RuntimeError: libraries of operators are built against the reference's own code."""
    raise RuntimeError(
        f"{lib_filename}: operators in C++ cannot be loaded; write them in Python and call "
        "fluid.layers.py_func"
    )
