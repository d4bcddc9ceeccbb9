"""A case in this package and in torch: its step on the device, and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import fluid
from bench.device.cases import Case

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Runner:
    """Runs steps, and returns the output and the gradients of the last one as float32."""

    step: Callable[[], Any]
    results: Callable[[], list[np.ndarray]]


def ours(case: Case, drawn: Arrays) -> Runner:
    """The compiled case: its inputs and outputs are state on the device."""
    main, startup, scope = fluid.Program(), fluid.Program(), fluid.Scope()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        inputs = [_state(main, f"x{i}", array, case) for i, array in enumerate(drawn)]
        out = case.build(fluid, *inputs)
        float_inputs = inputs[: len(inputs) - case.fixed - bool(case.below)]
        for var in inputs[len(float_inputs) :]:
            var.stop_gradient = True
        wanted = [out, *(fluid.gradients([out], float_inputs) if case.backward else [])]
    for var in wanted:
        var.persistable = True
    executor = fluid.Executor(fluid.CUDAPlace(0))
    if startup.global_block().ops:
        executor.run(startup, scope=scope)
    with fluid.scope_guard(scope):
        for var, array in zip(inputs, drawn, strict=True):
            scope.var(var.name).get_tensor().set(_as(array, case), fluid.CPUPlace())
    return Runner(
        lambda: executor.run(main, scope=scope),
        lambda: [_read(scope, var.name) for var in wanted],
    )


def _state(main: Any, name: str, array: np.ndarray, case: Case) -> Any:
    dtype = case.dtype if array.dtype.kind == "f" else str(array.dtype)
    var = main.global_block().create_var(
        name=name, shape=array.shape, dtype=dtype, persistable=True
    )
    var.stop_gradient = array.dtype.kind != "f"
    return var


def _as(array: np.ndarray, case: Case) -> np.ndarray:
    return array.astype(case.dtype) if array.dtype.kind == "f" else array


def _read(scope: Any, name: str) -> np.ndarray:
    return np.asarray(scope.find_var(name).get_tensor()).astype(np.float32)


def theirs(case: Case, drawn: Arrays, device: str, compiled: bool) -> Runner:
    """The case in torch, eager or compiled, on the same numbers."""
    inputs = [torch.from_numpy(np.array(array)).to(device) for array in drawn]
    inputs = [
        tensor.to(getattr(torch, case.dtype)).requires_grad_(case.backward)
        if tensor.is_floating_point() else tensor
        for tensor in inputs
    ]  # fmt: skip
    for tensor in inputs[len(inputs) - case.fixed :]:
        tensor.requires_grad_(False)
    leaves = [tensor for tensor in inputs if tensor.requires_grad]

    def forward(*given: Any) -> Any:
        return case.peer(torch, *given)

    called = torch.compile(forward) if compiled else forward
    results_of_step: list[Any] = []

    def step() -> None:
        output = called(*inputs)
        grads = torch.autograd.grad(output, leaves, torch.ones_like(output)) if leaves else []
        results_of_step[:] = [output, *grads]

    return Runner(
        step, lambda: [tensor.detach().float().cpu().numpy() for tensor in results_of_step]
    )


def nbytes(case: Case, results: Sequence[np.ndarray], drawn: Arrays) -> int:
    """Minimum bytes moved by a step: every input and output once, including gradients.

    With gradients, inputs are read once more and the output's gradient is all ones, which
    costs nothing.
    """
    size = np.dtype(case.dtype).itemsize
    input_bytes = sum(a.size * size if a.dtype.kind == "f" else a.nbytes for a in drawn)
    return input_bytes * (2 if case.backward else 1) + sum(result.size * size for result in results)
