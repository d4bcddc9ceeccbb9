"""What decides the machine code of a kernel, said so that equal kernels say the same.

A kernel's text with numbers for names, the helpers it calls, the types of its parameters, the
constants it is compiled with, the options of the compiler and the GPU: nothing else. Kernels of any
modules that agree in all of it are one job, and its digest is where the outcome is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.codegen.ahead.gpus import Gpu
from compiler.codegen.module import KernelSpec, Module
from compiler.codegen.triton.helpers import GLOBALS
from compiler.codegen.triton.kernel_sharing import likeness
from compiler.errors import CompileError

WARPS = 4
"""Warps of a program, as launches have it unless told otherwise."""

FORMAT = 1
"""Grows when the same job is done in another way."""

INDEX = "INDEX"
_FUNCTION = re.compile(
    r"^@triton\.jit.*\n(?:@.*\n)*def (\w+)\(.*\n(?:(?:[ \t)].*)?\n)*", re.MULTILINE
)
"""A decorated function at the top of a module, with all that is indented below it."""

_HEAD = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class Job:
    """A kernel to compile for a GPU.

    `entry` is what its code is called, `source` Python text that defines it and what it calls;
    `types` and `constants` belong to its parameters in order, a constant being a number or the name
    of one of Triton's types; `options` are the compiler's.
    """

    entry: str
    gpu: str
    source: str
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, object], ...]
    options: tuple[tuple[str, object], ...]

    @property
    def is_product(self) -> bool:
        """True where tiles are multiplied, so that arithmetic may take longer than memory."""
        return "tl.dot(" in self.source

    @property
    def warps(self) -> int:
        """Warps of a program."""
        return int(str(dict(self.options)["num_warps"]))

    def message(self) -> str:
        """The job as JSON, on one line."""
        return json.dumps(vars(self), sort_keys=True)

    def digest(self, triton: str) -> str:
        """The identity of what becomes of it with a version of Triton, in hex."""
        return hashlib.sha256(f"{FORMAT} {triton} {self.message()}".encode()).hexdigest()


def said(spec: KernelSpec, index: str) -> dict[str, object]:
    """What every launch of a kernel says besides its arguments."""
    return {**spec.constants, INDEX: index, **spec.options}


def index_of(module: Module, large: bool) -> str:
    """The type that a module's kernels count elements in; `large` decides where sizes are open."""
    fixed = re.search(r"^ *INDEX = tl\.(int\d+)$", module.source, re.MULTILINE)
    return fixed[1] if fixed else "int64" if large else "int32"


def jobs_of(module: Module, gpu: Gpu, index: str = "int32") -> list[tuple[KernelSpec, Job]]:
    """A job for each kernel of a module; `index` is the type indices have.

    Raises CompileError where the module lists a kernel that it does not define.
    """
    functions = _functions(module)
    mine = {spec.name for spec in module.kernels}
    helpers = {name: text for name, text in functions.items() if name not in mine}
    for spec in module.kernels:
        if spec.name not in functions:
            raise CompileError(f"the module lists a kernel {spec.name}, but does not define it")
    return [(spec, _job(spec, functions, helpers, gpu, index)) for spec in module.kernels]


def _functions(module: Module) -> dict[str, str]:
    """The text of every function of a module that Triton compiles."""
    return {found[1]: found[0].rstrip() for found in _FUNCTION.finditer(module.source)}


def _job(
    spec: KernelSpec, functions: Mapping[str, str], helpers: Mapping[str, str], gpu: Gpu, index: str
) -> Job:
    constants = {**spec.constants, INDEX: index}
    text, types, known = likeness(functions[spec.name].split("\n"), spec.types, constants)
    called = _called(text, helpers)
    entry = re.sub(r"_\d+$", "", spec.name)
    entry += "_" * (entry in called)
    text = text.replace("def v0(", f"def {entry}(", 1)
    bodies = [helpers[name] for name in called]
    named = [line for name, line in GLOBALS.items() if any(name in body for body in bodies)]
    parts = [_HEAD, *named, *bodies, f"@triton.jit\n{text}\n"]
    options = {"num_warps": WARPS, "enable_fp_fusion": True} | dict(spec.options)
    return Job(entry, str(gpu), "\n\n".join(parts), types, known, tuple(sorted(options.items())))


def _called(text: str, helpers: Mapping[str, str]) -> list[str]:
    """The helpers that a text calls, and those that they call, before what calls them."""
    found: dict[str, None] = {}
    for name in re.findall(r"(?<![\w.])\w+", text):
        if name in helpers and name not in found:
            others = {each: body for each, body in helpers.items() if each != name}
            found |= dict.fromkeys([*_called(helpers[name], others), name])
    return list(found)
