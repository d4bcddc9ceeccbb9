"""Data layers and `load`, and layers for hand-written parameter servers.

`ListenAndServ`, `Send` and `Recv` are exported by this module only, as in release 1.8.5;
`DistributeTranspiler` does not use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.ir.program import BlockRef
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.control.blocks import BlockGuard
from fluid.recording.annotations import DTypeLike, SlotValue
from fluid.recording.checks import check_type
from fluid.recording.var_types import VarDesc

__all__ = ["data", "load"]


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Load the tensor in a file to `out` each time the program runs; as float16 if requested.

    The file was written by `save_vars` or a `save` op. Paddle 1.8.5 ignores `out`.
    """
    helper = LayerHelper("load")
    attrs: dict[str, object] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    helper.append_op("load", inputs={}, outputs={"Out": out}, attrs=attrs)


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: Any = True,
    dtype: DTypeLike = "float32",
    lod_level: int = 0,
    type: int = VarDesc.VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """Create a variable to feed, with a dynamic batch axis prepended.

    No axis is prepended if `append_batch_size` is falsy or the shape contains -1 or None. Any value
    is accepted as the flag, such as the "float32" of `data("x", [13], "float32")`. Fed arrays are
    not checked against the shape, unlike with `fluid.data`.
    """
    check_type(name, "name", str, "data")
    check_type(shape, "shape", (list, tuple), "data")
    sizes = [-1 if size is None else size for size in shape]
    if append_batch_size and min(sizes, default=0) >= 0:
        sizes = [-1, *sizes]
    return LayerHelper("data", name=name).create_global_variable(
        name=name,
        shape=sizes,
        dtype=dtype,
        type=type,
        stop_gradient=stop_gradient,
        lod_level=lod_level,
        is_data=True,
    )


class ListenAndServ:
    """A server that runs the layers in `do()` whenever all `fan_in` trainers have sent `inputs`.

        served = ListenAndServ("127.0.0.1:6174", ["x"], optimizer_mode=False)
        with served.do():
            ...  # reads x, and writes persistable variables, which trainers receive

    `inputs` are names or Variables; with `optimizer_mode` they are the gradients that optimizers in
    `do()` read. Preceding ops of the program run once, before serving.
    """

    def __init__(
        self, endpoint: str, inputs: Sequence[Any], fan_in: int = 1, optimizer_mode: bool = True
    ) -> None:
        check_type(endpoint, "endpoint", str, "ListenAndServ")
        self.helper = LayerHelper("listen_and_serv")
        self.endpoint, self.fan_in, self.optimizer_mode = endpoint, fan_in, optimizer_mode
        self.inputs = [
            variable if isinstance(variable, str) else variable.name for variable in inputs
        ]

    def do(self) -> BlockGuardServ:
        """Return the context manager of the block that the server runs."""
        return BlockGuardServ(self)

    def complete_op(self) -> None:
        """Append the server op after the block was built."""
        program = self.helper.main_program
        body = program.current_block()
        names = self.inputs
        if self.optimizer_mode:
            read = [op.inputs["Grad"][0] for op in body.ops if "Param" in op.inputs]
            names = list(dict.fromkeys(read))
        attrs: dict[str, object] = {
            "endpoint": self.endpoint,
            "Fanin": self.fan_in,
            "sync_mode": True,
            "optimize_blocks": [BlockRef(body.idx)],
        }
        inputs = {"X": names}
        program.block(body.parent_idx).append_op("listen_and_serv", inputs=inputs, attrs=attrs)


class BlockGuardServ(BlockGuard):
    """Context manager for the block of a `ListenAndServ`."""

    def __init__(self, server: ListenAndServ) -> None:
        check_type(server, "server", ListenAndServ, "BlockGuardServ")
        super().__init__(server.helper.main_program)
        self.server = server

    def complete(self) -> None:
        """Append the server op."""
        self.server.complete_op()


def Send(
    endpoints: str, send_vars: Sequence[Variable], dummy_output: SlotValue = None, sync: bool = True
) -> None:
    """Send variables to servers, variable i to endpoint i of "host:port,host:port".

    With `sync` this is the whole step of this trainer. A single endpoint is used for all variables.
    Raises ValueError for fewer endpoints than variables.
    """
    check_type(send_vars, "send_vars", list, "Send")
    epmap = _endpoints(endpoints, len(send_vars), "Send")
    helper = LayerHelper("Send")
    out = _control(helper, dummy_output)
    helper.append_op("send", {"X": send_vars}, {"Out": out}, {"epmap": epmap})
    if sync:
        done = {"Out": _control(helper, None)}
        helper.append_op("send_barrier", outputs=done, attrs={"endpoints": _distinct(epmap)})


def Recv(
    endpoints: str, get_vars: Sequence[Variable], dummy_input: SlotValue = None, sync: bool = True
) -> Sequence[Variable]:
    """Receive variables by name, variable i from endpoint i; returns them.

    Raises as `Send` does.
    """
    check_type(get_vars, "get_vars", list, "Recv")
    epmap = _endpoints(endpoints, len(get_vars), "Recv")
    helper = LayerHelper("Recv")
    read = {} if dummy_input is None else {"X": dummy_input}
    received = {"Out": list(get_vars)}
    helper.append_op("recv", inputs=read, outputs=received, attrs={"epmap": epmap})
    if sync:
        attrs = {"endpoints": _distinct(epmap)}
        helper.append_op("fetch_barrier", outputs=received, attrs=attrs)
    return get_vars


def _endpoints(text: str, count: int, name: str) -> list[str]:
    check_type(text, "endpoints", str, name)
    endpoints = [endpoint.strip() for endpoint in text.split(",")]
    if len(endpoints) == 1:
        return endpoints * count
    if len(endpoints) != count:
        raise ValueError(f"{name} takes one endpoint, or one for each of {count} variables: {text}")
    return endpoints


def _distinct(epmap: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(epmap))


def _control(helper: LayerHelper, given: SlotValue) -> SlotValue:
    return helper.create_variable_for_type_inference("float32") if given is None else given
