"""8-bit quantization and dequantization for the oneDNN kernels of the reference.

Reference: quantize_op.cc, dequantize_op.cc, requantize_op.cc, which run by oneDNN alone. There
`output_format` is the memory order of an image; here it has no effect. None of these ops has a
gradient there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from compiler.ir.opdef import Pointwise, Value, Xp, attr, reads, writes
from compiler.ir.opdef.attribute_bounds import POSITIVE, one_of
from compiler.ir.types import DType
from compiler.ops.type_checks import require_dtype


def saturated(xp: Xp, x: Value, dtype: Any) -> Value:
    """Return the nearest 8-bit integers, clipped, halves rounded to even."""
    bounds = np.iinfo(dtype)
    low, high = float(bounds.min), float(bounds.max)
    return xp.astype(xp.rint(xp.minimum(xp.maximum(x, low), high)), dtype)


class Quantize(Pointwise, op="quantize"):
    """Output = Input * Scale as uint8, or as int8 with `is_negative_input`; clipped."""

    Input = reads()
    Output = writes()
    Scale = attr(1.0)
    is_negative_input = attr(False)
    output_format = attr("NHWC", one_of("NHWC", "NCHW", "ANYLAYOUT", "MKLDNNLAYOUT"))

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shape of Input in 8 bits; raises ShapeError unless it is float32."""
        require_dtype(self.kind, "Input", types["Input"], DType.FP32)
        dtype = DType.INT8 if self.is_negative_input else DType.UINT8
        return {"Output": types["Input"].with_dtype(dtype)}

    def compute(self, xp: Xp, Input: Value) -> Value:
        return saturated(xp, Input * self.Scale, np.int8 if self.is_negative_input else np.uint8)


class Dequantize(Pointwise, op="dequantize"):
    """Output = Input / Scale in float32, where Input is int8 or uint8."""

    Input = reads()
    Output = writes()
    Scale = attr(1.0)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shape of Input in float32; raises ShapeError unless it has 8 bits."""
        require_dtype(self.kind, "Input", types["Input"], DType.INT8, DType.UINT8)
        return {"Output": types["Input"].with_dtype(DType.FP32)}

    def compute(self, xp: Xp, Input: Value) -> Value:
        return xp.astype(Input, np.float32) / self.Scale


class Requantize(Pointwise, op="requantize"):
    """Output = Input * Scale_out / Scale_in, in the dtype of Input, int8 or uint8; clipped."""

    Input = reads()
    Output = writes()
    Scale_in = attr(1.0, POSITIVE)
    Scale_out = attr(1.0)

    def infer_types(self, types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of Input; raises ShapeError unless it has 8 bits."""
        require_dtype(self.kind, "Input", types["Input"], DType.INT8, DType.UINT8)
        return {"Output": types["Input"]}

    def compute(self, xp: Xp, Input: Value) -> Value:
        scaled = xp.astype(Input, np.float32) * (self.Scale_out / self.Scale_in)
        return saturated(xp, scaled, DType.of(Input.dtype).numpy)
