"""`Slots`: the values in an op's slots, and the slots that bodies of ops name."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import MissingSlot
from compiler.ir.opdef import GradOp, OpDef, Slot, Slots, find, registered, slot_of
from compiler.ir.opdef.bodies import GRADIENT_BODIES, NAMED
from compiler.ir.opdef.slot_values import slot_reads

BODIES = {*GRADIENT_BODIES, *GRADIENT_BODIES.values(), "infer"} - NAMED


def test_slots_hold_values_of_an_op() -> None:
    s = Slots[int]("mul", ("X", "Bias", "X_lod", "Out@GRAD"), {"X": 1, "X_lod": [2], "Out@GRAD": 3})
    assert (s.X, s.get("Bias"), s.all("X_lod"), s.all("Bias"), s.d_Out) == (1, None, [2], [], 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [("Bias", "mul needs Bias, which"), ("Y", "mul has no slot 'Y'; it has: X, Bias")],
)
def test_slots_without_a_value_raise(name: str, message: str) -> None:
    with pytest.raises(MissingSlot, match=message):
        getattr(Slots[int]("mul", ("X", "Bias"), {"X": 1}), name)


def methods() -> Iterator[tuple[type[OpDef], str, Mapping[str, Slot]]]:
    """Each method that takes slots, with the slots of its op and of the op's gradient."""
    for cls in (find(kind) for kind in registered()):
        if not issubclass(cls, GradOp):
            slots = {**cls.slots, **(cls.grad_class.slots if cls.grad_class else {})}
            yield from ((cls, name, slots) for name in BODIES if callable(getattr(cls, name, None)))


@cache
def functions(file: str) -> dict[int, ast.AST]:
    """The functions of a file by their first line."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.lineno: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@cache
def accesses(function: Any) -> list[tuple[str, str, bool]]:
    """How a method reads each slot: by `.`, `get`, `all` or `shape`, and whether of the host."""
    found = list[tuple[str, str, bool]]()
    tree = functions(function.__code__.co_filename)[function.__code__.co_firstlineno]
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Attribute)):
        text = ast.unparse(node.value)
        if text in ("s", "s.host") and node.attr != "host":
            call = calls.get(id(node))
            name = node.attr if call is None else ast.literal_eval(call.args[0])
            found.append((name, "." if call is None else node.attr, text == "s.host"))
    return found


def test_bodies_read_declared_slots() -> None:
    wrong = list[str]()
    for cls, method, slots in methods():
        for name, way, _ in accesses(getattr(cls, method)):
            slot = slots.get(slot_of(name))
            if slot is None or (way == "all") != slot.many:
                wrong.append(f"{cls.kind}.{method} reads {name} by {way}")
    assert wrong == []


def test_operands_on_the_host_are_read_as_such() -> None:
    wrong = [
        f"{cls.kind}.{method} reads {name}"
        for cls, method, slots in methods()
        if method in ("kernel", "kernel_grad")
        for name, way, is_host in accesses(getattr(cls, method))
        if way != "shape" and is_host != slots[slot_of(name)].on_host
    ]
    assert wrong == []


def test_slot_reads_are_those_of_the_syntax() -> None:
    """Where a body passes its slots on, they are those of the other function too."""
    wrong = list[str]()
    for cls, method, _ in methods():
        owner = cls.grad_class if method == "kernel_grad" else cls
        if owner is not None and method in ("infer", "kernel", "kernel_grad", "check_values"):
            function, inputs = getattr(cls, method), owner.inputs().keys()
            named = {slot_of(name) for name, _, _ in accesses(function)} & inputs
            found = set(map(slot_of, slot_reads(cls, method).names)) & inputs
            code = function.__code__
            text = ast.unparse(functions(code.co_filename)[code.co_firstlineno])
            passes_on = re.search(r"\bs\)", text)
            if not (named <= found if passes_on else named == found):
                wrong.append(f"{cls.kind}.{method} reads {sorted(named)}, not {sorted(found)}")
    assert wrong == []
