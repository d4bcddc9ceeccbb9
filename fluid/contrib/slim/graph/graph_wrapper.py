"""`GraphWrapper`: a program whose inputs and results have names of their own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Protocol

from fluid.compiler import BuildStrategy, CompiledProgram
from fluid.executor import Executor
from fluid.framework import Block, Operator, Parameter, Program, Variable, recording_guard
from fluid.optimizer import Optimizer
from fluid.recording.annotations import AttributeValue
from fluid.saving.inference_model import save_inference_model
from fluid.saving.persistables import load_vars, save_vars
from runtime.device import Place
from runtime.tensors.scope import Scope

__all__ = ["GraphWrapper", "OpWrapper", "VarWrapper"]

_UPDATES = (
    "momentum lars_momentum adagrad adam adamax dpsgd decayed_adagrad adadelta rmsprop"
).split()

Nodes = Mapping[str, str] | Iterable[tuple[str, str]] | None
"""Names of variables by a user's names for them."""


class HasExecutor(Protocol):
    """A `SlimGraphExecutor`, as far as graphs know of it."""

    exe: Executor


class VarWrapper:
    """A variable of a graph; wrappers of variables of one name are equal."""

    def __init__(self, var: Variable, graph: GraphWrapper) -> None:
        self._var, self._graph = var, graph

    @property
    def var(self) -> Variable:
        """The variable."""
        return self._var

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VarWrapper) and self.name() == other.name()

    def __hash__(self) -> int:
        return hash(self.name())

    def __repr__(self) -> str:
        return f"<VarWrapper {self.name()}>"

    def name(self) -> str:
        """Return its name."""
        return self._var.name

    def shape(self) -> tuple[int, ...]:
        """Return its shape, with -1 for unknown sizes."""
        return self._var.shape

    def set_shape(self, shape: Sequence[int]) -> None:
        """Change its shape."""
        self._var.desc.set_shape(shape)

    def inputs(self) -> list[OpWrapper]:
        """Return the ops that read it (so called in release 1.8.5)."""
        return [op for op in self._graph.ops() if self in op.all_inputs()]

    def outputs(self) -> list[OpWrapper]:
        """Return the ops that write it (so called in release 1.8.5)."""
        return [op for op in self._graph.ops() if self in op.all_outputs()]


class OpWrapper:
    """An op of a graph; wrappers of one op are equal."""

    def __init__(self, op: Operator, graph: GraphWrapper) -> None:
        self._op, self._graph = op, graph

    @property
    def op(self) -> Operator:
        """The op."""
        return self._op

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpWrapper) and self._op is other._op

    def __hash__(self) -> int:
        return hash(self._op)

    def __repr__(self) -> str:
        return f"<OpWrapper {self.type()}>"

    def _wrapped(self, names: Iterable[str]) -> list[VarWrapper]:
        block = self._op.block
        pairs = [(name, block.lookup(name)) for name in names]
        return [
            VarWrapper(var, self._graph) if isinstance(var, Variable) else self._graph.var(name)
            for name, var in pairs
        ]

    def all_inputs(self) -> list[VarWrapper]:
        """Return the variables that it reads."""
        return self._wrapped(self._op.input_arg_names)

    def all_outputs(self) -> list[VarWrapper]:
        """Return the variables that it writes."""
        return self._wrapped(self._op.output_arg_names)

    def inputs(self, name: str) -> list[VarWrapper]:
        """Return the variables of an input slot."""
        return self._wrapped(self._op.input(name))

    def outputs(self, name: str) -> list[VarWrapper]:
        """Return the variables of an output slot."""
        return self._wrapped(self._op.output(name))

    def idx(self) -> int:
        """Return its position in its block."""
        return self._op.idx

    def type(self) -> str:
        """Return its type."""
        return self._op.type

    def is_bwd_op(self) -> bool:
        """Whether it computes gradients."""
        return self.type().endswith("_grad")

    def is_opt_op(self) -> bool:
        """Whether it updates a parameter; False for `sgd`, as in release 1.8.5."""
        return self.type() in _UPDATES

    def attr(self, name: str) -> AttributeValue:
        """Return an attribute; ValueError if it has none of this name."""
        return self._op.attr(name)

    def set_attr(self, key: str, value: object) -> None:
        """Set an attribute."""
        self._op.set_attr(key, value)


