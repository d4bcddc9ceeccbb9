"""Names that statements assign, change and read, and which are read later (liveness)."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TypeVar

from compiler.support.dataclass import dataclass

__all__ = [
    "Continuation",
    "Liveness",
    "Writes",
    "declared_names",
    "dotted_name",
    "located",
    "own_nodes",
    "reads",
    "writes",
]

Loop = ast.For | ast.While
Node = TypeVar("Node", bound=ast.expr | ast.stmt)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
MUTATORS = frozenset("append extend insert pop remove clear update setdefault reverse sort".split())
"""Methods that change a list or dict."""


class Continuation(ast.FunctionDef):
    """The statements after a branch as a function without arguments; its names are those around."""


def located(new: Node, at: ast.expr | ast.stmt) -> Node:
    """Give a new node the line of another one; it is one line, so that errors show that."""
    new.lineno = new.end_lineno = at.lineno
    new.col_offset = new.end_col_offset = at.col_offset
    return new


def dotted_name(node: ast.expr) -> str | None:
    """Return `a` or `self.a.b` for an expression that is one; None for another."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


def own_nodes(nodes: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """Iterate over nodes and what they contain, except the bodies of functions and classes."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, _SCOPES) or isinstance(node, Continuation):
            waiting.extend(ast.iter_child_nodes(node))


@dataclass
class Writes:
    """What statements write: names that they bind, and dotted names that they assign or change."""

    bound: dict[str, None] = field(default_factory=dict[str, None])
    attributes: dict[str, None] = field(default_factory=dict[str, None])
    changed: dict[str, None] = field(default_factory=dict[str, None])

    @property
    def state(self) -> list[str]:
        """All of them; attributes of objects that are bound here are left out."""
        others = [
            name
            for name in [*self.attributes, *self.changed]
            if "." not in name or name.partition(".")[0] not in self.bound
        ]
        return list(dict.fromkeys([*self.bound, *others]))


def writes(statements: Iterable[ast.stmt]) -> Writes:
    """Return what statements of one function write, nested functions excepted."""
    found = Writes()
    for node in own_nodes(statements):
        match node:
            case ast.Name(ctx=ast.Store() | ast.Del()):
                found.bound[node.id] = None
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.bound[node.name] = None
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                found.bound[name] = None
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    found.bound[alias.asname or alias.name.partition(".")[0]] = None
            case ast.Attribute(ctx=ast.Store()):
                _add(found.attributes, node)
            case ast.Subscript(ctx=ast.Store() | ast.Del()):
                _add(found.changed, node.value)
            case ast.Call(func=ast.Attribute(attr=attr) as method) if attr in MUTATORS:
                _add(found.changed, method.value)
            case _:
                pass
    for name in _comprehension_targets(statements):
        found.bound.pop(name, None)
    return found


def _add(names: dict[str, None], node: ast.expr) -> None:
    while isinstance(node, ast.Subscript):
        node = node.value
    name = dotted_name(node)
    if name is not None:
        names[name] = None


def _comprehension_targets(statements: Iterable[ast.stmt]) -> set[str]:
    """Return names that only comprehensions bind."""
    everything = list(own_nodes(statements))
    inside = {
        target
        for node in everything
        if isinstance(node, _COMPREHENSIONS)
        for generator in node.generators
        for target in ast.walk(generator.target)
    }
    inner = {node.id for node in inside if isinstance(node, ast.Name)}
    outer = {
        node.id
        for node in everything
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in inside
    }
    return inner - outer


def reads(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that nodes read, also in functions that they define."""
    return {
        name.id
        for node in nodes
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
    }


def declared_names(function: ast.FunctionDef) -> dict[str, str]:
    """Return the names that a function declares, with "global" or "nonlocal"."""
    found: dict[str, str] = {}
    for node in own_nodes(function.body):
        if isinstance(node, ast.Global | ast.Nonlocal):
            kind = "global" if isinstance(node, ast.Global) else "nonlocal"
            found |= dict.fromkeys(node.names, kind)
    return found


class Liveness:
    """Which names are read after each branch and loop of a function.

    `after` has, for the id of a statement, the names that are read later; for a loop also those
    that its next iteration reads. Names that nested functions read count as read everywhere.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.after: dict[int, set[str]] = {}
        nested = [node for node in own_nodes(function.body) if isinstance(node, _SCOPES)]
        self._always = reads(nested) | set(declared_names(function))
        self._before(function.body, set())

    def _before(self, statements: Sequence[ast.stmt], live: set[str]) -> set[str]:
        """Return the names that are read before they are written, from statements on."""
        for statement in reversed(statements):
            live = self._before_statement(statement, live)
        return live

    def _before_statement(self, statement: ast.stmt, live: set[str]) -> set[str]:
        match statement:
            case ast.If():
                self.after[id(statement)] = live | self._always
                branches = [self._before(part, live) for part in (statement.body, statement.orelse)]
                return reads([statement.test]).union(*branches)
            case ast.While() | ast.For():
                return self._before_loop(statement, live)
            case ast.With():
                inside = self._before(statement.body, live)
                return inside | reads(statement.items)
            case Continuation():
                self._before(statement.body, set())
                return live - {statement.name}
            case ast.Match():
                live = live | reads([statement])
                return live.union(*[self._before(part.body, live) for part in statement.cases])
            case ast.Try() | ast.TryStar():
                parts = [statement.body, statement.orelse, statement.finalbody]
                parts += [handler.body for handler in statement.handlers]
                live = live | reads([statement])
                return live.union(*[self._before(part, live) for part in parts])
            case ast.Return() | ast.Raise():
                return reads([statement])
            case _:
                bound = set(writes([statement]).bound)
                return (live - bound) | reads([statement]) | _augmented(statement)

    def _before_loop(self, loop: Loop, live: set[str]) -> set[str]:
        tested = loop.test if isinstance(loop, ast.While) else loop.iter
        targets: set[str] = set()
        if isinstance(loop, ast.For):
            names = [node for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
            targets = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        live = self._before(loop.orelse, live)
        alive: ast.expr | None = getattr(loop, "alive", None)
        tests = [tested] if isinstance(loop, ast.While) else [alive] if alive else []
        head = live | reads(tests)
        while True:
            inside = self._before(loop.body, head) - targets
            if inside <= head:
                break
            head = head | inside
        self.after[id(loop)] = head | self._always
        return head | reads([tested])


def _augmented(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        return {statement.target.id}
    return set()
