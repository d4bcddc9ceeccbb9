"""Random valid graphs of registered ops, for what must hold of every graph.

`random_graph` grows one from any `random.Random`; `graphs` lets Hypothesis choose and shrink.
There are chains of pointwise ops, matrix products, broadcasts, sums, state updated in place, second
versions of names, blocks run on a condition, sizes known only as N, and names that need quotes.
Results are finite for feeds and state from `arrays`.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st

from compiler.ir.analysis.liveness import InPlaceRules, kernels, lives
from compiler.ir.analysis.verifier import fusible_shape
from compiler.ir.dims import Dim
from compiler.ir.graph import Graph, Op, Var
from compiler.ir.types import Array, DType, TensorType

N = Dim.named("N")
ROWS = TensorType(DType.FP32, (N, 4))
FIXED = TensorType(DType.FP32, (3, 4))
COLUMN = TensorType(DType.FP32, (N, 1))
BIAS = TensorType(DType.FP32, (4,))
SQUARE = TensorType(DType.FP32, (4, 4))
SCALAR = TensorType(DType.FP32, (1,))
FLAG = TensorType(DType.BOOL, (1,))

STEMS = (
    "h",
    "fc_0.tmp_0",
    "x@GRAD",
    "@LR@",
    "my var",
    "a#1",
    "a//b",
    "1st",
    "数据",
    'say "x"',
    "\\",
)
SOURCES = ("", "train.py:12", "my dir/数.py:3", '"quoted".py:1', " padded ", "two\nlines")
UNARY = ("relu", "tanh", "sigmoid", "abs", "scale", "assign")


def graphs(labels: bool = True) -> st.SearchStrategy[Graph]:
    """Random graphs of up to a dozen steps; `labels` adds kernels, targets and slots to some."""
    rngs = st.randoms(use_true_random=False)
    return st.builds(
        random_graph, rngs, st.integers(0, 12), st.booleans() if labels else st.just(False)
    )


def random_graph(rng: random.Random, steps: int = 12, labels: bool = False) -> Graph:
    """A valid graph grown in `steps` steps; with `labels`, all three facts hold of it."""
    grower = Grower(rng)
    for _ in range(steps):
        rng.choice(grower.actions)()
    grower.finish()
    if labels:
        grower.graph.reorder(grower.graph.ops())
        _label_kernels(rng, grower.graph)
        _label_slots(rng, grower.graph)
    return grower.graph


def arrays(vars: Sequence[Var], seed: int, n: int = 3) -> dict[str, Array]:
    """Arrays for feeds or parameters by name, all different numbers, with `n` for the size N."""
    rng = np.random.default_rng(seed)
    values = {var.name: rng.uniform(0.1, 1.0, var.type.at({"N": n})) for var in vars}
    kinds = {var.name: var.type.dtype for var in vars}
    return {name: _as(kinds[name], array) for name, array in values.items()}


def _as(dtype: DType, array: Array) -> Array:
    return array > 0.5 if dtype is DType.BOOL else array.astype(dtype.numpy)


class Grower:
    """Adds one op at a time; `pool` are the vars that may still be read."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.graph = g = Graph(rng.choice(["main", "my graph"]))
        self.blocks = 0
        feeds = [g.feed("x", ROWS), g.feed("column", COLUMN), g.feed("if so", FLAG)]
        state = [g.param("w", SQUARE), g.param("fc_0.b_0", BIAS), g.param("lr", SCALAR)]
        self.pool = dict.fromkeys([*feeds, *state, g.feed("fixed", FIXED)])
        self.actions: list[Callable[[], object]] = [
            *[self.unary] * 4, *[self.binary] * 3, *[self.product] * 2, self.total, self.normalise,
            self.constant, self.update, self.update, self.rewrite, self.branch,
        ]  # fmt: skip

    def pick(self, *types: TensorType) -> Var:
        return self.rng.choice([var for var in self.pool if var.type in types])

    def new(self, type: TensorType) -> Var:
        var = self.graph.fresh(self.rng.choice(STEMS), type)
        self.pool[var] = None
        return var

    def op(self, kind: str, inputs: dict, outputs: dict, attrs: dict | None = None, **rest) -> Op:
        role = self.rng.choice([{}, {}, {"op_role": 1, "op_role_var": ["w", "w@GRAD"]}])
        rest = {"source": self.rng.choice(SOURCES), "last": self.rng.random() < 0.5} | rest
        arguments = [
            {s: v if isinstance(v, list) else [v] for s, v in side.items()}
            for side in (inputs, outputs)
        ]
        return self.graph.op(kind, *arguments, role | (attrs or {}), **rest)

    def unary(self) -> None:
        kind, x = self.rng.choice(UNARY), self.pick(ROWS, FIXED, BIAS, SQUARE, COLUMN)
        attrs = {"scale": self.rng.uniform(-1, 1), "bias": self.rng.choice([0.0, 0.25, 1.0])}
        self.op(kind, {"X": x}, {"Out": self.new(x.type)}, attrs if kind == "scale" else {})

    def binary(self) -> None:
        kind = self.rng.choice(
            ["elementwise_add", "elementwise_sub", "elementwise_mul", "elementwise_max"]
        )
        x = self.pick(ROWS, FIXED)
        y = self.pick(x.type, BIAS, *([COLUMN] if x.type == ROWS else []))
        axis = self.rng.choice([-1, 1]) if y.type == BIAS else -1
        self.op(kind, {"X": x, "Y": y}, {"Out": self.new(x.type)}, {"axis": axis})

    def product(self) -> None:
        x = self.pick(ROWS, FIXED, SQUARE)
        h = self.graph.fresh("product", x.type)
        self.op("mul", {"X": x, "Y": self.pick(SQUARE)}, {"Out": h}, last=True)
        self.op("tanh", {"X": h}, {"Out": self.new(x.type)})

    def total(self) -> None:
        x = self.pick(ROWS, FIXED, BIAS)
        terms = [x, *(self.pick(x.type) for _ in range(self.rng.randint(0, 2)))]
        self.op("sum", {"X": terms}, {"Out": self.new(x.type)})

    def normalise(self) -> None:
        x = self.pick(ROWS, FIXED, SQUARE)
        self.op("softmax", {"X": x}, {"Out": self.new(x.type)})

    def constant(self) -> None:
        type = self.rng.choice([FIXED, BIAS])
        attrs = {"shape": list(type.shape), "value": self.rng.choice([0.0, 0.1, 1e-5, -3.0])}
        self.op("fill_constant", {}, {"Out": self.new(type)}, attrs)

    def update(self) -> None:
        """Write the next version of a parameter over the last."""
        param = self.rng.choice(
            [var for var in self.pool if var.role == "param" and var.type != SCALAR]
        )
        inputs = {"Param": param, "Grad": self.pick(param.type), "LearningRate": self.pick(SCALAR)}
        after = self.graph.next_version(param, param.type, same_storage=True)
        self.op("sgd", inputs, {"ParamOut": after})
        self.replace(param, after)

    def rewrite(self) -> None:
        """Write a name once more, with both versions left to read."""
        temps = [var for var in self.pool if var.role == "temp" and var.type.dtype.is_float]
        if temps:
            old = self.rng.choice(temps)
            after = self.graph.next_version(old, old.type, same_storage=False)
            self.op("scale", {"X": old}, {"Out": after}, {"scale": 0.5})
            self.pool[after] = None

    def branch(self) -> None:
        """Run a block on a condition, over what a temporary held before."""
        rows = [var for var in self.pool if var.role == "temp" and var.type in (ROWS, FIXED)]
        temps = [var for var in rows if self.graph.latest(var.name) is var]
        if not temps:
            return
        old, other = self.rng.choice(temps), self.pick(BIAS)
        body = self.body(old, other)
        after = self.graph.next_version(old, old.type, same_storage=True)
        inputs = {"Cond": [self.pick(FLAG)], "Captured": [old, other]}
        self.op("if", inputs, {"Written": [after]}, {}, body=body)
        self.replace(old, after)

    def body(self, old: Var, other: Var) -> Graph:
        self.blocks += 1
        body = Graph(f"block_{self.blocks}")
        x, y = body.feed(old.name, old.type), body.feed(other.name + "'", other.type)
        total, result = body.var("total", old.type), body.var(old.name, old.type, 1)
        body.op("elementwise_add", {"X": [x], "Y": [y]}, {"Out": [total]}, source="body.py:1")
        body.op("sigmoid", {"X": [total]}, {"Out": [result]})
        body.results = [result]
        return body

    def replace(self, old: Var, new: Var) -> None:
        del self.pool[old]
        self.pool[new] = None

    def finish(self) -> None:
        """Take out some ops that nobody needs, and all that is idle then; return some of the rest."""
        g = self.graph
        for op in g.ops():
            idle = all(self.is_idle(var) for var in op.writes())
            if idle and self.rng.random() < 0.3:
                g.remove(op)
        g.sweep()
        left = [var for var in self.pool if g.find(var.name, var.version) is var]
        g.results = self.rng.sample(left, self.rng.randint(1, min(3, len(left))))

    def is_idle(self, var: Var) -> bool:
        """True for a temporary that is neither read nor part of a chain."""
        chained = var.overwrites is not None or self.graph.overwriter(var) is not None
        return not chained and not self.graph.readers(var)


def _label_kernels(rng: random.Random, g: Graph) -> None:
    """Give some neighbours that fuse a kernel, and some kernels a target."""
    label, before = 0, None
    for op in g.ops():
        shape = fusible_shape(op)
        label += shape is None or shape != before or rng.random() < 0.3
        op.kernel = None if shape is None else label
        before = shape
    for ops in kernels(g):
        target = rng.choice([None, "numpy", "k7"])
        for op in ops:
            op.target = target


def _label_slots(rng: random.Random, g: Graph) -> None:
    """Give what lives in memory a slot, that of another var where that is allowed."""
    alive, steps = lives(g), kernels(g)
    holder: dict[int, Var] = {}
    for var, (start, _) in alive.items():
        var.slot = len(holder) if var.overwrites is None else var.overwrites.slot
        for slot, old in holder.items() if var.overwrites is None else ():
            created, gone = alive[old]
            fits = gone <= start or (
                created < start == gone - 1 and InPlaceRules(steps[start]).allow(old, var)
            )
            if fits and old.type.nbytes == var.type.nbytes and rng.random() < 0.7:
                var.slot = slot
        holder[var.slot] = var
