"""`pyramid_hash`: embeddings of n-grams, composed of chunks of one table selected by hashes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.dims import UNKNOWN
from compiler.ir.opdef import OpDef, Slot, Slots, attr, reads, reads_lod, writes, writes_lod
from compiler.ir.opdef.attribute_bounds import Accepted
from compiler.ir.program import GRAD, OpDesc
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.matching.term_hashes import in_filter, xx_hash_32
from compiler.ops.sequence.offsets import require_one_level
from compiler.ops.type_checks import differ, require_dtype

AT_LEAST_0 = Accepted(low=0)


def find_ngrams(offsets: Array, most: int) -> tuple[Array, Array, Array]:
    """Return start, length and sequence of n-grams of 2 to `most` rows within sequences.

    They are sorted by sequence, then by length, then by start.
    """
    counts = np.diff(offsets)
    rows: Array = np.arange(int(offsets[-1]))
    owners = np.repeat(np.arange(len(counts)), counts)
    longest = min(most, int(counts.max(initial=0)))
    ends = offsets[1:][owners]
    fitting = [rows[rows + length <= ends] for length in range(2, longest + 1)]
    starts = np.concatenate([rows[:0], *fitting])
    lengths = np.repeat(np.arange(2, longest + 1), [len(group) for group in fitting])
    order = np.lexsort((starts, lengths, owners[starts]))
    return starts[order], lengths[order], owners[starts[order]]


def ngram_bits(X: Array, starts: Array, length: int) -> Array:
    """Return the float32 bits of n-grams of `length` ids: uint32 [n-grams, length]."""
    ids = X.reshape(-1).astype(np.float32).view(np.uint32)
    return ids[starts[:, None] + np.arange(length)]


def is_accepted(
    X: Array, starts: Array, lengths: Array, white: Array | None, black: Array | None
) -> Array:
    """Return whether each n-gram is in the white list's filter and not in the black list's."""
    accepted = np.ones(len(starts), bool)
    for length in np.unique(lengths).tolist():
        here = lengths == length
        words = ngram_bits(X, starts[here], length)
        if white is not None:
            accepted[here] &= in_filter(white, "WhiteList", words)
        if black is not None:
            accepted[here] &= ~in_filter(black, "BlackList", words)
    return accepted


def uniform_numbers(seed: int, count: int) -> Array:
    """Return uniform numbers in [0, 1], float32 [count], as glibc's `rand_r` draws them."""
    factors = np.full(3 * count, 1103515245, np.uint32)
    powers = np.cumprod(factors, dtype=np.uint32)
    sums = np.cumsum(np.concatenate([factors[:1] * 0 + 1, powers])[: 3 * count], dtype=np.uint32)
    states = powers * np.uint32(seed % 2**32) + sums * np.uint32(12345)
    parts = (states >> 16).reshape(count, 3)
    drawn = ((parts[:, 0] & 2047) << 20) ^ ((parts[:, 1] & 1023) << 10) ^ (parts[:, 2] & 1023)
    return drawn.astype(np.float32) / np.float32(2**31 - 1)


