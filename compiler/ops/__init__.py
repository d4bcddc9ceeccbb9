"""The ops of fluid: a folder for each subject, a file for each family, a class for each op.

The registry imports the module of an op at its first lookup, which `homes` tells; for an op that is
not listed there, all of them.
"""

import pkgutil
from importlib import import_module


def import_all() -> None:
    """Import every module of ops, in order of its name."""
    for family in sorted(module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.")):
        import_module(family)
