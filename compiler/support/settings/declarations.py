"""All settings that are declared, and variables of the environment that only look like one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeGuard

from compiler.support.settings import fluid, paddle, parameter_servers, systems
from compiler.support.settings.setting import Environ, Setting

MODULES = (fluid, parameter_servers, paddle, systems)
PREFIX = "FLUID_"
"""What the names of our own settings begin with."""


def declared(names: Mapping[str, Any]) -> list[Setting[Any]]:
    """Return the settings of a module, each once, in order of declaration."""
    settings: dict[str, Setting[Any]] = {}
    for value in names.values():
        for each in value if _is_group(value) else (value,):
            if _is_setting(each):
                settings[each.name] = each
    return list(settings.values())


def setting_names() -> list[str]:
    """Return the names of all settings, in order of declaration."""
    return [setting.name for module in MODULES for setting in declared(vars(module))]


def unknown_variables(environ: Environ = None) -> list[str]:
    """Return the variables named `FLUID_…` that no setting has, sorted.

    >>> unknown_variables({"FLUID_CHACHE": "/tmp", "FLUID_CACHE": "/tmp", "HOME": "/root"})
    ['FLUID_CHACHE']
    """
    present = os.environ if environ is None else environ
    return sorted({name for name in present if name.startswith(PREFIX)} - {*setting_names()})


def _is_setting(value: Any) -> TypeGuard[Setting[Any]]:
    return isinstance(value, Setting)


def _is_group(value: Any) -> TypeGuard[tuple[Setting[Any], ...]]:
    return isinstance(value, tuple) and value == paddle.FLAGS
