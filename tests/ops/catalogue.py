"""The table of all ops in docs/ops.md, made from the registry.

`pytest tests/ops/test_catalogue.py --update` writes it anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import groupby

from compiler.codegen.native.target import NativeTarget
from compiler.codegen.onnx import export as onnx
from compiler.codegen.triton.target import TritonTarget
from compiler.ir.opdef import GradOp, OpDef, Pointwise, find, registered
from compiler.ir.opdef.slots import Slot

HEAD = """# Ops

Every op of a program that can be compiled and run, generated from the registry by
`pytest tests/ops/test_catalogue.py --update`.

- **inputs, outputs**: slots; `*` takes several variables, `?` is optional.
- **gradient**: the op that `append_backward` appends, or "ops" if the gradient is other ops.
- **NumPy**: how the NumPy target emits the op: *fused* with its neighbours, by its own *lowering*, by a
  call of its *reference* implementation. *Other ops*: every target runs the ops that it is made of.
- **native**, **Triton**: which of the *op* and its *gradient* op have a kernel, of the CPU or of the GPU,
  for at least some attributes, types and sizes. The others run on the host, as NumPy does.
- **ONNX**: *yes* if `fluid export` has a counterpart for at least some attributes.
- **also**: *sequences* if the op reads or writes LoD, *rows* if it reads or writes sparse gradients.
- **computes**: the first line of the class's docstring.

"""

COLUMNS = (
    "op", "inputs", "outputs", "attributes", "NumPy", "native", "Triton", "gradient", "ONNX", "also",
    "computes",
)  # fmt: skip
NATIVE, TRITON = NativeTarget(), TritonTarget()


def catalogue() -> str:
    """Return docs/ops.md: a chapter for each folder of `compiler/ops`, a section for each file."""
    kinds = tabulated()
    files = sorted({find(kind).__module__ for kind in kinds})
    folders = groupby(files, lambda name: name.rpartition(".")[0])
    chapters = "\n".join(chapter(folder, group, kinds) for folder, group in folders)
    return f"{HEAD}{summary()}\n\n{chapters}"


def tabulated() -> list[str]:
    """The ops of the table: all but gradient ops, which are in the rows of theirs."""
    own = [kind for kind in registered() if find(kind).__module__.startswith("compiler.ops.")]
    return [kind for kind in own if not issubclass(find(kind), GradOp)]


def summary() -> str:
    """How many ops there are, and how many of them have what."""
    kinds = tabulated()
    exported = sum(map(onnx.writes, map(find, kinds)))
    return (
        f"{len(kinds)} ops, {sum(map(has_gradient, kinds))} with a gradient and {exported} with a "
        "counterpart in ONNX.\nKernels, gradients counted and ops made of others not: for the CPU "
        f"{kernel_count(NATIVE)}, for the GPU {kernel_count(TRITON)}."
    )


def kernel_count(target: NativeTarget | TritonTarget) -> str:
    """How many ops and gradient ops a target has kernels for, of those not made of other ops."""
    alone = [cls for cls in map(find, tabulated()) if not cls.is_composite]
    gradients = [cls.grad_class for cls in alone if cls.grad_class is not None]
    counted = [*alone, *gradients]
    return f"{sum(map(target.writes, counted))} of {len(counted)} ops"


def chapter(folder: str, files: Iterable[str], kinds: Sequence[str]) -> str:
    """One folder: its title, its docstring, its files."""
    title, about = folder.rpartition(".")[2], import_module(folder).__doc__
    parts = [section(name, [k for k in kinds if find(k).__module__ == name]) for name in files]
    return f"## {title}\n\n{about}\n\n" + "\n".join(parts)


def section(family: str, kinds: Iterable[str]) -> str:
    """Return one family: its title and its table."""
    rows = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    rows += [f"| {' | '.join(row(find(kind)))} |" for kind in kinds]
    return f"### {family.rpartition('.')[2]}\n\n" + "\n".join(rows) + "\n"


def row(cls: type[OpDef]) -> tuple[str, ...]:
    """The row of one op."""
    attributes = ", ".join(f"{name}={attr.default!r}" for name, attr in cls.attrs.items())
    return (
        f"`{cls.kind}`", slots(cls.inputs()), slots(cls.outputs()), attributes.replace("|", "\\|"),
        code(cls), kernels(cls, NATIVE), kernels(cls, TRITON), gradient(cls),
        "other ops" if cls.is_composite else "yes" * onnx.writes(cls), companions(cls), sentence(cls),
    )  # fmt: skip


def slots(declared: Mapping[str, Slot]) -> str:
    """The names of the slots of a program's op."""
    marks = (
        (s.name, "*" * s.many + "?" * s.optional) for s in declared.values() if not s.companion
    )
    return ", ".join(name + mark.replace("*", "\\*") for name, mark in marks)


def has_gradient(kind: str) -> bool:
    """Whether an op has a gradient."""
    return bool(gradient(find(kind)))


def gradient(cls: type[OpDef]) -> str:
    """Return the gradient op, or "ops"."""
    if cls.grad_class is not None:
        return f"`{cls.grad_class.kind}`"
    return "ops" if hasattr(cls, "grad_ops") or hasattr(cls, "gradient_block") else ""


def code(cls: type[OpDef]) -> str:
    """Return how the NumPy target emits the op."""
    if issubclass(cls, Pointwise):
        return "fused"
    if cls.is_composite:
        return "other ops"
    return "lowering" if hasattr(cls, "lower") else "reference" if hasattr(cls, "numpy") else ""


def kernels(cls: type[OpDef], target: NativeTarget | TritonTarget) -> str:
    """Return which of an op and its gradient op a target has kernels for."""
    if cls.is_composite:
        return "other ops"
    owners = {"op": cls, "gradient": cls.grad_class}
    return ", ".join(n for n, owner in owners.items() if owner is not None and target.writes(owner))


def companions(cls: type[OpDef]) -> str:
    """Return whether it knows sequences or sparse rows."""
    kinds = {slot.companion for slot in cls.slots.values()}
    rows_too = "rows" in kinds or cls.rows_like or cls.sparse_grads
    return ", ".join(["sequences"] * ("lod" in kinds) + ["rows"] * bool(rows_too))


def sentence(cls: type[OpDef]) -> str:
    """The first line of a class's docstring."""
    return (cls.__doc__ or "").strip().partition("\n")[0].replace("|", "\\|")