def embedding_indices(
    X: Array, starts: Array, lengths: Array, sizes: tuple[int, int, int]
) -> Array:
    """Return the indices in W of the elements of each n-gram's embedding: [n-grams, num_emb].

    `sizes` are num_emb, rand_len and space_len: chunks of rand_len elements begin below space_len.
    """
    width, part, space = sizes
    indices = np.zeros((len(starts), width // part), np.int64)
    for length in np.unique(lengths).tolist():
        here = lengths == length
        words = ngram_bits(X, starts[here], length)
        indices[here] = xx_hash_32(words, np.arange(0, width, part)) % np.uint32(space)
    return (indices[:, :, None] + np.arange(part)).reshape(len(starts), width)


class PyramidHash(OpDef, op="pyramid_hash"):
    """Out has an embedding of `num_emb` numbers for each n-gram of 2 to `pyramid_layer` ids.

    X is int32 [rows, 1] with a LoD of one level, W [space_len + rand_len, 1]; of wider rows the LoD
    counts the elements. A row of Out consists of
    chunks of `rand_len` numbers of W, at offsets from the xxHash32 of the n-gram. With `use_filter`
    an n-gram must be in the Bloom filter WhiteList and not in BlackList, if those have a length. In
    training it is dropped with probability `drop_out_percent`; otherwise Out is multiplied by
    that. A sequence without n-grams has one row of zeros. DropPos is 1 for kept n-grams, 0 for
    others and after the last one.

    Unless X stops gradients, the backward pass subtracts `lr` times the gradient of W from W
    itself. Reference: pyramid_hash_op.cc.
    """

    no_kernel_reason = "the number of rows is data-dependent"
    lod_source = ""
    updates_if = "X"

    X = reads()
    X_lod = reads_lod("X")
    W = reads(no_grad=True)
    WhiteList = reads(optional=True, no_grad=True)
    BlackList = reads(optional=True, no_grad=True)
    Out = writes()
    Out_lod = writes_lod("Out")
    DropPos = writes()
    DropPos_lod = writes_lod("DropPos")
    X_Temp_Out = writes()
    num_emb = attr(0, AT_LEAST_0)
    space_len = attr(0, AT_LEAST_0)
    pyramid_layer = attr(2, Accepted(low=2))
    rand_len = attr(0, AT_LEAST_0)
    drop_out_percent = attr(0.0, AT_LEAST_0)
    is_training = attr(0, AT_LEAST_0)
    use_filter = attr(True)
    white_list_len = attr(0, AT_LEAST_0)
    black_list_len = attr(0, AT_LEAST_0)
    seed = attr(0, AT_LEAST_0)
    lr = attr(0.0, AT_LEAST_0)
    distribute_update_vars = attr("")

    def infer(self, s: Slots[TensorType]) -> dict[str, object]:
        X, W = s.X, s.W
        X_lod = s.all("X_lod")
        kind = "pyramid_hash"
        require_one_level(kind, "X", X_lod)
        require_dtype(kind, "X", X, DType.INT32)
        require_dtype(kind, "W", W, DType.FP32)
        if min(self.num_emb, self.rand_len, self.space_len) < 1 or self.num_emb % self.rand_len:
            raise BadAttribute(
                f"{kind}: 'num_emb' is {self.num_emb}, 'rand_len' {self.rand_len} and 'space_len' "
                f"{self.space_len}: expected at least 1, the first a multiple of the second"
            )
        length = self.space_len + self.rand_len
        if X.rank != 2 or W.rank != 2 or differ(W.numel, length):
            raise ShapeError(
                f"{kind}: X is {X} and W {W}, expected [rows, width] and [{length}, 1]"
            )
        return {
            "Out": W.with_shape((UNKNOWN, self.num_emb)),
            "Out_lod": [X_lod[0]],
            "DropPos": TensorType(DType.INT32, (X.numel * self.pyramid_layer, 1)),
            "DropPos_lod": [X_lod[0]],
            "X_Temp_Out": W.with_shape(X.shape),
        }

    def numpy(
        self, X: Array, X_lod: list[Array], W: Array, WhiteList: Array | None,
        BlackList: Array | None,
    ) -> dict[str, object]:  # fmt: skip
        ids = X.reshape(-1, 1)
        starts, lengths, owners = find_ngrams(X_lod[0], self.pyramid_layer)
        white = WhiteList if self.use_filter and self.white_list_len else None
        black = BlackList if self.use_filter and self.black_list_len else None
        accepted = is_accepted(ids, starts, lengths, white, black)
        if self.is_training:
            drawn = uniform_numbers(self.seed, int(accepted.sum()))
            accepted[accepted] = drawn >= np.float32(self.drop_out_percent)
        sizes = (self.num_emb, self.rand_len, self.space_len)
        vectors = W.reshape(-1)[embedding_indices(ids, starts[accepted], lengths[accepted], sizes)]
        counts = np.bincount(owners[accepted], minlength=len(X_lod[0]) - 1)
        offsets = np.concatenate([[0], np.cumsum(np.maximum(counts, 1))]).astype(np.int64)
        out = np.zeros((offsets[-1], self.num_emb), W.dtype)
        out[np.repeat(counts > 0, np.maximum(counts, 1))] = vectors
        positions = np.zeros((len(ids) * self.pyramid_layer, 1), np.int32)
        positions[: len(accepted), 0] = accepted
        return {
            "Out": out if self.is_training else out * np.float32(self.drop_out_percent),
            "Out_lod": [offsets],
            "DropPos": positions,
            "DropPos_lod": [np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)],
            "X_Temp_Out": X.astype(W.dtype),
        }

    def grad_ops(self, op: OpDesc, grad: Callable[[str], str]) -> list[OpDesc]:
        read = {slot: op.inputs[slot] for slot in ("X", "W")}
        read |= {slot: op.outputs[slot] for slot in ("DropPos", "X_Temp_Out")}
        read["Out" + GRAD] = [grad(name) for name in op.outputs["Out"]]
        outputs = {"X" + GRAD: [grad(name) for name in op.inputs["X"]], "WOut": op.inputs["W"]}
        return [OpDesc("pyramid_hash_grad", read, outputs, dict(op.attrs))]


class PyramidHashGrad(OpDef, op="pyramid_hash_grad"):
    """WOut = W - `lr` times the gradient of W by Out@GRAD; X@GRAD has no value.

    DropPos and X_Temp_Out are those of `pyramid_hash`. Reference: pyramid_hash_op.cc, which
    declares no output slot for the updated table.
    """

    no_kernel_reason = "the number of rows is data-dependent"

    slots: ClassVar[dict[str, Slot]] = {
        "Out@GRAD": replace(reads(), name="Out@GRAD"),
        "X@GRAD": replace(writes(optional=True), name="X@GRAD"),
    }

    X = reads(no_grad=True)
    X_lod = reads_lod("X")
    W = reads()
    DropPos = reads()
    X_Temp_Out = reads()
    WOut = writes(inplace="W")
    num_emb = attr(0, AT_LEAST_0)
    space_len = attr(0, AT_LEAST_0)
    pyramid_layer = attr(2, Accepted(low=2))
    rand_len = attr(0, AT_LEAST_0)
    lr = attr(0.0, AT_LEAST_0)

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        d_Out = s.d_Out
        if d_Out.rank != 2 or differ(d_Out.shape[1], self.num_emb):
            raise ShapeError(f"{self.kind}: Out@GRAD is {d_Out}, expected [rows, {self.num_emb}]")
        return {"WOut": s.W, "X@GRAD": s.X}

    def numpy(
        self, X_lod: list[Array], W: Array, DropPos: Array, X_Temp_Out: Array, d_Out: Array
    ) -> dict[str, Array]:
        starts, lengths, owners = find_ngrams(X_lod[0], self.pyramid_layer)
        accepted, ids = DropPos.reshape(-1)[: len(starts)] != 0, X_Temp_Out.reshape(-1, 1)
        counts = np.bincount(owners[accepted], minlength=len(X_lod[0]) - 1)
        sizes = (self.num_emb, self.rand_len, self.space_len)
        positions = embedding_indices(ids, starts[accepted], lengths[accepted], sizes)
        upstream = d_Out[np.repeat(counts > 0, np.maximum(counts, 1))]
        table = W.reshape(-1).copy()
        np.subtract.at(table, positions, np.float32(self.lr) * upstream)
        return {"WOut": table.reshape(W.shape), "X@GRAD": np.zeros(X_Temp_Out.shape, np.int32)}
