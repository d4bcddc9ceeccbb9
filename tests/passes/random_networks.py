"""Random graphs with what passes look for: layers with norms, ops done twice, moves that undo moves.

They grow as those of `tests.ir.random_graphs` do, and beside its chains of pointwise ops, products
and updates have convolutions with batch norms, transposes, reshapes, dropout of tested networks,
constants, copies, and ops that were there before.
"""

import random

from hypothesis import strategies as st

from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import DType, TensorType
from tests.ir.random_graphs import BIAS, COLUMN, FIXED, ROWS, SQUARE, Grower, N

IMAGE = TensorType(DType.FP32, (N, 2, 3, 3))
LAYERS = ("conv2d", "depthwise_conv2d", "conv2d_transpose")
IMPLEMENTATIONS = ("upscale_in_train", "downgrade_in_infer")


def networks() -> st.SearchStrategy[Graph]:
    """Random networks of up to two dozen steps."""
    rngs = st.randoms(use_true_random=False)
    return st.builds(random_network, rngs, st.integers(1, 24))


def random_network(rng: random.Random, steps: int) -> Graph:
    """A valid graph without labels, grown in `steps` steps."""
    grower = _Networks(rng)
    for _ in range(steps):
        rng.choice(grower.actions)()
    grower.finish()
    return grower.graph


class _Networks(Grower):
    """Adds layers and what is idle beside what its base adds."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.pool[self.graph.feed("image", IMAGE)] = None
        self.actions += [
            *[self.layer] * 3, *[self.again] * 4, *[self.transposes] * 2, *[self.reshapes] * 2,
            self.dropout, self.copy, self.folded,
        ]  # fmt: skip

    def state(self, stem: str, *shape: int) -> Var:
        name = next(f"{stem}_{k}" for k in range(99) if self.graph.find(f"{stem}_{k}") is None)
        return self.graph.param(name, TensorType(DType.FP32, shape))

    def layer(self) -> None:
        """A convolution that keeps the size, perhaps a bias, a batch norm, a residual, a relu."""
        g, x, kind = self.graph, self.pick(IMAGE), self.rng.choice(LAYERS)
        groups = 2 if kind == "depthwise_conv2d" else self.rng.choice([1, 2])
        sizes = {"paddings": [1, 1], "groups": groups}
        w = self.state("filter", 2, 2 // groups, 3, 3)
        h = self.new(IMAGE)
        self.op(kind, {"Input": x, "Filter": w}, {"Output": h}, sizes, last=True)
        if self.rng.random() < 0.5:
            h = self.sum(h, self.state("bias", 2), axis=1)
        if self.rng.random() < 0.7:
            h = self.norm(h)
        if self.rng.random() < 0.3:
            h = self.sum(h, self.pick(IMAGE))
        if self.rng.random() < 0.7:
            self.op("relu", {"X": h}, {"Out": self.new(IMAGE)}, last=True)
        assert g.find(h.name, h.version) is h

    def sum(self, x: Var, y: Var, axis: int = -1) -> Var:
        out = self.new(x.type)
        self.op("elementwise_add", {"X": x, "Y": y}, {"Out": out}, {"axis": axis}, last=True)
        return out

    def norm(self, x: Var) -> Var:
        scale, bias, mean, variance = (self.state(s, 2) for s in ("scale", "shift", "mean", "var"))
        inputs = {"X": x, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance}
        y = self.new(IMAGE)
        kept = {
            slot: self.graph.next_version(var, var.type, same_storage=True)
            for slot, var in (("MeanOut", mean), ("VarianceOut", variance))
        }
        tested = {"is_test": self.rng.random() < 0.8, "epsilon": self.rng.choice([1e-5, 0.1])}
        self.op("batch_norm", inputs, {"Y": y, **kept}, tested, last=True)
        return y

    def again(self) -> None:
        """An op that is there already, with the same inputs."""
        ops = [op for op in self.graph.ops() if self.may_repeat(op)]
        if ops:
            op = self.rng.choice(ops)
            outputs = {s: [self.new(v.type) for v in vars] for s, vars in op.outputs.items()}
            self.op(op.kind, op.inputs, outputs, op.attrs, last=True)

    def may_repeat(self, op: Op) -> bool:
        """True where all it reads still holds, and all it writes is its own."""
        kept = all(self.graph.overwriter(var) is None for var in op.reads())
        return op.body is None and kept and all(var.role == "temp" for var in op.writes())

    def transposes(self) -> None:
        x = self.pick(ROWS, FIXED, SQUARE)
        across = self.new(x.type.with_shape(x.type.shape[::-1]))
        self.op("transpose", {"X": x}, {"Out": across}, {"axis": [1, 0]}, last=True)
        if x.type == SQUARE and self.rng.random() < 0.6:
            inputs = {"X": self.pick(ROWS, SQUARE), "Y": across}
            self.op("matmul", inputs, {"Out": self.new(inputs["X"].type)}, last=True)
            return
        self.op("transpose", {"X": across}, {"Out": self.new(x.type)}, {"axis": [1, 0]}, last=True)

    def reshapes(self) -> None:
        x = self.pick(ROWS, FIXED)
        rows = x.type.shape[0]
        split = self.new(x.type.with_shape((rows, 2, 2)))
        shape = self.new(x.type.with_shape((0, *x.type.shape)))
        created = {"Out": split, "XShape": shape}
        self.op("reshape2", {"X": x}, created, {"shape": [0, 2, 2]}, last=True)
        back = self.rng.choice([[-1, 4], [0, 1, 4]])
        out = self.new(x.type.with_shape((rows, 4) if len(back) == 2 else (rows, 1, 4)))
        self.op("reshape", {"X": split}, {"Out": out}, {"shape": back}, last=True)

    def dropout(self) -> None:
        x = self.pick(ROWS, FIXED, BIAS)
        created = {"Out": self.new(x.type), "Mask": self.new(x.type.with_dtype(DType.UINT8))}
        tested = {"is_test": True, "dropout_implementation": self.rng.choice(IMPLEMENTATIONS)}
        self.op("dropout", {"X": x}, created, tested | {"dropout_prob": 0.25}, last=True)

    def copy(self) -> None:
        x = self.pick(ROWS, FIXED, BIAS, COLUMN, IMAGE)
        kind, attrs = self.rng.choice([("assign", {}), ("scale", {"scale": 1.0}), ("sum", {})])
        self.op(kind, {"X": [x]}, {"Out": self.new(x.type)}, attrs, last=True)

    def folded(self) -> None:
        """A chain over state that perhaps nobody changes."""
        w = self.pick(SQUARE, BIAS)
        half = self.graph.fresh("half", w.type)
        self.op("scale", {"X": w}, {"Out": half}, {"scale": 0.5}, last=True)
        self.op("tanh", {"X": half}, {"Out": self.new(w.type)}, last=True)
