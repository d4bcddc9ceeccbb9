"""Checks the memory of a step against a limit before anything is allocated.

Counted is what is known once sizes are bound: parameters and other state, feeds, the arenas with
the scratch memory of kernels, and the copies of fetches.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from compiler.codegen.module import Module
from compiler.ir.dims import Size, evaluate, parse_size
from compiler.ir.types import Array
from compiler.pack import Lifetime
from compiler.plan import Tensor
from compiler.support.dataclass import dataclass
from runtime.errors import MemoryLimitExceeded
from runtime.memory.params import Params

SHOWN = 4
"""Number of variables, the largest ones, named in a message."""

_KINDS = {
    "parameter": "parameters",
    "feed": "feeds",
    "fetch": "fetches",
    "prepared": "packed parameters",
}
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


@dataclass(frozen=True)
class Weight:
    """Memory of one variable: its kind, its bytes, and the user's line if known."""

    kind: str
    name: str
    nbytes: int
    text: str = ""
    source: str = ""

    def __str__(self) -> str:
        line = f"  ({self.source})" if self.source else ""
        return f"{self.kind} {self.name!r}{self.text}: {bytes_text(self.nbytes)}{line}"


def check_limit(
    module: Module,
    limit: int,
    sizes: Mapping[str, int],
    lives: Sequence[Lifetime],
    arena: int,
    params: Params,
) -> None:
    """Raise MemoryLimitExceeded if a step of a module would take more bytes than `limit`.

    `lives` are its buffers at these sizes, `arena` the bytes they are packed into. The message
    names the largest variables with their shapes, bytes and the user's lines.
    """
    edges = [*_params(module, sizes, params), *_edges("feed", module.feeds, sizes)]
    edges += [*_edges("fetch", module.fetches, sizes), *_prepared(module)]
    total = arena + sum(weight.nbytes for weight in edges)
    if total <= limit:
        return
    parts = [f"{bytes_text(arena)} for temporaries"]
    for kind, plural in _KINDS.items():
        of_kind = [edge.nbytes for edge in edges if edge.kind == kind]
        if of_kind or kind != "prepared":
            parts.append(f"{bytes_text(sum(of_kind))} for {plural}")
    raise _exceeded(
        f"the memory limit of {bytes_text(limit)}",
        (total, parts, [*edges, *_buffers(module, sizes, lives)]),
        "feed a smaller batch, or raise the memory limit",
    )


def check_machine(
    module: Module,
    memory: int,
    sizes: Mapping[str, int],
    lives: Sequence[Lifetime],
    arena: int,
) -> None:
    """Raise MemoryLimitExceeded if a step would allocate more bytes than the machine has.

    Counted are the arena and the copies of fetches; feeds and parameters exist already, and those
    in mapped files take no memory of the machine. Arguments as for `check_limit`.
    """
    fetches = [*_edges("fetch", module.fetches, sizes)]
    copies = sum(fetch.nbytes for fetch in fetches)
    if arena + copies <= memory:
        return
    parts = [f"{bytes_text(arena)} for temporaries", f"{bytes_text(copies)} for fetches"]
    raise _exceeded(
        f"the {bytes_text(memory)} of this machine",
        (arena + copies, parts, [*fetches, *_buffers(module, sizes, lives)]),
        "feed a smaller batch, or check the shapes that are broadcast",
    )


def _exceeded(
    limit: str, needed: tuple[int, Sequence[str], Sequence[Weight]], hint: str
) -> MemoryLimitExceeded:
    """The error with the bytes in total and by kind, and the largest variables with their lines."""
    total, parts, weights = needed
    largest = sorted(weights, key=lambda each: -each.nbytes)[:SHOWN]
    listed = "".join(f"\n    {weight}" for weight in largest if weight.nbytes)
    return MemoryLimitExceeded(
        f"a step takes {bytes_text(total)}, more than {limit}: {', '.join(parts)}; the largest "
        f"are{listed}",
        source=next((weight.source for weight in largest if weight.source), ""),
        hint=hint,
    )


