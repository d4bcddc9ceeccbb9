"""The gradient kernel of attention: what forward computes, again, and four more products.

Exponentials and probabilities that dropout drops are negative until the gradients of the scores are
computed, which need their absolute values.

An item is a matrix of the stack, whose blocks of queries follow each other: gradients of k and v
are sums over all queries. With probabilities p and d = v @ d_outᵀ, both [keys, queries], the
gradients of the scores are (d - Σ over keys of p * d) * p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.codegen.kernel.attention import Attention
from compiler.codegen.native.attention.forward import UNITS, QueryBlocks
from compiler.codegen.native.kernel import NativeKernel, entry
from compiler.codegen.native.llvm_ir import I64, POINTER, Function, Index, Type, Value, zero
from compiler.codegen.native.machine import Machine
from compiler.codegen.native.products.axes import Axis
from compiler.codegen.native.products.contraction import Call, Contraction, Steps, as_summed
from compiler.codegen.native.products.index import named
from compiler.codegen.native.products.place import Pointers, ResultAddresses
from compiler.ir.dims import Dim, Size, product


def attention_gradient(machine: Machine, element: Type, spec: Attention) -> Steps:
    """The kernel of the gradients d_q, d_k and d_v, from q, k, v, the mask and d_out."""
    sizes = spec.open_sizes
    names = tuple("d_out" if name == "out" else name for name in spec.operands)
    names = (*names, "d_q", "d_k", "d_v")
    slots = [*(POINTER for _ in (*names, "scores")), *(I64 for _ in sizes)]
    function, values, first, last = entry("attention_gradient", slots)
    pointers = dict(zip(names, values, strict=False))
    open_sizes = dict(zip(sizes, values[len(names) + 1 :], strict=True))
    blocks = _GradientBlocks(function, machine, element, spec, open_sizes)
    blocks.emit(pointers, values[len(names)], first, last)
    flops, nbytes = spec.flops // 2 * 5, spec.elements * 2 * element.nbytes
    kernel = NativeKernel([named(function)], UNITS.value, flops, nbytes)
    call = Call(kernel, (*names, "scores", *sizes))
    return Steps((call,), scratch={"scores": product([UNITS.value, blocks.scratch])})


class _GradientBlocks(QueryBlocks):
    """Emits the gradients of an attention."""

    @property
    def by_key(self) -> int:
        """Elements for each key: scores, their gradients, and a mask's rows."""
        return super().by_key + self.block

    @property
    def by_query(self) -> int:
        """The other elements: the packed queries and the packed gradients of results."""
        return super().by_query + self.block * self.spec.value_width

    def counts(self) -> list[Index]:
        """The counts of items: the matrices."""
        return [*map(self.indices.of, self.spec.stack)] or [1]

    def parts(self, memory: Value) -> dict[str, Value]:
        """The arrays in a unit's memory: those of forward first."""
        parts = super().parts(memory)
        keys = self.indices.of(self.spec.keys)
        start = self.indices.add(self.indices.mul(super().by_key, keys), super().by_query)
        parts["gradients"] = self.function.address(memory, start, self.element.nbytes)
        size = self.indices.mul(self.block, keys)
        parts["d_packed"] = self.function.address(parts["gradients"], size, self.element.nbytes)
        return parts

    def item(self, pointers: Pointers, memory: Value, place: Sequence[Index]) -> None:
        """One matrix: gradients of keys and values begin as zeros, each block adds its part."""
        at = self.at_matrix(pointers, place)
        self._clear(at["d_k"], self.spec.k, self.spec.width)
        self._clear(at["d_v"], self.spec.v, self.spec.value_width)
        parts = self.parts(memory)

        def block(query: Value, _: list[Value]) -> list[Value]:
            self._block(self.at_block(at, query), parts, place, query)
            return []

        queries = self.indices.of(self.spec.queries)
        self.function.loop_if_any(0, queries, self.block, block)

    def _clear(self, pointer: Value, strides: Sequence[Size], width: int) -> None:
        """Fill a matrix with zeros, as sums of nothing."""
        rows = Axis(self.spec.keys, {"out": strides[-2]})
        spec = Contraction(
            "zeros", self.element, (), (rows, Axis(1)), (Axis(0),), Axis(width, {"out": 1}),
            dict.fromkeys(("a", "b", "out"), self.element),
        )  # fmt: skip
        self.contract(spec, self.tiling_of(spec), {"a": pointer, "b": pointer, "out": pointer})

    def _block(
        self, at: dict[str, Value], parts: Mapping[str, Value], stack: Sequence[Index], query: Value
    ) -> None:
        """The block of queries of a matrix from one query on."""
        spec, left = self.spec, self.left(query)
        sums = self.exponentials(at, parts, left)
        self.drop(at, parts, stack, query, self.function.neg)
        self.pack(at["d_out"], parts["d_packed"], spec.value_width, spec.out, left)
        operands = {"a": at["v"], "b": parts["d_packed"], "out": parts["gradients"]}
        rows = {"a": spec.v[-2], "out": self.block}
        depth = Axis(spec.value_width, {"a": spec.v[-1]})
        self.by_keys(operands, rows, depth, Axis(self.block, {"out": 1}), as_summed)
        self._score_gradients(parts, sums)
        self.for_rows(left, lambda rows, sizes: self._products(at, parts, rows, sizes))

    def _score_gradients(self, parts: Mapping[str, Value], sums: list[Value]) -> None:
        """Replace exponentials by probabilities, and their gradients by those of scores."""
        f, spec = self.function, self.spec
        type, keys = self.machine.vector(self.element), self.indices.of(self.spec.keys)
        inverses = [f.div(f.constant(type, 1.0), total) for total in sums]

        def probabilities(key: Value, means: list[Value]) -> list[Value]:
            found: list[Value] = []
            for vector, (inverse, mean) in enumerate(zip(inverses, means, strict=True)):
                power, gradient = self._at(parts, key, vector)
                p = f.mul(f.load(type, power), inverse)
                f.store(p, power)
                by_weight = self._unless_dropped(p, f.load(type, gradient))
                if spec.dropout:
                    f.store(by_weight, gradient)
                found.append(f.fma(p, by_weight, mean))
            return found

        means = f.loop_if_any(0, keys, 1, probabilities, [zero(type)] * self.vectors)

        def gradients(key: Value, _: list[Value]) -> list[Value]:
            for vector, mean in enumerate(means):
                probability, gradient = self._at(parts, key, vector)
                p = f.load(type, probability)
                if spec.dropout:
                    f.store(self._unless_dropped(p, p), probability)
                    p = f.intrinsic("fabs", p)
                apart = f.sub(f.load(type, gradient), mean)
                scaled = f.mul(p, f.constant(type, spec.scale * spec.factor))
                f.store(f.mul(apart, scaled), gradient)
            return []

        f.loop_if_any(0, keys, 1, gradients)

    def _at(self, parts: Mapping[str, Value], key: Value, vector: int) -> tuple[Value, Value]:
        """The addresses of a key's scores, in vectors of queries, and of their gradients."""
        f, size = self.function, self.element.nbytes
        offset = f.mul(key, f.constant(I64, self.block))
        first, second = (
            f.address(f.address(parts[name], offset, size), vector * self.lanes, size)
            for name in ("scores", "gradients")
        )
        return first, second

    def _unless_dropped(self, p: Value, value: Value) -> Value:
        """A value, or 0 where a probability is marked as dropped."""
        f, none = self.function, zero(value.type)
        if not self.spec.dropout:
            return value
        return f.select(f.compare("olt", p, none), none, value)

    # ---- products ----

    def _products(
        self, at: Pointers, parts: Mapping[str, Value], rows: Size, sizes: Mapping[Dim, Value]
    ) -> None:
        """The gradients of q, and what the block adds to those of k and v."""
        spec = self.spec
        queries = Axis(rows, {"a": 1, "out": spec.q[-2]})
        keys = Axis(spec.keys, {"a": self.block, "b": spec.k[-2]})
        operands = {"a": parts["gradients"], "b": at["k"], "out": at["d_q"]}
        self._product(operands, queries, keys, spec.width, sizes)
        operands = {"a": parts["gradients"], "b": at["q"], "out": at["d_k"]}
        by_key = Axis(spec.keys, {"a": self.block, "out": spec.k[-2]})
        by_query = Axis(rows, {"a": 1, "b": spec.q[-2]})
        self._product(operands, by_key, by_query, spec.width, sizes, adds=True)
        operands = {"a": parts["scores"], "b": at["d_out"], "out": at["d_v"]}
        by_key = Axis(spec.keys, {"a": self.block, "out": spec.v[-2]})
        by_query = Axis(rows, {"a": 1, "b": spec.out[-2]})
        self._product(operands, by_key, by_query, spec.value_width, sizes, True, spec.factor)

    def _product(
        self, operands: Pointers, rows: Axis, depth: Axis, width: int, sizes: Mapping[Dim, Value],
        adds: bool = False, factor: float = 1.0,
    ) -> None:  # fmt: skip
        """A product whose columns are neighbours; `adds` says that it is added to what is there."""

        def finish(f: Function, sums: list[Value], place: ResultAddresses) -> list[Value]:
            (value,) = sums
            if factor != 1.0:
                value = f.mul(value, f.constant(value.type, factor))
            return [f.add(value, place.load("out")) if adds else value]

        spec = Contraction(
            "gradient", self.element, (), (rows, Axis(1)), (depth,),
            Axis(width, {"b": 1, "out": 1}), dict.fromkeys(operands, self.element), finish=finish,
        )  # fmt: skip
        self.contract(spec, self.tiling_of(spec), operands, sizes)