class GraphWrapper:
    """A program with names for its inputs (`in_nodes`) and results (`out_nodes`).

    Both map a user's name to the name of a variable; the loss is `out_nodes["loss"]`.
    `persistables` are the program's persistable variables, `teacher_persistables` those that
    `merge` brought.
    """

    def __init__(
        self, program: Program | None = None, in_nodes: Nodes = None, out_nodes: Nodes = None
    ) -> None:
        self.program = Program() if program is None else program
        self.in_nodes: OrderedDict[str, str] = OrderedDict(in_nodes or ())
        self.out_nodes: OrderedDict[str, str] = OrderedDict(out_nodes or ())
        self.persistables = {v.name: v for v in self.program.list_vars() if v.persistable}
        self.teacher_persistables: dict[str, Variable] = {}
        self.compiled_graph: CompiledProgram | None = None

    # ---- what is in it

    def ops(self) -> list[OpWrapper]:
        """Return the ops of all blocks."""
        return [OpWrapper(op, self) for block in self.program.blocks for op in block.ops]

    def vars(self) -> list[VarWrapper]:
        """Return the variables of all blocks."""
        return [VarWrapper(var, self) for var in self.program.list_vars()]

    def var(self, name: str) -> VarWrapper:
        """Return a variable of the global block; ValueError if there is none of this name."""
        return VarWrapper(self.program.global_block().var(name), self)

    def all_parameters(self) -> list[VarWrapper]:
        """Return the parameters of all blocks."""
        return [VarWrapper(param, self) for param in self.program.all_parameters()]

    def is_parameter(self, var: VarWrapper) -> bool:
        """Whether a variable is a parameter."""
        return isinstance(var.var, Parameter)

    def is_persistable(self, var: VarWrapper) -> bool:
        """Whether a variable is persistable."""
        return var.var.persistable

    def pre_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """Return the ops that write what an op reads, once for each such input."""
        read = op.all_inputs()
        return [p for p in self.ops() for var in read if var in p.all_outputs()]

    def next_ops(self, op: OpWrapper) -> list[OpWrapper]:
        """Return the ops that read what an op writes, once for each such output."""
        written = op.all_outputs()
        return [p for p in self.ops() for var in written if var in p.all_inputs()]

    def get_param_by_op(self, op: OpWrapper) -> list[VarWrapper]:
        """Return the parameters that an op reads; AssertionError if there are none."""
        params = [var for var in op.all_inputs() if self.is_parameter(var)]
        assert params, f"{op.type()} reads no parameter"
        return params

    def numel_params(self) -> int:
        """Return the number of elements of all parameters."""
        return sum(prod(param.shape()) for param in self.all_parameters())

    def flops(self, only_conv: bool = False) -> float:
        """Return the multiplications and additions of convolutions for one image.

        Unless `only_conv`, also those of `mul` and one for each element that `relu`, `sigmoid` and
        `batch_norm` read, and for each element of a window of `pool2d`.
        """
        return sum(_flops(op, only_conv) for op in self.ops())

    # ---- other programs

    def clone(self, for_test: bool = False) -> GraphWrapper:
        """Return a graph of a clone of the program."""
        return GraphWrapper(self.program.clone(for_test), self.in_nodes, self.out_nodes)

    def merge(self, graph: GraphWrapper) -> None:
        """Append the variables and ops of another graph, the teacher in a distillation.

        Names are kept: those of the two programs should differ but for their inputs.
        """
        block = self.program.global_block()
        for var in graph.program.list_vars():
            if var.persistable:
                self.teacher_persistables[var.name] = var
            copied = block.clone_variable(var, force_persistable=False)
            copied.stop_gradient = var.stop_gradient
        for wrapped in graph.ops():
            op = wrapped.op
            block.append_op(op.type, op.inputs, op.outputs, op.attrs)

    def get_optimize_graph(
        self,
        optimizer: Optimizer,
        place: Place,
        scope: Scope,
        no_grad_var_names: Sequence[str] = (),
    ) -> GraphWrapper | None:
        """Return a clone that is trained: with gradients and updates for its loss.

        The loss is `out_nodes["loss"]`, or else `out_nodes["cost"]`; without both, the result is
        None. What the optimizer needs is initialized in `scope`.
        """
        graph = self.clone()
        target = graph.out_nodes.get("loss") or graph.out_nodes.get("cost")
        if target is None:
            return None
        startup = Program()
        with recording_guard(graph.program, startup):
            optimizer.minimize(graph.var(target).var, no_grad_set=set(no_grad_var_names))
        Executor(place).run(startup, scope=scope)
        return graph

    def compile(
        self, for_parallel: bool = True, for_test: bool = False, mem_opt: bool = False
    ) -> None:
        """Set what an executor runs: the program on all devices, or one without `for_parallel`.

        Call it again after changes of the program.
        """
        self.compiled_graph = CompiledProgram(self.program)
        if for_parallel:
            strategy = BuildStrategy()
            strategy.enable_inplace = strategy.memory_optimize = mem_opt
            strategy.fuse_all_reduce_ops = False
            loss = None if for_test else self.out_nodes["loss"]
            self.compiled_graph.with_data_parallel(loss_name=loss, build_strategy=strategy)

    # ---- shapes after parameters were pruned

    def update_param_shape(self, scope: Scope) -> None:
        """Set the shapes of parameters to those of their tensors in a scope."""
        for param in self.all_parameters():
            var = scope.find_var(param.name())
            if var is not None:
                param.set_shape(var.get_tensor().shape())

    def infer_shape(self) -> None:
        """Set the shapes of what ops write to those that follow from what they read."""
        for wrapped in self.ops():
            if wrapped.type() != "conditional_block":
                block = wrapped.op.block
                assert isinstance(block, Block)
                wrapped.op.desc.infer_shape(block.desc)

    def update_groups_of_conv(self) -> None:
        """Set the groups of depthwise convolutions to the numbers of their filters."""
        for op in self.ops():
            if op.type() in ("depthwise_conv2d", "depthwise_conv2d_grad"):
                op.set_attr("groups", op.inputs("Filter")[0].shape()[0])

    # ---- files

    def save_model(self, path: str, exe: HasExecutor) -> None:
        """Save the inputs and results as an inference model, in `__model__` and `__params__`."""
        ends = list(self.in_nodes.values()), list(self.out_nodes.values())
        self._save(path, exe, ends, "__model__")

    def save_infer_model(
        self,
        path: str,
        exe: HasExecutor,
        in_out: Sequence[Sequence[str]],
        program_only: bool = False,
    ) -> None:
        """Save an inference model, in `__model__.infer`; `in_out` names feeds and results."""
        self._save(path, exe, in_out, "__model__.infer", program_only)

    def _save(
        self,
        path: str,
        exe: HasExecutor,
        in_out: Sequence[Sequence[str]],
        file: str,
        program_only: bool = False,
    ) -> None:
        feeds, results = list(in_out[0]), [self.var(name).var for name in in_out[1]]
        assert feeds and results, "an inference model has at least one input and one result"
        save_inference_model(
            path, feeds, results, exe.exe, self.program.clone(), file, "__params__",
            program_only=program_only,
        )  # fmt: skip

    def _saved(self) -> list[Variable]:
        self.persistables |= {
            var.name: var
            for var in self.program.list_vars()
            if var.persistable and var.name not in self.persistables
        }
        readers = ("reader", "double_buffer")
        return [v for n, v in self.persistables.items() if not any(r in n for r in readers)]

    def save_persistables(self, path: str, exe: HasExecutor) -> None:
        """Save the persistable variables, except those of a teacher, each in a file of its name."""
        own = [var for var in self._saved() if var.name not in self.teacher_persistables]
        save_vars(exe.exe, path, self.program, own)

    def load_persistables(self, path: str, exe: HasExecutor) -> None:
        """Load the persistable variables of which there are files."""
        vars = [var for var in self._saved() if (Path(path) / var.name).exists()]
        load_vars(exe.exe, path, self.program, vars)


def _flops(op: OpWrapper, only_conv: bool) -> float:
    kind = op.type()
    if kind in ("conv2d", "depthwise_conv2d"):
        c_out, c_in, k_h, k_w = op.inputs("Filter")[0].shape()
        _, _, h_out, w_out = op.outputs("Output")[0].shape()
        bias = 1 if "Bias" in op.op.input_names and op.inputs("Bias") else 0
        return 2 * h_out * w_out * c_out * (k_h * k_w * (c_in / op.attr("groups")) + bias)
    if only_conv:
        return 0
    if kind == "pool2d":
        _, c_out, h_out, w_out = op.outputs("Out")[0].shape()
        return h_out * w_out * c_out * op.attr("ksize")[0] ** 2
    if kind == "mul":
        rows, columns = op.inputs("X")[0].shape()[:2]
        return 2 * (1 if rows == -1 else rows) * columns * op.inputs("Y")[0].shape()[1]
    if kind in ("relu", "sigmoid", "batch_norm"):
        rows, *others = op.inputs("X")[0].shape()
        return prod([1 if rows == -1 else rows, *others])
    return 0
