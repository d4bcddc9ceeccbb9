"""Base classes of ops: a class declares slots, attributes, types, reference code and gradient.

    class Relu(Pointwise, op="relu"):
        X = reads()
        Out = writes()

        def compute(self, xp, X):
            return xp.maximum(X, 0.0)

        def grad(self, xp, Out, d_Out):
            return {"X": d_Out * (Out > 0.0)}

The class registers `relu`; its `grad`, whose parameters are the inputs of the backward op,
registers `relu_grad(Out, Out@GRAD) -> X@GRAD` with the slots of the reference. An *instance* is the
op with its attributes bound, so bodies read `self.axis`. There are four kinds:

- `Pointwise`: `compute(self, xp, …)`; types are inferred by broadcasting, and ops can be fused.
- `Rowwise`: the same, and may also reduce axes it keeps (`xp.sum(X, axis=-1, keepdims=True)`).
- `OpDef`: `infer(self, s)` returns types, `numpy(self, …)` returns values.
- `HostOp`: an `OpDef` with side effects, which is never removed.

`compute`, `numpy` and `grad` name slots by their parameters and receive the value: a list for
`many=True`, None for an empty optional slot; `d_Out` is the slot `Out@GRAD`. They return the only
output, or a dict from slot to value (`grad` uses the forward slot's name). A parameter annotated
`Shape` receives only the shape, since the data may have been freed. The other bodies take one
object with all slots, `Slots`: `s.X`, `s.get("Bias")`, `s.all("X_lod")`, `s.d_Out`. `grad_ops`
defines a gradient that consists of other ops. `lower(self, k, s)` and `lower_grad` may emit faster
NumPy code than a call of `numpy`, see `kernel_builder`; there, outputs are slots too, and
`s.get` returns None if they are unused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias, cast

import numpy as np

from compiler.errors import BadAttribute, UnknownOp, did_you_mean
from compiler.ir.libraries import MatrixProduct
from compiler.ir.opdef.bodies import GRADIENT_BODIES, call, has, parameters
from compiler.ir.opdef.broadcasting import broadcast, fit, reduced_axes
from compiler.ir.opdef.half_precision import cast_results, map_value, upcast_to_fp32
from compiler.ir.opdef.layout_rules import (
    Order,
    PermutedOp,
    Types,
    permute_all_operands,
    permuted_gradient,
)
from compiler.ir.opdef.slot_values import Slots, slot_of
from compiler.ir.opdef.slots import (
    BOOKKEEPING,
    Attr,
    RecomputeRule,
    Share,
    Slot,
    attr,
    attr_list,
    listed,
    matched,
    reads,
    reads_lod,
    reads_previous,
    reads_rows,
    reads_token,
    required,
    required_list,
    writes,
    writes_lod,
    writes_rows,
    writes_token,
)  # fmt: skip
from compiler.ir.program import GRAD
from compiler.ir.types import DType, Shape, TensorType, type_of
from compiler.support.lazy_loading import filled, found_later

__all__ = [
    "Attr", "BOOKKEEPING", "GradOp", "HostOp", "OpDef", "Pointwise", "PointwiseGrad",
    "RecomputeRule",
    "Rowwise",
    "RowwiseGrad", "Share", "Slot", "Slots", "Types", "Value", "Xp", "attr", "attr_list",
    "broadcast",
    "call", "check_attributes", "find", "fit", "has", "is_registered", "listed", "loaded",
    "parameters",
    "reads", "reads_lod", "reads_token", "reads_previous", "reads_rows", "reduced_axes",
    "registered", "required", "required_list", "slot_of", "type_of", "writes", "writes_lod",
    "writes_token", "writes_rows",
]  # fmt: skip

Xp: TypeAlias = Any
"""`numpy`, or a tracer with the same functions that records the computation."""
Value: TypeAlias = Any
"""The value of a slot in a body: an array, a traced expression, or a list of them."""


class Typed(Protocol):
    """A value with a type: a var of a graph, a value of a plan."""

    @property
    def type(self) -> TensorType:
        """Its element type and shape."""
        ...


class OpDef:
    """The base class of ops; an instance has its attributes bound. See the module docstring."""

    kind: ClassVar[str] = ""
    slots: ClassVar[dict[str, Slot]] = {}
    attrs: ClassVar[dict[str, Attr[Any]]] = {}
    grad_class: ClassVar[type[GradOp] | None] = None
    shape_only: ClassVar[frozenset[str]] = frozenset()
    """The inputs of which only the shape is read."""
    _inputs: ClassVar[Mapping[str, Slot]] = {}
    _outputs: ClassVar[Mapping[str, Slot]] = {}

    # ---- flags

    has_effects: ClassVar[bool] = False
    """True for ops with side effects, which run even if their outputs are unused."""
    schedule_early: ClassVar[bool] = False
    """True for ops that start communication: scheduled as early as possible."""
    schedule_late: ClassVar[bool] = False
    """True for ops that wait for communication: scheduled right before their result is read."""
    is_composite: ClassVar[bool] = False
    """True for ops that are expanded into other ops when a program is converted to a graph."""
    is_random: ClassVar[bool] = False
    """True for ops that return different values in every run, so that they are not constant."""
    lod_source: ClassVar[str | None] = None
    """The input whose LoD outputs with as many rows share; None: the first input."""
    uses_offsets: ClassVar[bool] = True
    """False for ops that only choose or copy LoD, and never use its offsets as indices."""
    derives_offsets: ClassVar[bool] = False
    """True for ops whose output LoD is valid if the LoD that they read is, whatever their data."""
    device_epilogue: ClassVar[str] = ""
    """The output to which device kernels can fuse an epilogue; see `epilogue`."""
    epilogue_grad: ClassVar[str] = ""
    """The input whose gradient is such an output of the gradient op, on a device."""
    epilogue: ClassVar[str] = ""
    """The output to which pointwise ops of its shape can be fused (epilogue): it then needs no
    memory, and the op's code may apply them tile by tile.
    """
    rows_like: ClassVar[str] = ""
    """The input whose row indices the outputs share, for elementwise ops on sparse gradients."""
    linear_in: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of inputs; the outputs are linear in each group while the other groups are fixed."""
    is_piecewise_linear: ClassVar[bool] = False
    """True for a unary elementwise op that is piecewise linear."""
    computes_in_fp32: ClassVar[bool] = True
    """False for ops that only move elements or need their exact bits: halves are not upcast."""
    sets_output_sizes: ClassVar[bool] = False
    """True if the `kernel` body sets data-dependent sizes of outputs."""
    overridden_sizes: ClassVar[Mapping[str, str]] = {}
    """Slots of tensors with sizes, each with the attribute whose sizes they replace at run time."""
    updates_if: ClassVar[str] = ""
    """For a gradient op that updates a parameter in place of returning a gradient: the input that
    disables it with `stop_gradient`.
    """
    sparse_grads: ClassVar[tuple[str, ...]] = ()
    """The inputs whose gradient may be sparse: `grad` then returns `W_rows` in addition to `W`."""
    x_shape_axis: ClassVar[int] = 0
    """The axis of size 0 of an output XShape, 0 or -1; its other sizes are those of X."""
    grad_like: ClassVar[Mapping[str, str]] = {}
    """Inputs that the gradient op lacks, each with an operand that it has of the same shape."""
    unread_by_kernels: ClassVar[tuple[str, ...]] = ()
    """Optional inputs that the kernel bodies accept without reading them."""
    no_kernel_reason: ClassVar[str] = ""
    """Why the op has no device kernel by design (host fallback); empty if it may have one."""

    # ---- what may share memory, and how the op computes on permuted operands

    is_cheap: ClassVar[bool] = False
    """True for ops that are cheap compared with a matrix product: they may be recomputed."""
    in_place: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Outputs, each with inputs of equal size in bytes that it may overwrite, in addition to those
    declared by `writes(inplace=…)`.
    """
    in_place_grad: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """The same for the gradient op, where output `X` means the gradient of X."""
    gaps: ClassVar[frozenset[str]] = frozenset()
    """Slots whose values, and gradients, may be strided along the first axis."""
    prefers_channels_last: ClassVar[bool] = False
    """True for ops that read images as matrix products: channels-last tiles are loaded in long
    contiguous runs.
    """

    def __init_subclass__(cls, op: str = "", grad_op: str = "", **rest: Any) -> None:
        super().__init_subclass__(**rest)
        members = vars(cls).items()
        slots = {n: replace(v, name=n) for n, v in members if isinstance(v, Slot)}
        attrs = {n: cast("Attr[Any]", v) for n, v in members if isinstance(v, Attr)}
        cls.slots = matched({**cls.slots, **slots})
        cls._inputs = {name: slot for name, slot in cls.slots.items() if not slot.is_output}
        cls._outputs = {name: slot for name, slot in cls.slots.items() if slot.is_output}
        cls.shape_only = frozenset(name for name, slot in cls.slots.items() if slot.shape_only)
        cls.attrs = {**cls.attrs, **attrs}
        if op:
            cls.kind = op
            _REGISTRY[op] = cls
            differentiable = hasattr(cls, "grad")
            cls.grad_class = _grad_class(cls, grad_op or op + "_grad") if differentiable else None

    def __init__(self, attributes: Mapping[str, Any] | None = None) -> None:
        values = attributes or {}
        self.attributes = {name: a.value(self.kind, values) for name, a in self.attrs.items()}

    @classmethod
    def bound_to(cls, attributes: dict[str, Any]) -> Self:
        """Return the op with the attributes of another op, which declares the same ones."""
        op = cls.__new__(cls)
        op.attributes = attributes
        return op

    @classmethod
    def inputs(cls) -> Mapping[str, Slot]:
        """Return the input slots by name, in order of declaration."""
        return cls._inputs

    @classmethod
    def outputs(cls) -> Mapping[str, Slot]:
        """Return the output slots by name, in order of declaration."""
        return cls._outputs

    def epilogue_output(self, target: str | None) -> str:
        """Return the output to which an epilogue can be fused; empty if there is none."""
        return self.epilogue or (self.device_epilogue if target else "")

    def is_ordered(self) -> bool:
        """Return whether the op is ordered with respect to collectives, by token slots."""
        return "Before" in self.slots

    def body_owner(self, body: str) -> tuple[OpDef, str]:
        """Return the op whose class implements a body, and the method's name there."""
        return self, body

    def sparse_variant(self) -> str:
        """Return the kind of the variant for sparse gradients (SelectedRows), or ""."""
        return ""

    def array_variant(self) -> str:
        """Return the kind of the variant for tensor arrays, or ""."""
        return ""

    def attribute_variant(self) -> str:
        """Return the kind of the op that implements these attributes, or "" if it is this one."""
        return ""

    def types_of(self, inputs: Mapping[str, Sequence[Typed]]) -> dict[str, Any]:
        """Return the types of inputs by slot, as `infer_types` takes them."""
        slot_types = {slot: [var.type for var in items] for slot, items in inputs.items()}
        return {slot: self.slots[slot].hold(types) for slot, types in slot_types.items()}

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Infer the types of the outputs by slot from the types of the inputs by slot.

        A `many` slot has a list. Raises ShapeError if the inputs are incompatible.
        """
        return self.named(call(self, "infer", types))

    def declared_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Infer types while a program is recorded, from hints; None if undetermined."""
        return self.infer_types(types)

    def evaluate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run the reference implementation on arrays by slot; returns arrays by slot."""
        wide = upcast_to_fp32(values) if self.computes_in_fp32 else values
        results = self.named(call(self, "numpy", wide))
        if wide is values:
            return results
        types = {slot: map_value(type_of, value) for slot, value in values.items()}
        return cast_results(results, self.infer_types(types))

    def named(self, result: Any) -> dict[str, Any]:
        """Convert a body's result to a dict from slot to value."""
        if isinstance(result, dict):
            return cast("dict[str, Any]", result)
        return {next(iter(self.outputs())): result}

    # ---- rules that classes override

    def concatenates_rows(self, ranks: Mapping[str, int]) -> bool:
        """Return whether the rows of Out are those of all X concatenated, given the ranks."""
        return False

    def no_kernel_for_attributes(self) -> str:
        """Return why the op has no device kernel for these attributes; empty if it may have one."""
        return ""

    # ---- memory

    def again(self) -> RecomputeRule | None:
        """Return another op that recomputes outputs bit-identically, or None."""
        return None

    def shares(self, types: Types) -> list[Share]:
        """List the inputs and outputs that may alias, since elements are only moved or viewed."""
        return []

    def declares_shares(self) -> bool:
        """Return whether the class overrides `shares`: a cheap test before calling it."""
        return type(self).shares is not OpDef.shares

    def shares_grad(self, types: Types) -> list[Share]:
        """List the operands of the gradient op that may alias."""
        return []

    def overwritable_inputs(self, slot: str) -> tuple[str, ...]:
        """Return the inputs, any one of which an output may overwrite."""
        return tuple(filter(None, (self.slots[slot].inplace, *self.in_place.get(slot, ()))))

    def supports_strided_rows(self, slot: str, axes: int) -> bool:
        """Return whether the value in a slot may have strided rows.

        The first `axes` axes index the rows.
        """
        return slot in self.gaps and axes == 1

    # ---- libraries

    def matrix_products(self, types: Types) -> Mapping[str, MatrixProduct]:
        """Return the outputs that are products of two matrices; `types` are those of inputs."""
        return {}

    def gradient_products(self, types: Types) -> Mapping[str, MatrixProduct]:
        """Return the gradients, by input, that are; outputs as factors are their gradients."""
        return {}

    # ---- layout

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Return the op on operands permuted by `order`, of equal rank; None if unsupported.

        `types` are the current types of its inputs and outputs by slot.
        """
        return None

    def gradient_type(self, slot: str, given: Any) -> Any:
        """Return the type of the gradient of an input, or a list of types: those of the input."""
        return given

    def reads_tiles(self) -> bool:
        """Return `prefers_channels_last`; a gradient op returns that of its forward op."""
        return self.prefers_channels_last


class Pointwise(OpDef):
    """An elementwise op on broadcast inputs."""

    is_cheap = True

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute all operands; they must have the rank of `order` or be scalars."""
        return permute_all_operands(types, order)

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """Return shapes to view slots in before broadcasting; other slots keep theirs."""
        return {}

    def result(self, operand: TensorType) -> TensorType:
        """Return the output type; `operand` is the first input's, broadcast."""
        return operand

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Infer the broadcast type for outputs, the input's type for in-place outputs."""
        flat = {slot: types[slot] for slot in self.inputs() if types.get(slot) is not None}
        first = listed(next(iter(flat.values())))[0]
        shape = broadcast(self.kind, list(self.views(flat).values()))
        result = self.result(first.with_shape(shape))
        updated = {s.name: flat.get(s.inplace) for s in self.outputs().values()}
        return {name: updated[name] or result for name in updated}

    def views(self, types: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the aligned shape of every input; those of a `many` slot are `X.0`, `X.1`, …"""
        single = {s: t for s, t in types.items() if isinstance(t, TensorType)}
        aligned = self.align(single)
        shapes = {slot: aligned.get(slot, t.shape) for slot, t in single.items()}
        for slot in [slot for slot in types if slot not in single]:
            shapes |= {f"{slot}.{i}": t.shape for i, t in enumerate(listed(types[slot]))}
        return shapes

    def evaluate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Run `compute` on NumPy arrays and convert every result to its declared type."""
        types = {slot: map_value(type_of, value) for slot, value in values.items()}
        views = self.views({slot: t for slot, t in types.items() if t is not None})
        upcasted = upcast_to_fp32(values, [DType.BF16])  # NumPy has no arithmetic for it
        seen = {s: v.reshape(views[s]) if s in views else v for s, v in upcasted.items()}
        results = self.named(call(self, "compute", seen, np))
        wanted = self.infer_types(types)
        aligned = self.output_views(types)
        return {
            slot: fit(np.asarray(results[slot]), wanted[slot], aligned.get(slot))
            for slot in wanted
            if slot in results
        }

    def output_views(self, types: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the aligned shape of outputs that are smaller than the broadcast shape."""
        return {}


class Rowwise(Pointwise):
    """A `Pointwise` op that may also reduce axes if it keeps them as size 1 (softmax)."""

    permuted = OpDef.permuted


class HostOp(OpDef):
    """An op that runs on the host for its side effects: input, output, messages."""

    has_effects = True
    computes_in_fp32 = False


class GradOp(OpDef):
    """The base class of gradient ops, generated from the `grad` of the forward op."""

    forward: ClassVar[type[OpDef]]

    def __init__(self, attributes: Mapping[str, Any] | None = None) -> None:
        super().__init__(attributes)
        self.origin = self.forward.bound_to(self.attributes)

    def attribute_variant(self) -> str:
        """Return the gradient of the op that replaces the forward op, or ""."""
        variant = self.origin.attribute_variant()
        return variant and f"{variant}_grad"

    def body_owner(self, body: str) -> tuple[OpDef, str]:
        """Return the forward op, whose class implements the gradient, and the method's name."""
        if body == "check_values" and hasattr(type(self.origin), "check_grad_values"):
            return self.origin, "check_grad_values"
        return self.origin, GRADIENT_BODIES[body]

    def is_ordered(self) -> bool:
        """Return whether the forward op is ordered."""
        return self.origin.is_ordered()

    def epilogue_output(self, target: str | None) -> str:
        """Return the gradient that an epilogue may be fused to on a device; empty on the host."""
        slot = self.origin.epilogue_grad if target else ""
        return slot and slot + GRAD

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Infer the types of gradients: those of the variables, or that of `d_Out`."""
        if has(self, "infer"):
            return self.named(call(self, "infer", types))
        default = next(types[s] for s in self.inputs() if s.endswith(GRAD) and types.get(s))
        values = (name for name, slot in self.outputs().items() if not slot.companion)
        variables = {slot: (s := slot.removesuffix(GRAD), types.get(s)) for slot in values}
        return {
            slot: self.origin.gradient_type(s, t) if t else default
            for slot, (s, t) in variables.items()
        }

    def named(self, result: Any) -> dict[str, Any]:
        """Convert a body's result, keyed by forward slots, to a dict keyed by gradient slots."""
        return {slot + GRAD: value for slot, value in cast("dict[str, Any]", result).items()}

    # ---- what the class of the forward op declares for its gradient

    def declares_shares(self) -> bool:
        """Return whether the class of the forward op overrides `shares_grad`."""
        return type(self.origin).shares_grad is not OpDef.shares_grad

    def shares(self, types: Types) -> list[Share]:
        """List the aliases that the forward op declares for its gradient."""
        return self.origin.shares_grad(types)

    def overwritable_inputs(self, slot: str) -> tuple[str, ...]:
        """Return the inputs that the forward op allows this gradient to overwrite."""
        return self.origin.in_place_grad.get(slot.removesuffix(GRAD), ())

    def supports_strided_rows(self, slot: str, axes: int) -> bool:
        """Return whether the forward op supports strided rows in this slot."""
        return self.origin.supports_strided_rows(slot.removesuffix(GRAD), axes)

    def matrix_products(self, types: Types) -> Mapping[str, MatrixProduct]:
        """Return the products of the gradient."""
        products = self.origin.gradient_products(types)
        outputs = self.forward.outputs()
        return {slot + GRAD: each.of_gradients(GRAD, outputs) for slot, each in products.items()}

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Apply the rule of the forward op to values and gradients."""
        values = {slot.removesuffix(GRAD): items for slot, items in types.items()}
        forward = self.origin.permuted(values, order)
        return None if forward is None else permuted_gradient(forward, types)

    def reads_tiles(self) -> bool:
        """Return the preference of the forward op."""
        return self.origin.reads_tiles()


class PointwiseGrad(GradOp, Pointwise):
    """The gradient of an op whose `grad` takes `xp`; sums over the broadcast axes."""

    def views(self, types: Mapping[str, Any]) -> dict[str, Shape]:
        """Return views of inputs as in the forward op; gradients of outputs keep their shape."""
        if isinstance(self.origin, Pointwise):
            return self.origin.views(types)
        return super().views(types)

    def output_views(self, types: Mapping[str, Any]) -> dict[str, Shape]:
        """Return the aligned shape of each gradient: that of its variable."""
        present = {slot: t for slot, t in types.items() if t is not None}
        return {slot + GRAD: shape for slot, shape in self.views(present).items()}


class RowwiseGrad(PointwiseGrad, Rowwise):
    """The gradient of a `Rowwise` op."""


def find(kind: str) -> type[OpDef]:
    """Return the class of an op type; UnknownOp with a suggestion if it is not registered."""
    if is_registered(kind):
        return _REGISTRY[kind]
    hint = did_you_mean(kind, _REGISTRY)
    raise UnknownOp(f'Operator "{kind}" has not been registered.', hint=hint)


def is_registered(kind: str) -> bool:
    """Return whether an op type is registered."""
    return kind in _REGISTRY or found_later(_REGISTRY, kind)


def loaded(kind: str) -> type[OpDef] | None:
    """Return the class of an op type if its file is already loaded, else None."""
    return _REGISTRY.get(kind)


def registered() -> Iterator[str]:
    """Iterate over all registered op types, sorted; gradient ops included."""
    return iter(sorted(filled(_REGISTRY)))


def check_attributes(kind: str, attributes: Mapping[str, Any]) -> None:
    """Raise BadAttribute if an op type does not declare one of the attributes."""
    declared = find(kind).attrs
    for name in attributes:
        if name not in declared and name not in BOOKKEEPING:
            listed = ", ".join(declared) or "none"
            hint = did_you_mean(name, declared)
            raise BadAttribute(f"{kind} has no attribute {name!r}; it has: {listed}", hint=hint)


_REGISTRY: dict[str, type[OpDef]] = {}


def _grad_class(forward: type[OpDef], name: str) -> type[GradOp]:
    """Create and register the gradient op class: its slots are the parameters of `grad`."""
    names = parameters(forward, "grad")
    takes_xp = bool(names) and names[0][0] == "xp"
    slots = {slot_of(n): _grad_input(forward, n, kind) for n, kind in names[int(takes_xp) :]}
    targets = [slot for slot in forward.inputs().values() if not slot.no_grad]
    slots |= {s.name + GRAD: writes(optional=True, many=s.many) for s in targets}
    slots |= {n: slot for n, slot in forward.slots.items() if slot.companion == "order"}
    slots |= {f"{name}_rows{GRAD}": writes_rows(name + GRAD) for name in forward.sparse_grads}
    about = {"forward": forward, "__doc__": f"Gradient of `{forward.kind}`."}
    base = _grad_base(forward) if takes_xp else GradOp
    cls = cast("type[GradOp]", type(forward.__name__ + "Grad", (base,), about | slots))
    cls.kind, cls.attrs, cls.computes_in_fp32 = name, forward.attrs, forward.computes_in_fp32
    _REGISTRY[name] = cls
    return cls


def _grad_base(forward: type[OpDef]) -> type[GradOp]:
    return RowwiseGrad if issubclass(forward, Rowwise) else PointwiseGrad


def _grad_input(forward: type[OpDef], parameter: str, annotation: str) -> Slot:
    """Return the input slot of a gradient op: as the forward op declares it, for its annotation."""
    declared = forward.slots[slot_of(parameter).removesuffix(GRAD)]
    if declared.companion == "lod":
        return reads_lod(declared.of, optional=not declared.needed)
    return reads(
        optional=declared.optional or annotation.endswith("| None"),
        many=declared.many,
        shape_only=annotation in ("Shape", "list[Shape]"),
        on_host=declared.on_host and not parameter.startswith("d_"),
        sizes_only=declared.sizes_only,
    )
