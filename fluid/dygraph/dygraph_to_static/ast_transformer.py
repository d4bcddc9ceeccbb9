"""Functions rewritten so that branches and loops on tensors become ops of a program.

Each `if`, `while` and `for` becomes a call of `branches` or `loops` with functions for its parts,
and so do the operators and calls whose meaning depends on tensors. What these calls do is decided
when they run: without tensors, they do what Python does. Line numbers stay those of the file.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from fluid.dygraph.dygraph_to_static.exits import lower_exits
from fluid.dygraph.dygraph_to_static.function_sources import FunctionNode
from fluid.dygraph.dygraph_to_static.names import (
    Continuation,
    Liveness,
    Writes,
    declared_names,
    located,
    own_nodes,
    writes,
)

__all__ = ["RUNTIME", "transformed"]

RUNTIME = "_jst"
"""The name of the module `operators` in a rewritten function."""

_STATEMENTS = ast.If | ast.While | ast.For


def transformed(node: FunctionNode) -> FunctionNode | None:
    """Return a copy of a function rewritten for programs; None for a generator."""
    node = copy.deepcopy(node)
    if _is_generator(node):
        return None
    if isinstance(node, ast.Lambda):
        node.body = _Expressions().visit(node.body)
    else:
        node.decorator_list, node.returns = [], None
        _Function(node).rewrite()
    _drop_annotations(node.args)
    return ast.fix_missing_locations(node)


def _is_generator(node: FunctionNode) -> bool:
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    return any(isinstance(part, ast.Yield | ast.YieldFrom | ast.Await) for part in own_nodes(body))


def _drop_annotations(args: ast.arguments) -> None:
    listed = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    for arg in listed:
        if arg is not None:
            arg.annotation = None


def _read(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _called(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_read(RUNTIME), function, ast.Load()), list(args), [])


def _no_arguments() -> ast.arguments:
    return ast.arguments([], [], None, [], [], None, [])


def _lambda(body: ast.expr) -> ast.expr:
    return ast.Lambda(_no_arguments(), body)


class _Function:
    """The rewriting of one function."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self._node = node
        lower_exits(node)
        ast.fix_missing_locations(node)
        self._declared = declared_names(node)
        self._live = Liveness(node).after
        self._written = writes(node.body)
        self._bound = [name for name in self._written.bound if name not in self._declared]
        self._count = 0
        args = node.args
        listed = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        self._arguments = [arg.arg for arg in listed if arg is not None]
        self._expressions = _Expressions(self._arguments[0] if self._arguments else None)

    def rewrite(self) -> None:
        """Rewrite the function in place."""
        node, body = self._node, self._node.body
        rewrites = any(isinstance(part, _STATEMENTS) for part in own_nodes(body))
        node.body = self._statements(body)
        local = [name for name in self._bound if name not in self._arguments]
        if rewrites and local:
            targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in local]
            never = ast.If(ast.Constant(False), [ast.Assign(targets, ast.Constant(None))], [])
            docstring = ast.get_docstring(node, clean=False) is not None
            node.body.insert(int(docstring), located(never, body[0]))

    def _statements(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        return [new for statement in statements for new in self._statement(statement)]

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        match statement:
            case Continuation():
                statement.body = self._declarations(statement.body) + self._statements(
                    statement.body
                )
                return [_plain_function(statement)]
            case ast.FunctionDef():
                decorators = [self._expressions.visit(item) for item in statement.decorator_list]
                if not _is_generator(statement):
                    _Function(statement).rewrite()
                statement.args = self._expressions.visit(statement.args)
                statement.decorator_list = decorators
                return [statement]
            case ast.If():
                return self._if(statement)
            case ast.While():
                return self._while(statement)
            case ast.For():
                return self._for(statement)
            case ast.With():
                statement.items = [self._expressions.visit(item) for item in statement.items]
                statement.body = self._statements(statement.body)
                return [statement]
            case ast.Try() | ast.TryStar():
                for part in ("body", "orelse", "finalbody"):
                    setattr(statement, part, self._statements(getattr(statement, part)))
                for handler in statement.handlers:
                    handler.body = self._statements(handler.body)
                return [statement]
            case ast.Match():
                statement.subject = self._expressions.visit(statement.subject)
                for part in statement.cases:
                    part.body = self._statements(part.body)
                return [statement]
            case ast.AsyncFunctionDef() | ast.ClassDef():
                return [statement]
            case _:
                return [self._expressions.visit(statement)]

    # ---- branches and loops

    def _if(self, statement: ast.If) -> list[ast.stmt]:
        returns = getattr(statement, "returns", False)
        name = self._next()
        within = self._written if returns else writes([statement])
        state = self._state(name, within, statement, set() if returns else None)
        parts = [
            self._part(f"{name}_{kind}", part, statement)
            for kind, part in (("true", statement.body), ("false", statement.orelse))
        ]
        function = "convert_return" if returns else "convert_if"
        test = self._expressions.visited_test(statement.test)
        call = _called(function, test, _read(f"{name}_true"), _read(f"{name}_false"), state[-1])
        done = ast.Return(call) if returns else ast.Expr(call)
        return [*parts, *state[:-1], located(done, statement)]

    def _while(self, loop: ast.While) -> list[ast.stmt]:
        name = self._next()
        state = self._state(name, writes([loop]), loop)
        body = self._part(f"{name}_body", loop.body, loop)
        test = _lambda(self._expressions.visited_test(loop.test))
        call = _called("convert_while", test, _read(body.name), state[-1])
        done = [located(ast.Expr(call), loop)]
        return [body, *state[:-1], *done, *self._statements(loop.orelse)]

    def _for(self, loop: ast.For) -> list[ast.stmt]:
        name = self._next()
        alive: ast.expr | None = getattr(loop, "alive", None)
        item = located(ast.Assign([loop.target], located(_read("_item"), loop)), loop)
        state = self._state(name, writes([loop]), loop)
        body = self._part(f"{name}_body", [item, *loop.body], loop)
        body.args.args.append(ast.arg("_item"))
        going = ast.Constant(None) if alive is None else _lambda(self._expressions.visit(alive))
        iterated = self._expressions.visit(loop.iter)
        call = _called("convert_for", iterated, _read(body.name), going, state[-1])
        done = [located(ast.Expr(call), loop)]
        return [body, *state[:-1], *done, *self._statements(loop.orelse)]

    def _next(self) -> str:
        self._count += 1
        return f"_part_{self._count}"

    def _part(self, name: str, statements: Sequence[ast.stmt], at: ast.stmt) -> ast.FunctionDef:
        """Return statements as a function whose names are those around it."""
        declared = self._declarations(statements)
        body = declared + (self._statements(statements) or [ast.Pass()])
        return located(ast.FunctionDef(name, _no_arguments(), body, [], None), at)

    def _declarations(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the declarations of the names that a part of the function binds."""
        names = [name for name in writes(statements).bound if not _is_part(name)]
        outer = [name for name in names if self._declared.get(name) == "global"]
        local = [name for name in names if name not in outer]
        declared: list[ast.stmt] = [ast.Nonlocal(local)] if local else []
        return declared + ([ast.Global(outer)] if outer else [])

    def _state(
        self, name: str, found: Writes, at: ast.stmt, live: set[str] | None = None
    ) -> tuple[ast.stmt, ast.expr]:
        """Return the function that sets what statements write, and the expression of a `State`."""
        names = [target for target in found.state if not _is_part(target)]
        setter = self._setter(f"{name}_set", names, found)
        for node in ast.walk(setter):
            if isinstance(node, ast.stmt | ast.expr):
                located(node, at)
        getters = [_lambda(ast.parse(target, mode="eval").body) for target in names]
        after = self._live.get(id(at), set()) if live is None else live
        kept = [
            target
            for target in names
            if "." in target
            or target not in found.bound
            or target in self._declared
            or target in after
        ]
        state = _called(
            "State",
            ast.Tuple([ast.Constant(target) for target in names], ast.Load()),
            ast.Tuple(getters, ast.Load()),
            _read(setter.name),
            ast.Tuple([ast.Constant(target) for target in kept], ast.Load()),
        )
        return setter, state

    def _setter(self, name: str, names: Sequence[str], found: Writes) -> ast.FunctionDef:
        """Return the function that sets names of this function, and attributes, to values."""
        own = {*self._bound, *self._arguments, *self._declared}
        settable = [target for target in names if "." in target or target in own]
        outer = [target for target in settable if self._declared.get(target) == "global"]
        local = [target for target in settable if "." not in target and target not in outer]
        body: list[ast.stmt] = [ast.Nonlocal(local)] if local else []
        body += [ast.Global(outer)] if outer else []
        for target in settable:
            value = f"_values[{names.index(target)}]"
            code = f"{target} = {value}\nif {target} is {RUNTIME}.UNDEFINED: del {target}"
            if target not in found.bound and target not in found.attributes:
                code = f"if {target} is not {value}: {target} = {value}"
            body += ast.parse(code).body
        setter = ast.FunctionDef(name, _no_arguments(), body or [ast.Pass()], [], None)
        setter.args.args.append(ast.arg("_values"))
        return setter


def _is_part(name: str) -> bool:
    """Return whether a name is that of a function that the rewriting defines."""
    return name.startswith(("_part_", "_rest_"))


def _plain_function(node: Continuation) -> ast.FunctionDef:
    function = ast.FunctionDef(node.name, node.args, node.body, [], None)
    return located(function, node)


class _Expressions(ast.NodeTransformer):
    """Rewrites calls and operators; functions and classes within are left alone."""

    def __init__(self, first_argument: str | None = None) -> None:
        self._first_argument = first_argument
        self._in_test = False

    def visited_test(self, test: ast.expr) -> ast.expr:
        """Return a test in which `x.numpy()` is the tensor itself in a program."""
        self._in_test = True
        try:
            return self.visit(test)
        finally:
            self._in_test = False

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        """Rewrite the body of a lambda."""
        return self.generic_visit(node)  # pyright: ignore[reportReturnType] - the node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite `f(x)` to `convert_call(f)(x)`, and methods that change a list."""
        function = node.func
        if isinstance(function, ast.Name) and function.id == "super":
            if not node.args and self._first_argument is not None:
                node.args = [_read("__class__"), _read(self._first_argument)]
            return node
        node = self.generic_visit(node)  # pyright: ignore[reportAssignmentType] - the node
        function = node.func
        if isinstance(function, ast.Attribute):
            plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
            if function.attr == "append" and plain and len(node.args) == 1:
                return located(_called("append", function.value, node.args[0]), node)
            if function.attr == "numpy" and plain and not node.args and self._in_test:
                return located(_called("value", function.value), node)
        node.func = located(_called("convert_call", function), function)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Rewrite `x.shape`, which has tensors for sizes that are not known."""
        self.generic_visit(node)
        if node.attr == "shape" and isinstance(node.ctx, ast.Load):
            return located(_called("shape", node.value), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Rewrite `x[i]`, which may read a tensor array."""
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load) and not _has_slice(node.slice):
            return located(_called("get_item", node.value, node.slice), node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        """Rewrite `x[i] = y`, which may write to a tensor array, and unpacking."""
        self.generic_visit(node)
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            if len(node.targets) > 1 or _has_slice(target.slice):
                return node
            call = _called("set_item", target.value, target.slice, node.value)
            return located(ast.Expr(call), node)
        if isinstance(target, ast.Tuple | ast.List) and not isinstance(
            node.value, ast.Tuple | ast.List
        ):
            node.value = located(_called("iterate", node.value), node.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Rewrite `a and b` and `a or b`."""
        if _binds(node):
            return node
        self.generic_visit(node)
        function = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return located(_called(function, *map(_lambda, node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Rewrite `not a`."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return located(_called("logical_not", node.operand), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Rewrite `a < b < c`."""
        if _binds(node):
            return node
        self.generic_visit(node)
        if len(node.ops) == 1:
            return node
        operands = [node.left, *node.comparators]
        names = ["_left", "_right"]
        functions: list[ast.expr] = []
        for operator in node.ops:
            compared = ast.Compare(_read("_left"), [operator], [_read("_right")])
            arguments = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
            functions.append(ast.Lambda(arguments, compared))
        thunks = ast.Tuple([_lambda(operand) for operand in operands], ast.Load())
        chain = _called("chain", thunks, ast.Tuple(functions, ast.Load()))
        return located(chain, node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Rewrite `a if test else b`."""
        if _binds(node):
            return node
        test = self.visited_test(node.test)
        parts = [_lambda(self.visit(part)) for part in (node.body, node.orelse)]
        return located(_called("choose", test, *parts), node)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """Rewrite `assert test, message`."""
        test = self.visited_test(node.test)
        message = ast.Constant(None) if node.msg is None else self.visit(node.msg)
        call = _called("convert_assert", test, _lambda(message))
        return located(ast.Expr(call), node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        """Rewrite `for x in y` of a comprehension."""
        self.generic_visit(node)
        node.iter = located(_called("iterate", node.iter), node.iter)
        return node


def _has_slice(index: ast.expr) -> bool:
    return any(isinstance(node, ast.Slice | ast.Starred) for node in ast.walk(index))


def _binds(node: ast.expr) -> bool:
    """Return whether an expression assigns a name, which a lambda would hide."""
    return any(isinstance(part, ast.NamedExpr) for part in ast.walk(node))
