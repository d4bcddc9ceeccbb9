"""Statements that leave a loop or function, rewritten so that branches and loops can be functions.

`break` and `continue` become flags that the rest of a body and the loop's test read, and `return`
in a loop a flag and a value. Then a branch that may return is made to return in both of its parts:
what follows it moves into the parts that do not.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from compiler.support.dataclass import dataclass
from fluid.dygraph.dygraph_to_static.names import Continuation, located, own_nodes

__all__ = ["lower_exits"]

Region = ast.With | ast.Try | ast.TryStar | ast.Match
Loop = ast.While | ast.For


@dataclass(frozen=True)
class _Exits:
    """The flags that exits set: of the loop around, and of the statement that a return leaves."""

    breaking: str = ""
    continuing: str = ""
    returning: str = ""


def lower_exits(function: ast.FunctionDef) -> None:
    """Rewrite the exits of a function, except those of functions in it."""
    body = _Lowering().statements(function.body, _Exits())
    function.body = _Folding().statements(body)


def _contains(nodes: Sequence[ast.AST], kind: type[ast.AST]) -> bool:
    return any(isinstance(node, kind) for node in own_nodes(nodes))


def _has_nested_return(statement: ast.stmt) -> bool:
    """Return whether a branch or loop within a statement returns."""
    return any(
        node is not statement
        and isinstance(node, ast.If | ast.While | ast.For | ast.Match)
        and _contains([node], ast.Return)
        for node in own_nodes([statement])
    )


def _assigned(name: str, value: ast.expr, at: ast.stmt) -> ast.stmt:
    target = ast.Name(name, ast.Store())
    return located(ast.Assign([target], value), at)


def _read(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


class _Lowering:
    """Turns exits of loops, and returns within them, into flags."""

    def __init__(self) -> None:
        self._count = 0
        self._flags: set[str] = set()

    def _flag(self, kind: str) -> str:
        name = f"_{kind}_{self._count}"
        self._flags.add(name)
        return name

    def statements(self, statements: Sequence[ast.stmt], exits: _Exits) -> list[ast.stmt]:
        """Return statements without exits; what follows one in a branch is guarded by its flags."""
        lowered: list[ast.stmt] = []
        waiting = list(statements)
        while waiting:
            statement = waiting.pop(0)
            match statement:
                case ast.Break():
                    return [*lowered, self._set(exits.breaking, statement)]
                case ast.Continue():
                    return [*lowered, self._set(exits.continuing, statement)]
                case ast.Return() if exits.returning:
                    return [*lowered, *self._return(statement, exits)]
                case ast.Return():
                    return [*lowered, statement]
                case ast.If():
                    statement.body = self.statements(statement.body, exits)
                    statement.orelse = self.statements(statement.orelse, exits)
                    lowered.append(statement)
                    before: list[ast.stmt] = []
                case ast.While() | ast.For():
                    before, after = self._loop(statement)
                    lowered += [*before, statement]
                    waiting[:0] = after
                case ast.With() | ast.Try() | ast.TryStar() | ast.Match():
                    before, after = self._region(statement, exits)
                    lowered += [*before, statement]
                    waiting[:0] = after
                case _:
                    lowered.append(statement)
                    continue
            set_here = self._set_by(statement) - self._set_by(*before)
            flags = sorted(set_here & {exits.breaking, exits.continuing, exits.returning})
            if flags and waiting:
                rest = self.statements(waiting, exits)
                return [*lowered, _guarded(flags, rest, waiting[0])]
        return lowered

    def _set(self, flag: str, at: ast.stmt) -> ast.stmt:
        return _assigned(flag, ast.Constant(True), at)

    def _set_by(self, *statements: ast.stmt) -> set[str]:
        names = [node for node in own_nodes(statements) if isinstance(node, ast.Name)]
        return {node.id for node in names if isinstance(node.ctx, ast.Store)} & self._flags

    def _return(self, statement: ast.Return, exits: _Exits) -> list[ast.stmt]:
        value = statement.value or ast.Constant(None)
        flags = [self._set(exits.returning, statement)]
        if exits.breaking:
            flags.append(self._set(exits.breaking, statement))
        return [_assigned(f"{exits.returning}_value", value, statement), *flags]

    def _loop(self, loop: Loop) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Lower a loop; returns what precedes and what follows it."""
        returns = _contains(loop.body, ast.Return)
        breaks = returns or _own_exit(loop.body, ast.Break)
        continues = _own_exit(loop.body, ast.Continue)
        self._count += 1
        exits = _Exits(
            self._flag("break") if breaks else "",
            self._flag("continue") if continues else "",
            self._flag("return") if returns else "",
        )
        body = self.statements(loop.body, exits)
        if continues:
            body.insert(0, _assigned(exits.continuing, ast.Constant(False), loop))
        loop.body = body
        before = [
            _assigned(flag, ast.Constant(False), loop)
            for flag in (exits.breaking, exits.returning)
            if flag
        ]
        after = loop.orelse
        loop.orelse = []
        if breaks:
            alive = ast.UnaryOp(ast.Not(), _read(exits.breaking))
            if isinstance(loop, ast.While):
                loop.test = located(ast.BoolOp(ast.And(), [alive, loop.test]), loop.test)
            else:
                vars(loop)["alive"] = located(alive, loop)
            after = [_guarded([exits.breaking], after, loop)] if after else []
        return before, self._returned(exits.returning, loop) + after

    def _returned(self, flag: str, at: ast.stmt) -> list[ast.stmt]:
        """Return the statement that returns a value set within a loop or region."""
        if not flag:
            return []
        value = located(ast.Return(_read(f"{flag}_value")), at)
        return [located(ast.If(_read(flag), [value], []), at)]

    def _region(self, region: Region, exits: _Exits) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Lower a `with`, `try` or `match`; returns what precedes and what follows it."""
        own = not exits.returning and _has_nested_return(region)
        if own:
            self._count += 1
            exits = _Exits(exits.breaking, exits.continuing, self._flag("return"))
        if isinstance(region, ast.Match):
            for part in region.cases:
                part.body = self.statements(part.body, exits)
        else:
            region.body = self.statements(region.body, exits)
        if isinstance(region, ast.Try | ast.TryStar):
            region.orelse = self.statements(region.orelse, exits)
            region.finalbody = self.statements(region.finalbody, exits)
            for handler in region.handlers:
                handler.body = self.statements(handler.body, exits)
        if not own:
            return [], []
        return [_assigned(exits.returning, ast.Constant(False), region)], self._returned(
            exits.returning, region
        )


def _own_exit(statements: Sequence[ast.stmt], kind: type[ast.stmt]) -> bool:
    """Return whether statements leave the loop around them by `kind`."""
    for statement in statements:
        if isinstance(statement, kind):
            return True
        parts: list[ast.stmt] = []
        match statement:
            case ast.While() | ast.For():
                parts = statement.orelse
            case ast.If():
                parts = statement.body + statement.orelse
            case ast.With():
                parts = statement.body
            case ast.Try() | ast.TryStar():
                parts = statement.body + statement.orelse + statement.finalbody
                parts = parts + [inner for part in statement.handlers for inner in part.body]
            case ast.Match():
                parts = [inner for part in statement.cases for inner in part.body]
            case _:
                pass
        if _own_exit(parts, kind):
            return True
    return False


def _guarded(flags: Sequence[str], statements: list[ast.stmt], at: ast.stmt) -> ast.stmt:
    """Return the statements in a branch that runs if no flag is set."""
    names = [_read(flag) for flag in flags]
    any_set = names[0] if len(names) == 1 else ast.BoolOp(ast.Or(), names)
    test = ast.UnaryOp(ast.Not(), any_set)
    return located(ast.If(test, statements or [ast.Pass()], []), at)


class _Folding:
    """Moves what follows a branch that may return into the parts of it that do not."""

    def __init__(self) -> None:
        self._count = 0

    def statements(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return statements in which a branch that may return is the last, and always returns."""
        folded: list[ast.stmt] = []
        for index, statement in enumerate(statements):
            folded.append(statement)
            if isinstance(statement, ast.Return):
                break
            if isinstance(statement, ast.If) and _contains([statement], ast.Return):
                rest = list(statements[index + 1 :])
                parts = statement.body, statement.orelse
                if rest and all(map(_continues, parts)):
                    rest = self._continuation(rest, folded)
                statement.body, statement.orelse = [
                    self._returning(part, rest, statement) for part in parts
                ]
                vars(statement)["returns"] = True
                break
        return folded

    def _continuation(self, rest: list[ast.stmt], folded: list[ast.stmt]) -> list[ast.stmt]:
        """Make the rest a function, which is defined before the branch; returns its call."""
        self._count += 1
        name, at = f"_rest_{self._count}", rest[0]
        arguments = ast.arguments([], [], None, [], [], None, [])
        body = self._returning(rest, [], at)
        function = Continuation(name, arguments, body, [], None)
        folded.insert(len(folded) - 1, located(function, at))
        return [located(ast.Return(ast.Call(_read(name), [], [])), at)]

    def _returning(
        self, part: Sequence[ast.stmt], rest: Sequence[ast.stmt], at: ast.stmt
    ) -> list[ast.stmt]:
        """Return a part of a branch that always returns."""
        whole = [*part, *copy.deepcopy(rest)] if _continues(part) else list(part)
        if _continues(whole):
            whole.append(located(ast.Return(ast.Constant(None)), at))
        return self.statements(whole)


def _continues(statements: Sequence[ast.stmt]) -> bool:
    """Return whether control may go on after statements."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.If):
        return _continues(last.body) or _continues(last.orelse)
    return not isinstance(last, ast.Return | ast.Raise)
