"""How the steps of an Executable use the state of a scope: what they write, read and pass on.

State in a plain mapping is used in the same way, but nobody notices who else changes it.
"""

from __future__ import annotations

from compiler.codegen.module import Module
from runtime.memory.params import Params
from runtime.tensors.contents import Clock, TensorWriter
from runtime.tensors.lod_tensor import LoDTensor
from runtime.tensors.scope import Arrays

__all__ = ["StateUse"]


class StateUse:
    """The use of `params` by the steps of a module; `owner` is the object whose steps these are.

    `writer` is what they write with; None if they write nothing that is noticed.
    """

    def __init__(self, module: Module, params: Params, owner: object) -> None:
        self._arrays = params if isinstance(params, Arrays) else None
        self.clock = Clock() if self._arrays is None else self._arrays.clock
        self._written = [param.name for param in module.params if not param.fixed]
        self._escaping = [param.name for param in module.params if param.escapes]
        writes = bool(self._written) and self._arrays is not None
        self.writer = TensorWriter(self.clock, owner) if writes else None

    def find(self, name: str) -> LoDTensor | None:
        """The tensor that holds state; None in a plain mapping."""
        return None if self._arrays is None else self._arrays.tensor(name)

    def bind(self) -> None:
        """Record what steps that are bound to the current arrays write, and what they pass on."""
        if self.writer is not None:
            for tensor in filter(None, map(self.find, self._written)):
                tensor.written_by(self.writer)
        for tensor in filter(None, map(self.find, self._escaping)):
            tensor.expose()
