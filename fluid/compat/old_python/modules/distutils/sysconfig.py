"""Where Python is installed."""

from __future__ import annotations

from sysconfig import get_config_var, get_config_vars, get_path

__all__ = ["get_config_var", "get_config_vars", "get_python_inc", "get_python_lib"]


def get_python_lib(plat_specific: int = 0, standard_lib: int = 0, prefix: str | None = None) -> str:
    """The folder of installed packages, or of the standard library."""
    kind = ("plat" if plat_specific else "pure") + "lib"
    name = ("platstdlib" if plat_specific else "stdlib") if standard_lib else kind
    return get_path(name, vars=None if prefix is None else {"base": prefix, "platbase": prefix})


def get_python_inc(plat_specific: int = 0, prefix: str | None = None) -> str:
    """The folder of C headers."""
    name = "platinclude" if plat_specific else "include"
    return get_path(name, vars=None if prefix is None else {"base": prefix, "platbase": prefix})