def bytes_text(nbytes: int) -> str:
    """Format bytes in a readable unit.

    >>> bytes_text(512), bytes_text(3 << 29)
    ('512 B', '1.50 GiB')
    """
    power = min(max(nbytes.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{nbytes} B" if not power else f"{nbytes / 1024**power:.2f} {_UNITS[power]}"


def _params(module: Module, sizes: Mapping[str, int], params: Params) -> Iterator[Weight]:
    """Existing state, and state that a step will create."""
    for tensor in module.params:
        array: Array | None = params.get(tensor.name)
        weight = _weight("parameter", tensor, sizes)
        yield (
            weight
            if array is None
            else Weight(
                weight.kind, weight.name, array.nbytes, f", {array.dtype} of shape {array.shape}"
            )
        )


def _edges(kind: str, tensors: Sequence[Tensor], sizes: Mapping[str, int]) -> Iterator[Weight]:
    """Feeds or fetches whose sizes are known at bind time."""
    return (_weight(kind, tensor, sizes) for tensor in tensors if _are_known(tensor.shape, sizes))


def _are_known(shape: Sequence[Size], sizes: Mapping[str, int]) -> bool:
    return all(isinstance(size, int) or sizes.keys() >= set(size.names) for size in shape)


def _weight(kind: str, tensor: Tensor, sizes: Mapping[str, int]) -> Weight:
    shape = tuple(evaluate(size, sizes) for size in tensor.shape)
    nbytes = math.prod(shape) * np.dtype(tensor.dtype).itemsize
    return Weight(kind, tensor.name, nbytes, f", {tensor.dtype} of shape {shape}")


def _buffers(
    module: Module, sizes: Mapping[str, int], lives: Sequence[Lifetime]
) -> Iterator[Weight]:
    """The buffers, with the shape and the user's line of the variable they are named after."""
    lines = {
        name: line for outputs, line in _OP.findall(module.source) for name in _listed(outputs)
    }
    takes = {take.groups() for take in _TAKE.finditer(module.source)}
    texts = {(int(n), *_array(dtype, shape, sizes)) for n, dtype, shape in takes}
    shapes = {(number, nbytes): text for number, nbytes, text in sorted(texts)}
    for number, (buffer, life) in enumerate(zip(module.buffers, lives, strict=True)):
        text, line = shapes.get((number, life.size), ""), lines.get(buffer.name, "")
        yield Weight("temporary", buffer.name, life.size, text, line)


def _prepared(module: Module) -> Iterator[Weight]:
    """The arrays that native kernels prepare from parameters, outside of the arenas."""
    for kernel, shape, dtype in _PREPARED.findall(module.source):
        nbytes, text = _array(dtype, shape, {})
        yield Weight("prepared", kernel, nbytes, text)


_OP = re.compile(r"^ *# (.+?) = \w+\(.*  (\S.*:\d+)$", re.MULTILINE)
"""The comment above an op in a module: its outputs and the user's line."""

_TAKE = re.compile(r" = take\((\d+), '(\w+)', \((.*?),?\)(?:, \d.*)?\)$", re.MULTILINE)
"""A call that takes an array over a buffer: its number, dtype and sizes."""


_PREPARED = re.compile(r" = native\.prepared\('(\w+)', \([\w, ]*\), [^,]+, \(([^)]*?),?\), '(\w+)'")
"""A call that prepares an array: the kernel, the array's sizes and dtype."""


def _listed(outputs: str) -> list[str]:
    return outputs.split(", ")


def _array(dtype: str, shape: str, sizes: Mapping[str, int]) -> tuple[int, str]:
    """The bytes of an array that a module takes, and its dtype and shape as text."""
    sizes_in_elements = tuple(
        evaluate(parse_size(size), sizes) for size in shape.split(",") if size.strip()
    )
    return math.prod(sizes_in_elements) * np.dtype(
        dtype
    ).itemsize, f", {dtype} of shape {sizes_in_elements}"
