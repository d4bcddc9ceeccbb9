"""Dropout.

On a device random numbers are computed from an RNG key and the element index, so that the gradient
recomputes the mask instead of loading it, and both can be fused with neighbouring pointwise ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import (
    OpDef,
    Pointwise,
    RecomputeRule,
    Slots,
    Value,
    Xp,
    attr,
    call,
    reads,
    writes,
)
from compiler.ir.opdef.kernel_builder import Operand, SourceBuilder
from compiler.ir.opdef.layout_rules import Order, PermutedOp, Types
from compiler.ir.philox import NUMBERS
from compiler.ir.types import Array, DType, Shape, TensorType

SEED_LIMIT = 2**32


def dropout_generator(Seed: Array | None, fixed: bool, seed: int) -> np.random.Generator:
    """Return a generator seeded by Seed, else by the attribute if it is fixed, else by the OS."""
    if Seed is not None:
        return np.random.default_rng(int(Seed.reshape(-1)[0]) % SEED_LIMIT)
    return np.random.default_rng(seed % SEED_LIMIT if fixed else None)


def keep_scale(probability: float, implementation: str, testing: bool) -> float:
    """Return the scale of the kept elements; their share is rounded to float32."""
    keep_probability = float(np.float32(1.0 - probability))
    if implementation == "downgrade_in_infer":
        return keep_probability if testing else 1.0
    return 1.0 if testing or keep_probability == 0.0 else 1.0 / keep_probability


class Dropout(OpDef, op="dropout"):
    """Training: Out = X where Mask, else 0; each Mask element is 0 with probability `dropout_prob`.

    `upscale_in_train` divides kept elements by 1 - dropout_prob, and inference is the identity;
    `downgrade_in_infer` leaves kept elements unscaled, and inference multiplies by 1 -
    dropout_prob. With a Seed input or `fix_seed` every step drops the same elements. Reference:
    dropout_op.h.
    """

    is_random = True

    grad_like: ClassVar[Mapping[str, str]] = {"X": "Out@GRAD"}

    X = reads()
    Seed = reads(optional=True, no_grad=True)
    Out = writes()
    Mask = writes(optional=True, shares_lod=False)
    dropout_prob = attr(0.5)
    is_test = attr(False)
    fix_seed = attr(False)
    seed = attr(0)
    dropout_implementation = attr("downgrade_in_infer")

    def again(self) -> RecomputeRule:
        """Recompute Out as the gradient op does, from X and Mask."""
        inputs = {"Mask": "Mask", "Out@GRAD": "X"}
        return RecomputeRule("dropout_grad", inputs, {"Out": "X@GRAD"}, self.attributes)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        if not 0.0 <= self.dropout_prob <= 1.0:
            raise BadAttribute(f"dropout: 'dropout_prob' is {self.dropout_prob}, expected 0 to 1")
        if self.dropout_implementation not in ("downgrade_in_infer", "upscale_in_train"):
            raise BadAttribute(
                f"dropout: 'dropout_implementation' is {self.dropout_implementation!r}, expected "
                "'downgrade_in_infer' or 'upscale_in_train'"
            )
        if not X.dtype.is_float:
            raise ShapeError(f"dropout: X is {X}, expected floating point")
        return {"Out": X, "Mask": X.with_dtype(DType.UINT8)}

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Permute the op, unless a seed determines which elements are dropped."""
        free = not self.fix_seed and "Seed" not in types
        return PermutedOp(frozenset({"X", "Out", "Mask"})) if free else None

    def factor(self) -> float:
        """Return the scale of the kept elements."""
        return keep_scale(self.dropout_prob, self.dropout_implementation, self.is_test)

    def noise_dtype(self, X: DType) -> DType:
        """Return the dtype of the random numbers: X's if NumPy's generators support it."""
        return X if X in (DType.FP32, DType.FP64) else DType.FP32

    def numpy(self, X: Array, Seed: Array | None) -> dict[str, Array]:
        factor = keep_scale(self.dropout_prob, self.dropout_implementation, self.is_test)
        if self.is_test:
            return {"Out": X * X.dtype.type(factor), "Mask": np.ones(X.shape, np.uint8)}
        noise = np.float64 if X.dtype == np.float64 else np.float32
        source = dropout_generator(Seed, self.fix_seed, self.seed)
        keep_mask = source.random(X.shape, noise) >= noise(self.dropout_prob)
        return {"Out": X * keep_mask * X.dtype.type(factor), "Mask": keep_mask.view(np.uint8)}

    def grad(self, xp: Xp, Mask: Value, d_Out: Value) -> Value:
        factor = keep_scale(self.dropout_prob, self.dropout_implementation, self.is_test)
        return {"X": d_Out * Mask if factor == 1.0 else d_Out * Mask * factor}

    def lower(self, k: SourceBuilder, s: Slots[Operand]) -> None:
        X = s.X
        Seed, Mask = s.get("Seed"), s.get("Mask")
        result = s.get("Out") or k.scratch(X.shape, X.type.dtype)
        if self.is_test:
            k.line(f"np.multiply({X}, {self.factor()!r}, out={result})")
            if Mask is not None:
                k.line(f"{Mask}.fill(1)")
            return
        dtype = self.noise_dtype(X.type.dtype)
        noise = result if dtype is X.type.dtype else k.scratch(X.shape, dtype)
        mask = Mask or k.scratch(X.shape, DType.UINT8)
        keep_mask = k.at_bind(f"{mask}.view(np.bool_)", [mask], "kept")
        k.line(f"{self.generator_source(k, Seed)}.random(dtype=np.{dtype.numpy.name}, out={noise})")
        k.line(f"np.greater_equal({noise}, {self.dropout_prob!r}, out={keep_mask})")
        k.line(f"np.multiply({X}, {keep_mask}, out={result})")
        if self.factor() != 1.0:
            k.line(f"np.multiply({result}, {self.factor()!r}, out={result})")

    def generator_source(self, k: SourceBuilder, Seed: Operand | None) -> str:
        """Return source text for the generator; one generator serves all unseeded steps."""
        if Seed is None and not self.fix_seed:
            return k.at_bind("np.random.default_rng()", [], "generator")
        return f"{k.function(dropout_generator)}({Seed}, {self.fix_seed}, {self.seed})"


