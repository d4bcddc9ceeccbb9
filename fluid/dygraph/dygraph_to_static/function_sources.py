"""The syntax tree of a function, found in its file by the line of its code."""

from __future__ import annotations

import ast
import linecache
from types import FunctionType
from typing import TypeAlias

__all__ = ["FoundFunction", "FunctionNode", "find_function", "function_name"]

FunctionNode: TypeAlias = ast.FunctionDef | ast.Lambda

FoundFunction: TypeAlias = tuple[FunctionNode, str]
"""A definition, and the name of the class around it, by which private names are mangled."""

_trees: dict[str, tuple[list[str], dict[int, list[FoundFunction]]]] = {}
"""By file: its lines, and its functions by the line where their code begins."""


def find_function(function: FunctionType) -> FoundFunction | None:
    """Return the definition of a function; None if its source is not available.

    That is so for functions made by `exec` or at a prompt, for files that have changed since, and
    for one of several lambdas in a line.
    """
    code = function.__code__
    found = [
        (node, class_name)
        for node, class_name in _functions(code.co_filename, function.__globals__).get(
            code.co_firstlineno, []
        )
        if _name(node) == code.co_name and _argument_names(node) == _expected_names(function)
    ]
    return found[0] if len(found) == 1 else None


def function_name(function: FunctionType) -> str:
    """Return a function's name and where it is defined, for messages."""
    code = function.__code__
    return f"{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"


def _name(node: FunctionNode) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _argument_names(node: FunctionNode) -> list[str]:
    args = node.args
    listed = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    rest = [arg for arg in (args.vararg, args.kwarg) if arg is not None]
    return [_unmangled(arg.arg) for arg in (*listed, *rest)]


def _expected_names(function: FunctionType) -> list[str]:
    code = function.__code__
    flags = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    count = code.co_argcount + code.co_kwonlyargcount + flags
    return [_unmangled(name) for name in code.co_varnames[:count]]


def _unmangled(name: str) -> str:
    """Return a private name without the class that Python puts before it."""
    return "__" + name.partition("__")[2] if name.startswith("_") and "__" in name else name


def _functions(file: str, namespace: dict[str, object]) -> dict[int, list[FoundFunction]]:
    linecache.checkcache(file)
    lines = linecache.getlines(file, namespace)
    cached = _trees.get(file)
    if cached is not None and cached[0] == lines:
        return cached[1]
    functions: dict[int, list[FoundFunction]] = {}
    try:
        _collect(ast.parse("".join(lines)), "", functions)
    except (SyntaxError, ValueError):
        functions = {}
    _trees[file] = lines, functions
    return functions


def _collect(node: ast.AST, class_name: str, functions: dict[int, list[FoundFunction]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.Lambda):
            decorators = child.decorator_list if isinstance(child, ast.FunctionDef) else []
            first = min([child.lineno, *(decorator.lineno for decorator in decorators)])
            functions.setdefault(first, []).append((child, class_name))
        _collect(child, child.name if isinstance(child, ast.ClassDef) else class_name, functions)
