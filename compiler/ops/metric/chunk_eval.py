"""Chunk evaluation: precision and recall of tagged spans."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from compiler.errors import BadAttribute, ShapeError
from compiler.ir.opdef import OpDef, Slot, Slots, attr_list, reads, reads_lod, required, writes
from compiler.ir.types import Array, DType, TensorType
from compiler.ops.loss.padded import rows_by_length
from compiler.ops.type_checks import require_dtype, require_same_shape, shown

F1 = "F1-Score"
CHUNK_SHARES: tuple[str, ...] = ("Precision", "Recall", F1)
CHUNK_COUNTS: tuple[str, ...] = ("NumInferChunks", "NumLabelChunks", "NumCorrectChunks")
CHUNK_SCHEMES = (("IOB", "BI"), ("IOE", "IE"), ("IOBES", "BIES"), ("plain", "-"))
"""Tags of each scheme within a chunk type: Begin, Inside, End, Single."""


def chunk_starts(labels: Array, first: Array, tags: str, kinds: int) -> tuple[Array, Array]:
    """Return where chunks begin, and the type of each label; `kinds` means outside of all chunks.

    A chunk begins where the type changes, at a Begin or Single tag, and after an End or Single tag.
    `first` marks the first label of each sequence.
    """
    kind, tag = labels // len(tags), np.array(list(tags))[labels % len(tags)]
    before = np.concatenate([["-"], tag[:-1]])
    fresh = first | (kind != np.concatenate([[kinds], kind[:-1]]))
    begins = np.isin(tag, ["B", "S"]) | np.isin(before, ["E", "S"])
    return (kind != kinds) & (fresh | begins), kind


def chunk_ends(starts: Array, first: Array, outside: Array) -> Array:
    """Return the end (exclusive) of the chunk that begins at each position, 0 elsewhere."""
    breaks = np.append(np.flatnonzero(starts | first | outside), len(starts))
    begun = np.flatnonzero(starts)
    ends = np.zeros(len(starts), np.int64)
    ends[begun] = breaks[np.searchsorted(breaks, begun, side="right")]
    return ends


def count_chunks(
    found: Array, real: Array, first: Array, tags: str, kinds: int, excluded: list[int]
) -> tuple[int, int, int]:
    """Return the number of predicted chunks, of true chunks, and of chunks in both."""
    starts, kind = chunk_starts(found, first, tags, kinds)
    real_starts, real_kind = chunk_starts(real, first, tags, kinds)
    ends = chunk_ends(starts, first, kind == kinds)
    real_ends = chunk_ends(real_starts, first, real_kind == kinds)
    starts &= ~np.isin(kind, excluded)
    real_starts &= ~np.isin(real_kind, excluded)
    both = starts & real_starts & (kind == real_kind) & (ends == real_ends)
    return int(starts.sum()), int(real_starts.sum()), int(both.sum())


def first_steps(count: int, offsets: Array) -> Array:
    """Return the mask of rows that begin a sequence."""
    first = np.zeros(count, np.bool_)
    first[offsets[:-1][np.diff(offsets) > 0]] = True
    return first


def checked_labels(labels: Array, slot: str, highest: int) -> Array:
    """Return the labels flattened; raise ValueError for one out of range."""
    flat = labels.reshape(-1)
    wrong = (flat < 0) | (flat > highest)
    if wrong.any():
        raise ValueError(f"{slot} has {flat[wrong][0]}, expected labels from 0 to {highest}")
    return flat


class ChunkEval(OpDef, op="chunk_eval"):
    """Precision, Recall and F1-Score [1] of the chunks in Inference against those in Label.

    A label is `type * tags + tag` for the tags of the scheme (IOB, IOE, IOBES, plain), and
    `num_chunk_types * tags` outside of all chunks. Both are [rows, 1] with LoD, or padded [lines,
    longest] with SeqLength. The counts are int64 [1]; types in `excluded_chunk_types` are ignored.
    Reference: chunk_eval_op.h.
    """

    no_kernel_reason = "chunk boundaries are found sequentially"

    slots: ClassVar[dict[str, Slot]] = {F1: replace(writes(), name=F1)}

    Inference = reads()
    Label = reads()
    SeqLength = reads(optional=True)
    Inference_lod = reads_lod("Inference", optional=True)
    Label_lod = reads_lod("Label", optional=True)
    Precision = writes()
    Recall = writes()
    NumInferChunks = writes()
    NumLabelChunks = writes()
    NumCorrectChunks = writes()
    num_chunk_types = required(int)
    chunk_scheme = required(str)
    excluded_chunk_types = attr_list(int)

    lod_source = ""

    def infer(self, s: Slots[TensorType]) -> dict[str, TensorType]:
        Inference = s.Inference
        if self.chunk_scheme not in dict(CHUNK_SCHEMES):
            names = ", ".join(dict(CHUNK_SCHEMES))
            raise BadAttribute(
                f"{self.kind}: 'chunk_scheme' is {self.chunk_scheme!r}, not one of {names}"
            )
        for slot, labels in (("Inference", Inference), ("Label", s.Label)):
            require_dtype(self.kind, slot, labels, DType.INT64)
        require_same_shape(self.kind, Inference=Inference, Label=s.Label)
        if (SeqLength := s.get("SeqLength")) is not None and Inference.rank < 2:
            shapes = shown(Inference=Inference, SeqLength=SeqLength)
            raise ShapeError(f"{self.kind}: {shapes}, expected padded lines")
        share, count = TensorType(DType.FP32, (1,)), TensorType(DType.INT64, (1,))
        return dict.fromkeys(CHUNK_SHARES, share) | dict.fromkeys(CHUNK_COUNTS, count)

    def numpy(
        self,
        Inference: Array,
        Label: Array,
        SeqLength: Array | None,
        Inference_lod: list[Array] | None,
        Label_lod: list[Array] | None,
    ) -> dict[str, Array]:
        tags, levels = dict(CHUNK_SCHEMES)[self.chunk_scheme], Label_lod or Inference_lod
        highest = self.num_chunk_types * len(tags)
        predicted = checked_labels(Inference, "Inference", highest)
        real = checked_labels(Label, "Label", highest)
        if SeqLength is not None:
            _, valid = rows_by_length(SeqLength, Label.shape[1], "SeqLength")
            first = np.zeros(valid.shape, np.bool_)
            first[:, :1] = True
            predicted, real, first = predicted[valid.ravel()], real[valid.ravel()], first[valid]
        elif levels:
            first = first_steps(len(real), levels[-1])
        else:
            raise ValueError("chunk_eval needs LoD of Label, or the input SeqLength")
        kinds, excluded = self.num_chunk_types, self.excluded_chunk_types
        inferred, labeled, correct = count_chunks(predicted, real, first, tags, kinds, excluded)
        precision, recall = correct / max(inferred, 1), correct / max(labeled, 1)
        score = 2 * precision * recall / (precision + recall) if correct else 0.0
        shares = np.array([[precision], [recall], [score]], np.float32)
        counts = np.array([[inferred], [labeled], [correct]], np.int64)
        return dict(zip((*CHUNK_SHARES, *CHUNK_COUNTS), (*shares, *counts), strict=True))
