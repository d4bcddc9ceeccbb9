"""Native kernels over images beside ONNX Runtime's, on one thread.

    python bench/native_images.py                 # all layers; ratios if onnxruntime is installed
    python bench/native_images.py --only winograd --machine avx2

Layers of MobileNetV2, ResNet-50 and VGG-16 at batch 1 in float32. Ours is the least CPU time of
some rounds that alternate with the peer's. The peer's is the least time of the layer's node by its
own profile, in a model with a 1 × 1 convolution on both sides, so that its input is as warm and its
layouts are as within a network.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from bench.support.table import Row, table
from compiler.codegen.native.images.depthwise import depthwise
from compiler.codegen.native.images.pooling import pool
from compiler.codegen.native.images.sliding import ImageWindows
from compiler.codegen.native.images.vectors import Channels
from compiler.codegen.native.images.winograd import pays, winograd
from compiler.codegen.native.llvm_ir import F32
from compiler.codegen.native.machine import MACHINES, Machine
from compiler.codegen.native.products.axes import EpilogueOperand
from compiler.codegen.native.products.epilogue import Epilogue
from compiler.ir.windows import StaticWindow
from tests.support.image_kernels import Runner

COLUMNS = {"layer": "", "µs": ".0f", "GFLOP/s": ".0f", "peer µs": ".0f", "ours ÷ peer": ".2f"}


@dataclass(frozen=True)
class Layer:
    """A layer: what it is, its channels, rows of the image, and filters or stride."""

    kind: str
    channels: int
    size: int
    stride: int = 1
    filters: int = 0

    @property
    def title(self) -> str:
        """The layer in words."""
        last = f"→ {self.filters}" if self.filters else f"stride {self.stride}"
        return f"{self.kind} {self.channels} × {self.size}² {last}"

    @property
    def results(self) -> int:
        """Rows of the output."""
        return 1 if self.kind == "mean" else -(-self.size // self.stride)

    @property
    def flops(self) -> int:
        """Operations of the direct algorithm."""
        per = {"depthwise": 18, "winograd": 18 * self.filters, "maximum": 9, "mean": self.size**2}
        return per[self.kind] * self.channels * self.results**2


LAYERS = [
    *(
        Layer("depthwise", *shape)
        for shape in [(32, 112, 1), (96, 112, 2), (144, 56, 1), (144, 56, 2), (192, 28, 1),
                     (192, 28, 2), (384, 14, 1), (576, 14, 1), (576, 14, 2), (960, 7, 1)]
    ),
    *(
        Layer("winograd", channels, size, 1, channels)
        for channels, size in [(64, 56), (128, 28), (256, 14), (512, 7), (128, 112), (512, 28)]
    ),
    Layer("maximum", 64, 112, 2),
    Layer("mean", 2048, 7),
]  # fmt: skip


def relu6() -> Epilogue:
    """min(max(bias + sum, 0), 6)."""

    def finish(f: Any, values: list[Any], place: Any) -> list[Any]:
        low, high = f.constant(values[0].type, 0.0), f.constant(values[0].type, 6.0)
        value = f.select(f.compare("olt", values[0], low), low, values[0])
        return [f.select(f.compare("ogt", value, high), high, value)]

    return Epilogue("relu6", (EpilogueOperand("bias", F32, (0, 0, 0, 1)),), finish, start="bias")


def ours(layer: Layer, machine: Machine) -> Callable[[], object]:
    """The layer's kernels, ready to run."""
    random, size, channels = np.random.default_rng(0), layer.size, layer.channels
    outputs = layer.filters or channels
    arrays = {
        "images": random.normal(size=(1, size, size, channels)),
        "bias": random.normal(size=outputs),
        "out": np.zeros((1, layer.results, layer.results, outputs)),
    }
    window = StaticWindow(size, 3, layer.stride, 1, 1, 1, layer.results)
    windows = ImageWindows(1, window, window, Channels(machine, F32, channels))
    if layer.kind == "depthwise":
        steps = depthwise(windows, epilogue=relu6())
        arrays["filters"] = random.normal(size=(channels, 1, 3, 3))
    elif layer.kind == "winograd":
        m = pays(1, channels, size, size, outputs, machine) or 4
        steps = winograd(machine, F32, 1, size, size, channels, outputs, m=m, epilogue=relu6())
        arrays["filters"] = random.normal(size=(outputs, channels, 3, 3))
    elif layer.kind == "maximum":
        steps = pool(windows, largest=True)
    else:
        whole = StaticWindow(size, size, 1, 1, 0, 0, 1)
        steps = pool(ImageWindows(1, whole, whole, windows.channels), largest=False)
    inputs = {name: array.astype(np.float32) for name, array in arrays.items()}
    runner = Runner(steps, machine, inputs)
    runner.prepare()
    return runner.run


