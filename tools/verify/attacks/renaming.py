"""Models with replaced strings: every string of a saved program, one by one or all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.model_format.protobuf import AttrType, Message, build, dump, parse
from compiler.ir.program import EMPTY
from fluid.saving.inference_model import read_inference_model
from runtime.files.checkpoint import save_combined
from runtime.tensors.lod_tensor import LoDTensor

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden" / "inference"
BOOKS = frozenset({"op_namescope", "op_device"})
"""Attributes without effect on results: any text is valid."""
EDGES = frozenset({"feed", "fetch"})


@dataclass(frozen=True)
class Original:
    """A saved model with recorded numbers: its program, its parameters, feeds and the result."""

    name: str
    message: Message
    params: Mapping[str, LoDTensor]
    feed: Mapping[str, Any]
    result: np.ndarray

    @property
    def variables(self) -> list[str]:
        """The names of its variables, in order, except those that hold feeds and fetches."""
        names = dict.fromkeys(
            var.one("name", str)
            for block in self.message.many("blocks", Message)
            for var in block.many("vars", Message)
        )
        return [name for name in names if name not in EDGES]


def originals() -> list[Original]:
    """The models that the reference saved for the tests."""
    return [_original(path) for path in sorted(GOLDEN.glob("*__combined"))]


def _original(folder: Path) -> Original:
    name = folder.name.removesuffix("__combined")
    model = read_inference_model(folder, "model", "params")
    with np.load(GOLDEN / f"{name}__io.npz") as file:
        arrays = {key: file[key] for key in file.files}
    feed = {key[3:]: _fed(arrays, key) for key in arrays if key.startswith("in.")}
    fed = {var.name for var in model.feeds}
    feed = {key: value for key, value in feed.items() if key in fed}
    message = parse((folder / "model").read_bytes())
    return Original(name, message, model.params, feed, arrays["out"])


def _fed(held: Mapping[str, np.ndarray], key: str) -> Any:
    if f"lod:{key}" not in held:
        return held[key]
    tensor = LoDTensor(held[key])
    tensor.set_recursive_sequence_lengths([held[f"lod:{key}"].tolist()])
    return tensor


def renamed(message: Message, names: Mapping[str, str], books: str | None = None) -> Message:
    """The program with variables renamed, and another text in its bookkeeping attributes."""
    blocks = tuple(_block(block, names, books) for block in message.many("blocks", Message))
    return replace(message, values={**message.values, "blocks": blocks})


def _block(block: Message, names: Mapping[str, str], books: str | None) -> Message:
    vars = tuple(
        replace(var, values={**var.values, "name": names.get(old, old)})
        for var in block.many("vars", Message)
        for old in [var.one("name", str)]
    )
    ops = tuple(_op(op, names, books) for op in block.many("ops", Message))
    return replace(block, values={**block.values, "vars": vars, "ops": ops})


def _op(op: Message, names: Mapping[str, str], books: str | None) -> Message:
    values = dict(op.values)
    for side in ("inputs", "outputs"):
        if side in values:
            values[side] = tuple(_slot(slot, names) for slot in op.many(side, Message))
    attrs = [_attr(attr, names, books) for attr in op.many("attrs", Message)]
    if books is not None and op.one("type", str) not in EDGES:
        attrs = [attr for attr in attrs if attr.one("name", str) != "op_callstack"]
        attrs.append(_call_stack(books))
    return replace(op, values={**values, "attrs": tuple(attrs)} if attrs else values)


def _call_stack(text: str) -> Message:
    """The user's source lines of an op, which saved models may have."""
    lines = (f'  File "{text}", line 1, in f', f"    {text}", text)
    return build("OpDesc.Attr", name="op_callstack", type=int(AttrType.STRINGS), strings=lines)


def _slot(slot: Message, names: Mapping[str, str]) -> Message:
    arguments = tuple(n if n == EMPTY else names.get(n, n) for n in slot.many("arguments", str))
    return replace(slot, values={**slot.values, "arguments": arguments}) if arguments else slot


def _attr(attr: Message, names: Mapping[str, str], books: str | None) -> Message:
    name, values = attr.one("name", str), dict(attr.values)
    if "strings" in values:  # roles, and the states of recurrent ops
        values["strings"] = tuple(names.get(n, n) for n in attr.many("strings", str))
    elif name in BOOKS and books is not None:
        values["s"] = books
    return replace(attr, values=values)


# ---- one string at a time ------------------------------------------------------------------------


def spots(message: Message) -> int:
    """The number of strings in a message, including nested messages."""
    return sum(1 for _ in _strings(message))


def _strings(message: Message) -> Iterator[str]:
    for value in message.values.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Message):
                yield from _strings(item)
            elif isinstance(item, str):
                yield item


def with_string(message: Message, spot: int, text: str) -> Message:
    """The message with one of its strings replaced."""
    return _Replacing(spot, text).message(message)


class _Replacing:
    """Counts strings down to the one that is replaced."""

    def __init__(self, spot: int, text: str) -> None:
        self.left, self.text = spot, text

    def message(self, message: Message) -> Message:
        values = {name: self.value(value) for name, value in message.values.items()}
        return replace(message, values=values)

    def value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self.value(item) for item in value)
        if isinstance(value, Message):
            return self.message(value) if self.left >= 0 else value
        if isinstance(value, str):
            self.left -= 1
            return self.text if self.left == -1 else value
        return value


def saved(original: Original, message: Message, names: Mapping[str, str], folder: Path) -> Path:
    """Write the files of a renamed model; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__model__").write_bytes(dump(message))
    tensors = {
        names.get(name, name): (tensor.array, tuple(map(tuple, tensor.lod())))
        for name, tensor in original.params.items()
        if tensor.array is not None
    }
    save_combined(folder / "params", tensors)
    return folder
