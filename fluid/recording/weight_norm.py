"""Weight normalisation: `w = g * v / |v|` (Salimans & Kingma, 2016).

`g` and `v` are the parameters; `w` is computed from them in every step. Initially g = |v|, so
that w = v.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from fluid import unique_name
from fluid.param_attr import WeightNormParamAttr, normalized_weights
from fluid.recording.annotations import DTypeLike
from fluid.recording.block import Block
from fluid.recording.variable import Variable

__all__ = ["create_normalized_weight"]


def create_normalized_weight(
    main: Block,
    startup: Block,
    stem: str,
    attr: WeightNormParamAttr,
    shape: Sequence[int],
    dtype: DTypeLike,
) -> Variable:
    """Create the parameters `<name>_g` and `<name>_v` and append the ops that compute the weight.

    `main` and `startup` are the blocks to append to, `stem` the name prefix of temporaries.
    Norms are over all axes but `attr.dim`, or over all. Raises ValueError for an invalid axis.
    """
    if attr.dim is not None and not 0 <= attr.dim < len(shape):
        raise ValueError(f"WeightNormParamAttr: there is no axis {attr.dim} in {list(shape)}")
    lengths = [size if axis == attr.dim else 1 for axis, size in enumerate(shape)]
    length, direction = copy.copy(attr), copy.copy(attr)
    length.name, direction.name = f"{attr.name}_g", f"{attr.name}_v"
    started = startup.create_parameter(shape=lengths, dtype=dtype, **length.to_kwargs())
    sizes = list(shape)
    v = startup.create_parameter(
        direction.initializer, shape=sizes, dtype=dtype, **direction.to_kwargs()
    )
    _append_norm(startup, stem, v, attr.dim, started)
    g = main.create_parameter(shape=lengths, dtype=dtype, **length.to_kwargs())
    v = main.create_parameter(shape=sizes, dtype=dtype, **direction.to_kwargs())
    norm = _append_norm(main, stem, v, attr.dim, _temporary(main, stem, "norm", dtype))
    scale, weight = (_temporary(main, stem, what, dtype) for what in ("scale", "weight"))
    main.append_op("elementwise_div", inputs={"X": g, "Y": norm}, outputs={"Out": scale})
    main.append_op("elementwise_mul", inputs={"X": v, "Y": scale}, outputs={"Out": weight})
    normalized_weights.add(weight)
    return weight


def _append_norm(block: Block, stem: str, v: Variable, dim: int | None, out: Variable) -> Variable:
    """Append the L2 norm over all axes but `dim`, which are kept."""
    total = _temporary(block, stem, "square", v.dtype)
    block.append_op("square", inputs={"X": v}, outputs={"Out": total})
    axes = [axis for axis in range(len(v.shape)) if axis != dim]
    if axes:
        square, total = total, _temporary(block, stem, "sum", v.dtype)
        attrs = {"dim": axes, "keep_dim": True, "reduce_all": dim is None}
        block.append_op("reduce_sum", inputs={"X": square}, outputs={"Out": total}, attrs=attrs)
    block.append_op("sqrt", inputs={"X": total}, outputs={"Out": out})
    return out


def _temporary(block: Block, stem: str, what: str, dtype: DTypeLike) -> Variable:
    name = unique_name.generate(f"{stem}.weight_norm_{what}")
    return block.create_var(name=name, dtype=dtype)
