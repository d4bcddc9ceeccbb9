"""Names of release 1.8.5 that are not here: why, and objects that say so when they are used.

Whole projects import names that a script never uses. So `from
paddle.fluid.contrib.slim.quantization import QatInt8MkldnnPass` succeeds, and calling or reading
anything of it raises with the
reason; a class may derive from it, but not be instantiated. Attributes of modules are as before:
`hasattr(quantization, "QatInt8MkldnnPass")` is False, so that scripts that look for a name before
they use it take their other branch. A script that catches ImportError for it takes its first
branch.

`absent_names.txt` has the names by reason: a module a line, with its absent names or `*` for all.
"""

from __future__ import annotations

from functools import cache
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import NoReturn

__all__ = ["FILE", "AbsentFinder", "AbsentName", "why_absent"]

FILE = Path(__file__).with_name("absent_names.txt")


def why_absent(name: str) -> str:
    """Why a name is absent, and what there is instead; empty for names that are here or unknown.

    >>> why_absent("paddle.fluid.distributed.ps_instance.PaddlePSInstance")
    "Executor.train_from_dataset and the fleets do the work of the reference's trainers."
    >>> why_absent("paddle.fluid.layers.fc")
    ''
    """
    parts = name.replace("paddle.fluid.core.", "paddle.fluid.core_avx.", 1).split(".")
    prefixes = (".".join(parts[:count]) for count in range(len(parts), 1, -1))
    return next((_reasons()[prefix] for prefix in prefixes if prefix in _reasons()), "")


@cache
def _reasons() -> dict[str, str]:
    """Reasons by full name, and by the name of a module that is absent as a whole."""
    reasons: dict[str, str] = {}
    reason = ""
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            module, _, names = line.partition(": ")
            whole = names == "*"
            full_names = [module] if whole else [f"{module}.{name}" for name in names.split()]
            reasons |= dict.fromkeys(full_names, reason)
    return reasons


def absent_text(name: str) -> str:
    """The message about an absent name."""
    return f"{name} of release 1.8.5 is not here. {why_absent(name)}"


class AbsentName(ModuleType):
    """What the import of an absent name or module gives; every use raises with the reason."""

    def __init__(self, name: str) -> None:
        super().__init__(name, absent_text(name))
        self.__path__ = []

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError."""
        raise AttributeError(absent_text(self.__name__))

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise NotImplementedError: there is no such function or class."""
        raise NotImplementedError(absent_text(self.__name__))

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type]:
        """A base class whose subclasses raise NotImplementedError when they are instantiated."""

        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise NotImplementedError(absent_text(self.__name__))

        return (type(self.__name__.rpartition(".")[2], (), {"__new__": refuse}),)

    def __instancecheck__(self, instance: object) -> bool:
        """False: there are no instances."""
        return False

    def __repr__(self) -> str:
        return f"<absent {self.__name__}>"


class AbsentFinder(Loader):
    """The last import finder: absent names below `paddle`, and errors for unknown ones."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """A spec for absent names, None for others' modules.

        Raises ModuleNotFoundError for other names below `paddle`.
        """
        if not name.startswith("paddle."):
            return None
        if why_absent(name):
            return spec_from_loader(name, cls(), is_package=True)
        raise ModuleNotFoundError(
            f"No module named {name!r}; docs/old_scripts.md lists what there is", name=name
        )

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The object that raises when it is used."""
        return AbsentName(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing."""
