"""`paddle.version`: the release whose names and behaviour this package has."""

from fluid.compat.installed import RELEASE

__all__ = [
    "commit", "full_version", "istaged", "major", "minor", "mkl", "patch", "rc", "show", "with_mkl",
]  # fmt: skip

full_version = RELEASE
major, minor, patch = RELEASE.split(".")
rc = "0"
istaged = True
with_mkl = "OFF"
commit = "8e1712a71057e3ca06a2927ceec51c18cb171fdc"
"""The commit of the reference's repository that is release 1.8.5."""


def mkl() -> str:
    """Whether products are computed by MKL: "OFF"."""
    return with_mkl


def show() -> None:
    """Print the release and its parts.

    >>> show()
    full_version: 1.8.5
    major: 1
    minor: 8
    patch: 5
    rc: 0
    """
    for name in ("full_version", "major", "minor", "patch", "rc"):
        print(f"{name}: {globals()[name]}")
