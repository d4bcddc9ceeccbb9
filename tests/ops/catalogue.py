"""The table of all ops in docs/ops.md, made from the registry.

`pytest tests/ops/test_catalogue.py --update` writes it anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import groupby

from compiler.ir.opdef import GradOp, OpDef, Pointwise, find, registered
from compiler.ir.opdef.slots import Slot

HEAD = """# Ops

Every op of a program that can be compiled and run, generated from the registry by
`pytest tests/ops/test_catalogue.py --update`.

- **inputs, outputs**: slots; `*` takes several variables, `?` is optional.
- **gradient**: the op that `append_backward` appends, or "ops" if the gradient is other ops.
- **code**: how the NumPy target emits the op: *fused* with its neighbours, by its own *lowering*, by a
  call of its *reference* implementation, or as *other ops*.
- **also**: *sequences* if the op reads or writes LoD, *rows* if it reads or writes sparse gradients.
- **computes**: the first line of the class's docstring.

"""

COLUMNS = ("op", "inputs", "outputs", "attributes", "gradient", "code", "also", "computes")


def catalogue() -> str:
    """Return docs/ops.md: a chapter for each folder of `compiler/ops`, a section for each file."""
    own = [kind for kind in registered() if find(kind).__module__.startswith("compiler.ops.")]
    kinds = [kind for kind in own if not issubclass(find(kind), GradOp)]
    files = sorted({find(kind).__module__ for kind in kinds})
    count = f"{len(kinds)} ops, {sum(map(has_gradient, kinds))} with a gradient.\n\n"
    folders = groupby(files, lambda name: name.rpartition(".")[0])
    return HEAD + count + "\n".join(chapter(folder, group, kinds) for folder, group in folders)


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
        gradient(cls), code(cls), companions(cls), sentence(cls),
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


def companions(cls: type[OpDef]) -> str:
    """Return whether it knows sequences or sparse rows."""
    kinds = {slot.companion for slot in cls.slots.values()}
    rows_too = "rows" in kinds or cls.rows_like or cls.sparse_grads
    return ", ".join(["sequences"] * ("lod" in kinds) + ["rows"] * bool(rows_too))


def sentence(cls: type[OpDef]) -> str:
    """The first line of a class's docstring."""
    return (cls.__doc__ or "").strip().partition("\n")[0].replace("|", "\\|")