class DropoutByKey(Pointwise, op="dropout_by_key"):
    """`dropout` with a counter-based RNG: the mask depends on Key[place] and the element index.

    Not a program op: the pass `draw_keys` rewrites dropout to it. The gradient of X is the same op
    applied to the gradient of Out, and needs no Mask.
    """

    X = reads()
    Key = reads()
    Out = writes()
    Mask = writes(optional=True)
    dropout_prob = attr(0.5)
    is_test = attr(False)
    dropout_implementation = attr("downgrade_in_infer")
    place = attr(0)

    def align(self, types: Mapping[str, TensorType]) -> dict[str, Shape]:
        """View Key as one key shared by all elements."""
        return {"Key": (1,)} if "Key" in types else {}

    def permuted(self, types: Types, order: Order) -> PermutedOp | None:
        """Return None: the mask depends on the element index."""
        return None

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return X's type for Out, and uint8 for Mask."""
        if not types["X"].dtype.is_float:
            raise ShapeError(f"{self.kind}: X is {types['X']}, expected floating point")
        return {"Out": types["X"], "Mask": types["X"].with_dtype(DType.UINT8)}

    def evaluate(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate the op in NumPy; the reference implementation."""
        X = np.asarray(values["X"])
        outputs = call(self, "compute", {**values, "X": X}, NUMBERS)
        return {"Out": outputs["Out"].astype(X.dtype), "Mask": outputs["Mask"].astype(np.uint8)}

    def compute(self, xp: Xp, X: Value, Key: Value) -> Value:
        factor = keep_scale(self.dropout_prob, self.dropout_implementation, self.is_test)
        scaled = X if factor == 1.0 else X * factor
        least = 0.0 if self.is_test else self.dropout_prob
        keep_mask = xp.uniform_by_key(Key, self.place, X.shape) >= least
        return {"Out": xp.where(keep_mask, scaled, 0.0), "Mask": keep_mask}
