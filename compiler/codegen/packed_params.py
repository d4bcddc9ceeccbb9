"""Parameters that a native module only packs: what its steps read are the packed arrays."""

from __future__ import annotations

import ast
import re

from compiler.codegen.module import Module, without_ir

PREPARES = "native.prepared("
"""The call in `bind` that prepares an array."""
_PARAM = re.compile(r"^ +(\w+) = params\[('[^'\n]*')\]$", re.MULTILINE)
"""The line of `bind` that names the array of a parameter."""
_INPUTS = re.compile(r"(?<=native\.prepared\()'\w+', \((?:\w+, ?)*\w*\),")
"""The kernel that prepares an array, and its inputs, if they are whole arrays."""


def packed_params(module: Module) -> set[str]:
    """Return the names of parameters that occur only as inputs of `native.prepared`.

    Their values are no longer needed once the prepared arrays are there.
    """
    code = without_ir(module.source)
    used = {*re.findall(r"\w+", _INPUTS.sub("", _PARAM.sub("", code)))}
    return {ast.literal_eval(param) for name, param in _PARAM.findall(code) if name not in used}
