"""What a body of an op may use of its `self`: attributes, which generated code has too."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

from compiler.ir.opdef import GradOp, OpDef, find, registered

KINDS = [kind for kind in registered() if not issubclass(find(kind), GradOp)]


def methods_used(cls: type[OpDef]) -> Iterator[str]:
    """The methods that bodies carried into generated code call on `self`."""
    for body in ("numpy", "compute", "grad"):
        function = getattr(cls, body, None)
        if function is None:
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
            own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if own and node.value.id == "self" and inspect.isfunction(getattr(cls, node.attr, 0)):
                yield f"{body} calls self.{node.attr}"


def test_bodies_call_no_method() -> None:
    """There is no class in generated code: what bodies share is a function of the module."""
    calls = {kind: list(methods_used(find(kind))) for kind in KINDS}
    assert {kind: called for kind, called in calls.items() if called} == {}
