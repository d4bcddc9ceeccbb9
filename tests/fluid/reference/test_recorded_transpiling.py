"""Transpiled programs against those that the reference made, for every role.

Recorded from Paddle 1.8.5, attributes that only describe ops left out. Everything must be the same
but for what the reference draws at random, lists in the order of a hash set, or leaves behind: the
names of control variables and ids, `grad_to_block_id`, `fake_init`; blocks of ops and counters that
trainers no longer use.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import fluid
from tests.golden import zoo

RECORDINGS = Path(__file__).parents[2] / "golden" / "transpile"
RANDOM = ("__control_var@", "nccl_id_")
UNORDERED = ("grad_to_block_id", "sparse_grad_to_param")


def two_layers_wide(fluid: Any) -> Any:
    """Return the loss of a regression whose first weight is cut into two blocks."""
    x, y = fluid.layers.data("x", [1000]), fluid.layers.data("y", [1])
    named = {"param_attr": fluid.ParamAttr(name="fc_w"), "bias_attr": fluid.ParamAttr(name="fc_b")}
    wide = fluid.layers.fc(input=x, size=1000, **named)
    error = fluid.layers.square_error_cost(fluid.layers.fc(wide, 1), y)
    return (fluid.layers.mean(error),)


MODELS = {**zoo.MODELS, "two_layers_wide": two_layers_wide}


def programs(recorded: dict[str, Any], role: str) -> tuple[Any, Any]:
    """Return main and startup program of a role."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = MODELS[recorded["model"]](fluid)[0]
        zoo.optimizer(fluid, recorded["optimizer"]).minimize(loss)
    inputs = dict(recorded["config"])
    servers, trainers, count = (
        inputs.pop(k) for k in ("pservers", "trainer_endpoints", "trainers")
    )
    synchronous = inputs.pop("sync_mode")
    config = fluid.DistributeTranspilerConfig()
    config.wait_port = False
    for name, value in inputs.items():
        setattr(config, name, value)
    transpiler = fluid.DistributeTranspiler(config)
    rank = int(role.removeprefix("trainer")) if role.startswith("trainer") else 0
    if config.mode == "pserver":
        arguments = {"pservers": ",".join(servers), "trainers": count, "sync_mode": synchronous}
    else:
        arguments = {"trainers": ",".join(trainers), "current_endpoint": trainers[rank]}
    transpiler.transpile(rank, program=main, startup_program=startup, **arguments)
    if role.startswith("pserver"):
        return transpiler.get_pserver_programs(role.partition("@")[2])
    if config.mode == "pserver":
        assert transpiler.get_trainer_program(wait_port=False) is main
    return main, startup


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.json")), ids=lambda path: path.stem)
def test_programs_are_the_reference_s(path: Path) -> None:
    recorded = json.loads(path.read_text())
    for role, parts in recorded["roles"].items():
        created = programs(recorded, role)
        for program, part in zip(created, ("main", "startup"), strict=True):
            wanted = parts[part][: 1 if role.startswith("trainer") else None]
            if role.startswith("trainer") and part == "startup":
                kept = [op for op in wanted[0]["ops"] if op[2].get("Out") != ["@LR_DECAY_COUNTER@"]]
                wanted[0]["ops"] = kept if recorded["config"]["sync_mode"] else wanted[0]["ops"]
            assert len(program.blocks) == len(wanted), f"{role} {part}"
            for block, like in zip(program.blocks, wanted, strict=True):
                assert block.parent_idx == like["parent"]
                assert shown(block.ops, like["ops"]) == listed(like["ops"]), f"{role} {part}"


def shown(ops: Any, likes: list[Any]) -> list[Any]:
    """Return ops as they are recorded."""
    known: dict[str, str] = {}
    actual: list[Any] = []
    for op, like in zip(ops, likes, strict=True):
        slots = [
            {s: [renamed(n, known) for n in side.get(s, [])] for s in wanted}
            for side, wanted in ((op.inputs, like[1]), (op.outputs, like[2]))
        ]
        actual.append([op.type, *slots, {n: plain(n, op.attrs.get(n, 0)) for n in like[3]}])
    return in_order(actual)


def in_order(ops: list[Any]) -> list[Any]:
    """Return ops with the last ones sorted, which the reference takes out of a set."""
    return sorted(ops, key=lambda op: op[2]["Out"] if op[0] == "fake_init" else [])


def listed(likes: list[Any]) -> list[Any]:
    """Return recorded ops with what is random named in order."""
    known: dict[str, str] = {}
    results = [
        [
            kind,
            *(
                {s: [renamed(n, known) for n in names] for s, names in side.items()}
                for side in slots
            ),
            {name: plain(name, value) for name, value in attrs.items()},
        ]
        for kind, *slots, attrs in likes
    ]
    return in_order(results)


def renamed(name: str, known: dict[str, str]) -> str:
    if not name.startswith((*RANDOM, "_generated_var")):
        return name
    return known.setdefault(name, f"name {len(known)}")


def plain(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        value = next(iter(value.values()))
    if isinstance(value, list):
        return sorted(value) if name in UNORDERED else list(value)
    if isinstance(value, float):
        return round(value, 6)
    return int(value) if isinstance(value, bool) else value
