"""Compilation jobs: all inputs that determine a kernel's machine code, in canonical form.

A kernel's text with numbered names, the helpers it calls, the types of its parameters, the
constants it is compiled with, compiler options and the GPU. Kernels of any modules with equal
inputs are one job, whose digest is its key in the cache.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from compiler.codegen.ahead.gpus import GpuArchitecture
from compiler.codegen.module import KernelSpec, Module
from compiler.codegen.triton.helpers import GLOBALS, constant_for
from compiler.codegen.triton.kernel_sharing import structural_key
from compiler.errors import CompileError
from compiler.support.dataclass import dataclass

WARPS = 4
"""Warps of a program by default."""

FORMAT = 1
"""Version of the compilation procedure; increase it to invalidate cached results."""

INDEX = "INDEX"
_FUNCTION = re.compile(
    r"^@triton\.jit.*\n(?:@.*\n)*def (\w+)\(.*\n(?:(?:[ \t)].*)?\n)*", re.MULTILINE
)
"""Matches a decorated top-level function with its indented body."""

_HEAD = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class KernelJob:
    """A kernel to compile for a GPU.

    `entry` is its function name, `source` Python text that defines it and its callees; `types` and
    `constants` belong to its parameters in order, a constant being a number or the name of a Triton
    type; `options` are the compiler's.
    """

    entry: str
    gpu: str
    source: str
    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, object], ...]
    options: tuple[tuple[str, object], ...]

    @property
    def is_product(self) -> bool:
        """True if it contains `tl.dot`, so that it may be compute bound."""
        return "tl.dot(" in self.source

    @property
    def warps(self) -> int:
        """Warps of a program."""
        return int(str(dict(self.options)["num_warps"]))

    def message(self) -> str:
        """The job as JSON, on one line."""
        return json.dumps(vars(self), sort_keys=True)

    def digest(self, triton: str) -> str:
        """The cache key of the job for a version of Triton: SHA-256 in hex."""
        return hashlib.sha256(f"{FORMAT} {triton} {self.message()}".encode()).hexdigest()


def launch_constants(spec: KernelSpec, index: str) -> dict[str, object]:
    """The constants and options that every launch of a kernel passes besides its arguments."""
    return {**spec.constants, INDEX: index, **spec.options}


def index_type(module: Module, large: bool) -> str:
    """The index type of a module's kernels; `large` selects int64 if sizes are dynamic."""
    fixed = re.search(r"^ *INDEX = tl\.(int\d+)$", module.source, re.MULTILINE)
    return fixed[1] if fixed else "int64" if large else "int32"


def kernel_jobs(
    module: Module, gpu: GpuArchitecture, index: str = "int32"
) -> list[tuple[KernelSpec, KernelJob]]:
    """Return a job for each kernel of a module; `index` is the type of indices.

    Raises CompileError if the module lists a kernel that it does not define.
    """
    functions = _functions(module)
    kernel_names = {spec.name for spec in module.kernels}
    helpers = {name: text for name, text in functions.items() if name not in kernel_names}
    for spec in module.kernels:
        if spec.name not in functions:
            raise CompileError(f"the module lists a kernel {spec.name}, but does not define it")
    return [(spec, _job(spec, functions, helpers, gpu, index)) for spec in module.kernels]


def _functions(module: Module) -> dict[str, str]:
    """The source of every Triton function of a module, by name."""
    return {match[1]: match[0].rstrip() for match in _FUNCTION.finditer(module.source)}


def _job(
    spec: KernelSpec,
    functions: Mapping[str, str],
    helpers: Mapping[str, str],
    gpu: GpuArchitecture,
    index: str,
) -> KernelJob:
    constants = {**spec.constants, INDEX: index}
    text, types, job_constants = structural_key(
        functions[spec.name].split("\n"), spec.types, constants
    )
    called = _called(text, helpers)
    entry = re.sub(r"_\d+$", "", spec.name)
    entry += "_" * (entry in called)
    text = text.replace("def v0(", f"def {entry}(", 1)
    bodies = [helpers[name] for name in called]
    named = [name for name in GLOBALS if any(name in body for body in bodies)]
    parts = [
        _HEAD,
        *(constant_for(name, gpu.maker) for name in named),
        *bodies,
        f"@triton.jit\n{text}\n",
    ]
    options = {"num_warps": WARPS, "enable_fp_fusion": True} | dict(spec.options)
    if gpu.maker == "hip":  # whose shared memory has room for its default of two
        options.pop("num_stages", None)
    return KernelJob(
        entry, str(gpu), "\n\n".join(parts), types, job_constants, tuple(sorted(options.items()))
    )


def _called(text: str, helpers: Mapping[str, str]) -> list[str]:
    """The helpers that a text calls, transitively, callees first."""
    called: dict[str, None] = {}
    for name in re.findall(r"(?<![\w.])\w+", text):
        if name in helpers and name not in called:
            others = {helper: body for helper, body in helpers.items() if helper != name}
            called |= dict.fromkeys([*_called(helpers[name], others), name])
    return list(called)