class Peer:
    """The layer in ONNX Runtime, between two 1 × 1 convolutions."""

    def __init__(self, layer: Layer) -> None:
        onnxruntime: Any = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.log_severity_level = 3
        self.folder = tempfile.TemporaryDirectory()
        options.profile_file_prefix = str(Path(self.folder.name) / "profile")
        self.session = onnxruntime.InferenceSession(
            _model(layer), options, providers=["CPUExecutionProvider"]
        )
        self.image = np.random.rand(1, 16, layer.size, layer.size).astype(np.float32)
        self.seconds: list[float] = []

    def run(self) -> None:
        """Run the model once and keep its CPU time."""
        begun = time.thread_time()
        self.session.run(None, {"x": self.image})
        self.seconds.append(time.thread_time() - begun)

    def best(self) -> float:
        """The least seconds of the layer.

        By the clock, or for layers long enough to be interrupted its share of all nodes, times the
        least CPU time of a run.
        """
        events = json.loads(Path(self.session.end_profiling()).read_text(encoding="utf-8"))
        self.folder.cleanup()
        nodes: dict[str, float] = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith("kernel_time"):
                name, seconds = event["name"], event["dur"] / 1e6
                nodes[name] = min(seconds, nodes.get(name, seconds))
        [layer] = [seconds for name, seconds in nodes.items() if name.startswith("d_")]
        return min(layer, min(self.seconds) * layer / sum(nodes.values()))


def _model(layer: Layer) -> bytes:
    """1 × 1 convolution, the layer, whose output is "d", 1 × 1 convolution."""
    helper: Any = importlib.import_module("onnx.helper")
    arrays: Any = importlib.import_module("onnx.numpy_helper")
    random, outputs = np.random.default_rng(0), layer.filters or layer.channels
    shapes = {"w1": (layer.channels, 16, 1, 1), "w2": (16, outputs, 1, 1), "b": (outputs,)}
    groups = layer.channels if layer.kind == "depthwise" else 1
    shapes["w"] = (outputs, layer.channels // groups, 3, 3)
    weights = [
        arrays.from_array(random.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    weights += [arrays.from_array(np.float32(bound), f"{bound}") for bound in (0, 6)]
    geometry = {"strides": [layer.stride] * 2, "pads": [1] * 4, "kernel_shape": [3, 3]}
    middle = {
        "maximum": [helper.make_node("MaxPool", ["a"], ["d"], **geometry)],
        "mean": [helper.make_node("GlobalAveragePool", ["a"], ["d"])],
    }.get(layer.kind) or [
        helper.make_node("Conv", ["a", "w", "b"], ["c"], group=groups, **geometry),
        helper.make_node("Clip", ["c", "0", "6"], ["d"]),
    ]
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"]), *middle]
    nodes.append(helper.make_node("Conv", ["d", "w2"], ["y"]))
    ends = [
        helper.make_tensor_value_info("x", 1, [1, 16, layer.size, layer.size]),
        helper.make_tensor_value_info("y", 1, None),
    ]
    graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], weights)
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def measure(layers: list[Layer], machine: Machine, rounds: int, peer: bool) -> Iterator[Row]:
    """A row for each layer."""
    for layer in layers:
        run, them = ours(layer, machine), Peer(layer) if peer else None
        best = float("inf")
        for _ in range(rounds):
            run()
            begun = time.thread_time()
            run()
            best = min(best, time.thread_time() - begun)
            if them:
                them.run()
        row: dict[str, Any] = {"layer": layer.title, "µs": best * 1e6}
        row["GFLOP/s"] = layer.flops / best / 1e9
        if them:
            theirs = them.best()
            row |= {"peer µs": theirs * 1e6, "ours ÷ peer": best / theirs}
        yield row


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="kinds of layers")
    parser.add_argument("--machine", choices=list(MACHINES), default="avx512")
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    layers = [layer for layer in LAYERS if not arguments.only or layer.kind in arguments.only]
    peer = importlib.util.find_spec("onnxruntime") is not None
    rows = list(measure(layers, MACHINES[arguments.machine], arguments.rounds, peer))
    print(table(f"{arguments.machine}, one thread", rows, COLUMNS))


if __name__ == "__main__":
    main()
