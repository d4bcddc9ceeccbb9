"""What to say of a name that Paddle 1.8 has and this version does not, or that nobody has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from compiler.errors import did_you_mean

_LINE_BY_LINE = (
    "programs are recorded and compiled here, never run line by line; build the network by "
    "fluid.layers in a Program and run it by fluid.Executor"
)
_COMPRESSION = (
    "of compression there is quantization: the passes of contrib.slim.quantization and "
    "contrib.QuantizeTranspiler; programs that release 1.8.5 pruned can be loaded, trained and run"
)
_NATIVE_PASS = (
    "passes of the native library are not here; passes over compiler graphs are written as "
    "docs/cookbook.md shows"
)
_ABSENT = {
    **dict.fromkeys(
        "dygraph imperative jit ParamBase declarative dygraph_to_static_func "
        "ProgramTranslator TracedLayer VarBase".split(),
        _LINE_BY_LINE,
    ),
    **dict.fromkeys(
        "slim Compressor PostTrainingQuantization WeightQuantization Pruner".split(),
        _COMPRESSION,
    ),
    "get_pass": _NATIVE_PASS,
    "ComplexVariable": "complex numbers are of dygraph, and " + _LINE_BY_LINE,
    "Tracer": _LINE_BY_LINE,
}


def why_absent(name: str) -> str:
    """Why a name of release 1.8 is not here, and what there is instead; empty for others."""
    return _ABSENT.get(name, "")


def not_yet(module: str, known: Mapping[str, object]) -> Callable[[str], NoReturn]:
    """A `__getattr__` for a module whose AttributeError has a hint or the status of the name.

    >>> not_yet("fluid.layers", {"relu": None})("rellu")
    Traceback (most recent call last):
    AttributeError: fluid.layers has no 'rellu' (yet): did you mean 'relu'?
    >>> not_yet("fluid.layers", {"relu": None})("dynamic_lstm")
    Traceback (most recent call last):
    AttributeError: fluid.layers has no 'dynamic_lstm' (yet): README.md tells what works so far
    """

    def missing(name: str) -> NoReturn:
        if why_absent(name):
            raise AttributeError(f"{module} has no {name!r}: {why_absent(name)}")
        public = [attribute for attribute in known if not attribute.startswith("_")]
        hint = did_you_mean(name, public) or "README.md tells what works so far"
        raise AttributeError(f"{module} has no {name!r} (yet): {hint}")

    return missing
