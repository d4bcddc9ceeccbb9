"""The double-grad op of `instance_norm`; see `compiler.ir.autodiff.double_grad`."""

from __future__ import annotations

import numpy as np

from compiler.ir.opdef import OpDef, Slots, attr, reads, writes
from compiler.ir.types import Array, TensorType
from compiler.ops.norm.group_norm import require_channels, require_positions
from compiler.ops.type_checks import require_same_shape


class InstanceNormGradGrad(OpDef, op="instance_norm_grad_grad"):
    """Double grad of `instance_norm`: the gradients of its X@GRAD, Scale@GRAD and Bias@GRAD.

    X, DY and DDX are [N, C, …], Scale, DDScale and DDBias [C]; SavedMean and SavedVariance, which
    is 1/sqrt(variance + epsilon), are [N·C]. DX and DScale are gradients of X and Scale, DDY that
    of DY. Reference: instance_norm_op.cc.
    """

    no_kernel_reason = "gradients of gradients of norms are computed on the host"

    X = reads()
    Scale = reads(optional=True)
    SavedMean = reads()
    SavedVariance = reads()
    DDX = reads(optional=True)
    DDScale = reads(optional=True)
    DDBias = reads(optional=True)
    DY = reads()
    DX = writes(optional=True)
    DScale = writes(optional=True)
    DDY = writes(optional=True)
    epsilon = attr(1e-5)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        X = s.X
        vectors = {"DDScale": s.get("DDScale"), "DDBias": s.get("DDBias")}
        require_channels(self.kind, X, "NCHW", Scale=s.get("Scale"), **vectors)
        DDX = s.get("DDX")
        require_same_shape(self.kind, X=X, DY=s.DY, DDX=X if DDX is None else DDX)
        require_positions(self.kind, X, "NCHW")
        saved = {"channels of X": X.with_shape((X.shape[0] * X.shape[1],))}
        saved |= {"SavedMean": s.SavedMean, "SavedVariance": s.SavedVariance}
        require_same_shape(self.kind, **saved)
        return {"DX": X, "DScale": X.with_shape(X.shape[1:2]), "DDY": X}

    def numpy(
        self,
        X: Array,
        Scale: Array | None,
        SavedMean: Array,
        SavedVariance: Array,
        DDX: Array | None,
        DDScale: Array | None,
        DDBias: Array | None,
        DY: Array,
    ) -> dict[str, Array]:
        images, channels, positions = X.shape[0], X.shape[1], int(np.prod(X.shape[2:]))
        rows, inverse = (images * channels, positions), SavedVariance[:, None]
        normal = (X.reshape(rows) - SavedMean[:, None]) * inverse
        upstream = DY.reshape(rows)
        second = np.zeros_like(upstream) if DDX is None else DDX.reshape(rows)
        zeros = np.zeros((rows[0], 1), X.dtype)
        factor = zeros + 1 if Scale is None else np.tile(Scale, images)[:, None]
        by_scale = zeros if DDScale is None else np.tile(DDScale, images)[:, None]
        by_bias = zeros if DDBias is None else np.tile(DDBias, images)[:, None]
        share = (second * normal).mean(axis=1, keepdims=True)
        slope = (upstream * normal).mean(axis=1, keepdims=True)
        centred = second - second.mean(axis=1, keepdims=True) - normal * share
        overlap = (centred * upstream).sum(axis=1, keepdims=True)
        by_normal = by_scale * upstream - factor * inverse * (second * slope + upstream * share)
        along = (by_normal * normal).mean(axis=1, keepdims=True)
        by_normal -= by_normal.mean(axis=1, keepdims=True) + normal * along
        d_x = inverse * by_normal - factor * overlap * inverse**2 * normal / positions
        d_scale = (inverse * overlap).reshape(images, channels).sum(axis=0)
        d_upstream = factor * inverse * centred + by_scale * normal + by_bias
        return {"DX": d_x.reshape(X.shape), "DScale": d_scale, "DDY": d_upstream.reshape(X.shape)}
