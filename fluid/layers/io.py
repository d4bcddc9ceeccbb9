"""Where data comes in, and exchange with servers that is written by hand.

`ListenAndServ`, `Send` and `Recv` are in this module only, as in release 1.8.5; programs of
`DistributeTranspiler` need none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.ir.program import BlockRef
from fluid.framework import Variable
from fluid.layer_helper import LayerHelper
from fluid.layers.control.blocks import BlockGuard
from fluid.recording.checks import check_type
from fluid.recording.var_types import VarDesc

__all__ = ["data", "load"]


def load(out: Variable, file_path: str, load_as_fp16: bool | None = None) -> None:
    """Let `out` hold the tensor in a file, whenever the program runs; as float16 where asked.

    The file is one of `save_vars` or of a `save` op. In Paddle 1.8.5 this layer forgets `out`.
    """
    helper = LayerHelper("load")
    attrs: dict[str, Any] = {"file_path": file_path}
    if load_as_fp16 is not None:
        attrs["load_as_fp16"] = load_as_fp16
    helper.append_op("load", inputs={}, outputs={"Out": out}, attrs=attrs)


def data(
    name: str,
    shape: Sequence[int | None],
    append_batch_size: Any = True,
    dtype: Any = "float32",
    lod_level: int = 0,
    type: int = VarDesc.VarType.LOD_TENSOR,
    stop_gradient: bool = True,
) -> Variable:
    """A variable to feed, with an unknown batch size in front.

    Unless `append_batch_size` is false or the shape says itself, by -1 or None, what is unknown.
    Any value counts as true or false, such as the "float32" of `data("x", [13], "float32")`.
    What is fed is not checked against it, see `fluid.data`.
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
    """A server: the layers within `do()` run each time all `fan_in` trainers have sent `inputs`.

        served = ListenAndServ("127.0.0.1:6174", ["x"], optimizer_mode=False)
        with served.do():
            ...  # reads x, and writes persistable variables, which trainers receive

    `inputs` are names or Variables; with `optimizer_mode` they are the gradients that optimizers
    within `do()` read. What comes before in the program runs once, before serving.
    """

    def __init__(
        self, endpoint: str, inputs: Sequence[Any], fan_in: int = 1, optimizer_mode: bool = True
    ) -> None:
        check_type(endpoint, "endpoint", str, "ListenAndServ")
        self.helper = LayerHelper("listen_and_serv")
        self.endpoint, self.fan_in, self.optimizer_mode = endpoint, fan_in, optimizer_mode
        self.inputs = [each if isinstance(each, str) else each.name for each in inputs]

    def do(self) -> BlockGuardServ:
        """A `with` block for the layers that serve."""
        return BlockGuardServ(self)

    def complete_op(self) -> None:
        """Append the op that serves, behind the block that was made."""
        program = self.helper.main_program
        body = program.current_block()
        names = self.inputs
        if self.optimizer_mode:
            read = [op.inputs["Grad"][0] for op in body.ops if "Param" in op.inputs]
            names = list(dict.fromkeys(read))
        attrs: dict[str, Any] = {
            "endpoint": self.endpoint,
            "Fanin": self.fan_in,
            "sync_mode": True,
            "optimize_blocks": [BlockRef(body.idx)],
        }
        inputs = {"X": names}
        program.block(body.parent_idx).append_op("listen_and_serv", inputs=inputs, attrs=attrs)


class BlockGuardServ(BlockGuard):
    """The block of a `ListenAndServ`."""

    def __init__(self, server: ListenAndServ) -> None:
        check_type(server, "server", ListenAndServ, "BlockGuardServ")
        super().__init__(server.helper.main_program)
        self.server = server

    def complete(self) -> None:
        """Append the op that serves."""
        self.server.complete_op()


def Send(
    endpoints: str, send_vars: Sequence[Variable], dummy_output: Any = None, sync: bool = True
) -> None:
    """Send variables, each to the server that `endpoints` has at its place, "host:port,host:port".

    With `sync` that is the whole step of this trainer. Raises ValueError for fewer endpoints than
    variables; one endpoint is for all.
    """
    check_type(send_vars, "send_vars", list, "Send")
    epmap = _endpoints(endpoints, len(send_vars), "Send")
    helper = LayerHelper("Send")
    slots = {"inputs": {"X": send_vars}, "outputs": {"Out": _control(helper, dummy_output)}}
    helper.append_op("send", **slots, attrs={"epmap": epmap})
    if sync:
        done = {"Out": _control(helper, None)}
        helper.append_op("send_barrier", outputs=done, attrs={"endpoints": _distinct(epmap)})


def Recv(
    endpoints: str, get_vars: Sequence[Variable], dummy_input: Any = None, sync: bool = True
) -> Sequence[Variable]:
    """Receive variables under their names, each from the server at its place in `endpoints`.

    They are returned. Raises as `Send` does.
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
    found = [each.strip() for each in text.split(",")]
    if len(found) == 1:
        return found * count
    if len(found) != count:
        raise ValueError(f"{name} takes one endpoint, or one for each of {count} variables: {text}")
    return found


def _distinct(epmap: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(epmap))


def _control(helper: LayerHelper, given: Any) -> Any:
    return helper.create_variable_for_type_inference("float32") if given is None else given
