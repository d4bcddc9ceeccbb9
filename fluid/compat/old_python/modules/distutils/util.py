"""Words for yes and no, and the platform."""

from __future__ import annotations

from sysconfig import get_platform

__all__ = ["get_platform", "strtobool"]

_WORDS = {
    **dict.fromkeys(("y", "yes", "t", "true", "on", "1"), 1),
    **dict.fromkeys(("n", "no", "f", "false", "off", "0"), 0),
}


def strtobool(val: str) -> int:
    """1 for a word that means yes, 0 for one that means no; raises ValueError otherwise.

    >>> strtobool("True"), strtobool("off")
    (1, 0)
    """
    if val.lower() not in _WORDS:
        raise ValueError(f"invalid truth value {val!r}")
    return _WORDS[val.lower()]
