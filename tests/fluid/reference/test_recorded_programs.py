"""Main, startup and test programs against those the reference built from the same calls.

Recorded from Paddle 1.8.5. Everything must be the same: ops and their order, slots, names, also of
temporaries, attributes, and what is declared of variables. Left out are attributes of ours that are
kept and never read, and the counters in `op_namescope`, which the reference counts per process.
Where the reference leaves a slot or a LoD level unsaid, ours may say it; what a loop reads and
writes the reference lists in the order of a hash set.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import fluid
from compiler.ir.opdef import BOOKKEEPING
from fluid.framework import Operator, Program, Variable
from tests.golden import zoo

RECORDINGS = Path(__file__).parents[2] / "golden" / "programs"
LOOPS = {"while", "recurrent", "conditional_block"}
ALWAYS_THERE = {"op_role", "op_role_var", "op_namescope"}


def build(model: str, optimizer: str) -> dict[str, Program]:
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = zoo.MODELS[model](fluid)[0]
        test = main.clone(for_test=True)
        zoo.optimizer(fluid, optimizer).minimize(loss)
    return {"main": main, "startup": startup, "test": test}


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_program_is_the_reference_s(path: Path) -> None:
    wanted = json.loads(path.read_text())
    for role, program in build(*path.stem.split("__")).items():
        blocks = wanted[role]["blocks"]
        assert len(program.blocks) == len(blocks)
        for block, recorded in zip(program.blocks, blocks, strict=True):
            assert [op.type for op in block.ops] == [op["type"] for op in recorded["ops"]]
            for op, like in zip(block.ops, recorded["ops"], strict=True):
                assert shown_op(op, like) == recorded_op(like)
            shown = {v.name: shown_var(v, recorded) for v in block.vars.values()}
            assert shown == {name: declared(like) for name, like in recorded["vars"].items()}


def shown_op(op: Operator, like: dict[str, Any]) -> dict[str, Any]:
    """The fields of an op that the recording contains."""
    slots = {
        side: {slot: ordered(op.type, getattr(op, side).get(slot)) for slot in like[side]}
        for side in ("inputs", "outputs")
    }
    return slots | {"attrs": {n: plain(n, op.attrs.get(n)) for n in like["attrs"] if counts(n)}}


def recorded_op(like: dict[str, Any]) -> dict[str, Any]:
    attrs = {name: plain(name, value) for name, value in like["attrs"].items() if counts(name)}
    slots = {
        side: {slot: ordered(like["type"], names) for slot, names in like[side].items()}
        for side in ("inputs", "outputs")
    }
    return slots | {"attrs": attrs}


def ordered(kind: str, names: Any) -> list[str]:
    return sorted(names or []) if kind.removesuffix("_grad") in LOOPS else list(names or [])


def counts(name: str) -> bool:
    return name not in BOOKKEEPING - ALWAYS_THERE


def plain(name: str, value: Any) -> Any:
    """Return an attribute as both sides can say it; the reference keeps floats in 32 bits."""
    if name == "op_namescope" and value is not None:
        return re.sub(r"_\d+/", "/", value)
    if isinstance(value, dict):
        return value["block"]
    return pytest.approx(value, rel=1e-6) if isinstance(value, float) else value


def declared(like: dict[str, Any]) -> dict[str, Any]:
    """Return what is recorded of a variable; -6 is six times what is unknown."""
    return {k: [max(n, -1) for n in v] if k == "shape" else v for k, v in like.items()}


def shown_var(var: Variable, recorded: dict[str, Any]) -> dict[str, Any]:
    """Return what is declared of a variable; what the reference leaves open counts as its own."""
    like = recorded["vars"].get(var.name, {})
    fields: dict[str, Any] = {"persistable": var.persistable, "type": var.type.name}
    if "shape" in like:
        level = min(var.lod_level, like["lod_level"])
        fields |= {"shape": list(var.shape), "dtype": var.dtype.name, "lod_level": level}
    unsaid = [name for op in recorded["ops"] for name in op["outputs"].get("MaxIndex", [])]
    return fields | (
        {n: declared(like)[n] for n in ("shape", "dtype")} if var.name in unsaid else {}
    )
