"""Functions of users, compiled again from their rewritten source."""

from __future__ import annotations

import ast
import inspect
import os
import sysconfig
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, MethodType

from compiler.support.tracebacks import is_ours
from fluid.dygraph.dygraph_to_static.ast_transformer import RUNTIME, transformed
from fluid.dygraph.dygraph_to_static.function_sources import find_function, function_name
from fluid.dygraph.dygraph_to_static.values import Value

__all__ = ["SourceError", "convert_function", "rewritten_source",
    "undecorated", "underlying_function",
]  # fmt: skip

LIBRARIES = frozenset({"numpy", "scipy", "torch", "networkx", "pytest", "PIL", "cv2", "pandas"})
"""Packages whose functions are called as they are, like those of Python itself."""
_STANDARD = sysconfig.get_path("stdlib")

_codes: dict[CodeType, CodeType | None] = {}
"""The rewritten code by that of the function; None if it has no source or is a generator."""
_rewritten: set[CodeType] = set()


class SourceError(OSError):
    """The source of a function that must be rewritten is not available."""


def underlying_function(function: object) -> FunctionType | None:
    """Return the Python function of a function or bound method; None for another callable."""
    inner = function.__func__ if isinstance(function, MethodType) else function
    return inner if isinstance(inner, FunctionType) else None


def undecorated(function: Value) -> Value:
    """Return the function or method that `declarative` or `dygraph_to_static_func` decorates."""
    inner: Value = underlying_function(function)
    while (
        inner is not None and is_ours(inner.__code__.co_filename) and "__wrapped__" in vars(inner)
    ):
        inner = inner.__wrapped__
    if inner is None:
        return function
    return MethodType(inner, function.__self__) if isinstance(function, MethodType) else inner


def convert_function(function: Value, runtime: object, *, required: bool = False) -> Value:
    """Return a function whose branches and loops on tensors become ops where it is called.

    Functions of libraries, generators, and those without a source are returned as they are.
    Raises SourceError for one without a source if it is `required`.
    """
    inner = underlying_function(function)
    if inner is None or _is_library(inner) or inner.__code__ in _rewritten:
        return function
    code = inner.__code__
    if code not in _codes:
        _codes[code] = _rewritten_code(inner)
    new = _codes[code]
    if new is None:
        if required and find_function(inner) is None:
            raise SourceError(
                f"the source of {function_name(inner)} is not available, so that its branches and "
                "loops cannot become ops: define it in a file"
            )
        return function
    converted = _bound(inner, new, runtime)
    return (
        MethodType(converted, function.__self__) if isinstance(function, MethodType) else converted
    )


def _is_library(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    if (function.__module__ or "").partition(".")[0] in LIBRARIES or _is_standard(file):
        return True
    return is_ours(file) and not file.endswith("fluid/dygraph/container.py")


def _is_standard(file: str) -> bool:
    return file.startswith(_STANDARD + os.sep) and "site-packages" not in file


def _rewritten_code(function: FunctionType) -> CodeType | None:
    found = find_function(function)
    if found is None:
        return None
    node = transformed(found[0])
    if node is None:
        return None
    original = function.__code__
    if isinstance(node, ast.Lambda):
        body: ast.stmt = ast.copy_location(ast.Expr(node), found[0])
    else:
        body = node
    free = [name for name in original.co_freevars if name != RUNTIME]
    names = [ast.arg(name) for name in dict.fromkeys([RUNTIME, *free]) if name != "__class__"]
    inner: ast.stmt = ast.ClassDef(found[1] or "_Class", [], [], [body], [])
    arguments = ast.arguments([], names, None, [], [], None, [])
    factory = ast.FunctionDef("_factory", arguments, [inner], [], None)
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(factory, body)], []))
    compiled = compile(module, original.co_filename, "exec", dont_inherit=True)
    wanted = next(
        code
        for code in _inner_codes(compiled)
        if code.co_name == original.co_name and code.co_flags & inspect.CO_NEWLOCALS
    )
    _rewritten.update([wanted, *_inner_codes(wanted)])
    return wanted.replace(co_qualname=original.co_qualname)


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    """Iterate over the code of what a code defines, outermost first."""
    inside = [const for const in code.co_consts if isinstance(const, CodeType)]
    yield from inside
    for inner in inside:
        yield from _inner_codes(inner)


def _bound(function: FunctionType, code: CodeType, runtime: object) -> FunctionType:
    """Return a function of other code, with the variables of this one."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells[RUNTIME] = CellType(runtime)
    closure = tuple(cells[name] for name in code.co_freevars)
    bound = FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    bound.__kwdefaults__ = function.__kwdefaults__
    bound.__dict__.update(function.__dict__)
    return bound


def rewritten_source(function: FunctionType) -> str:
    """Return the rewritten source of a function.

    Raises SourceError if its source is not available.
    """
    found = find_function(function)
    node = None if found is None else transformed(found[0])
    if node is None:
        raise SourceError(f"the source of {function_name(function)} is not available")
    return ast.unparse(node) + "\n"
