"""Mean average precision of detected boxes, per batch and accumulated, computed by ops."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from compiler.ir.opdef import find
from compiler.ir.types import Array
from fluid import layers, unique_name
from fluid.executor import Executor
from fluid.framework import Program, Variable, recording_guard
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper
from fluid.recording.annotations import Attributes
from runtime.tensors.lod_tensor import LoDTensor

__all__ = ["DetectionMAP"]


class DetectionMAP:
    """Mean average precision of every batch and of all batches so far, computed by ops.

    `input` [found, 6] has class, score and box (left, top, right, bottom); `gt_label` [true, 1],
    `gt_box` [true, 4] and optionally `gt_difficult` [true, 1] are the ground truth. All have one
    LoD sequence per image. `ap_version` is "integral" or "11point"; as in Paddle 1.8 a class
    without ground-truth boxes is ignored and `background_label` has no effect. Fetch the variables
    of `get_map_var` with every batch, and call `reset` before each pass.

    The scores of all batches, whose number grows, are stored in this object; the program has the
    flag `has_state` for whether they are used.
    """

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        self.helper = LayerHelper("map_eval")
        parts = [layers.cast(gt_label, gt_box.dtype)]
        if gt_difficult is not None:
            parts.append(layers.cast(gt_difficult, gt_box.dtype))
        label = layers.concat([*parts, gt_box], axis=1)
        attrs = {
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
            "class_num": class_num,
        }
        self.cur_map, *counts = self._of_batch({"DetectRes": input, "Label": label}, attrs)
        self._op = find("detection_map")(attrs)
        self._rows: list[Array] = []
        self._totals: Array | int = 0
        self.has_state = self._state()
        self.accum_map = self.helper.create_variable(
            name=unique_name.generate("detection_map.tmp"), shape=[1], dtype="float32"
        )
        layers.py_func(self._add, [self.has_state, *counts], self.accum_map)
        layers.fill_constant([1], "int32", 1, out=self.has_state)

    def _of_batch(self, inputs: dict[str, Variable], attrs: Attributes) -> list[Variable]:
        """Return the batch's mAP, ground-truth count per class, judged scores, and their count per
        class.
        """
        helper = LayerHelper("detection_map")
        kinds = {
            "MAP": "float32",
            "AccumPosCount": "int32",
            "AccumTruePos": "float32",
            "AccumFalsePos": "float32",
        }
        outputs = {
            slot: helper.create_variable_for_type_inference(kind) for slot, kind in kinds.items()
        }
        helper.append_op("detection_map", inputs=inputs, outputs=outputs, attrs=attrs)
        mean, totals, right, wrong = outputs.values()
        judged = layers.sequence_pool(layers.elementwise_add(right, wrong), "sum")
        return [mean, totals, right, judged]

    def _state(self) -> Variable:
        """Create a variable that the startup program sets to 0."""
        name = f"{unique_name.generate(self.helper.name)}_has_state"
        state = self.helper.create_variable(name=name, persistable=True, dtype="int32", shape=[1])
        self.helper.set_variable_initializer(state, Constant(0))
        return state

    def _add(
        self, has_state: LoDTensor, totals: LoDTensor, right: LoDTensor, judged: LoDTensor
    ) -> Array:
        """Accumulate a batch, if `has_state`; return the mean average precision of all.

        `right` has rows (score, is correct), grouped by class; `judged` [classes, 2] has the number
        of rows of each class after twice the sum of their scores. The accumulated batches are
        passed to the op as state, together with an empty batch.
        """
        counts = np.asarray(judged)[:, 1].astype(np.int64)
        rows = np.split(np.asarray(right), np.cumsum(counts)[:-1])
        summed = np.asarray(totals)
        if np.asarray(has_state).any():
            rows = [np.concatenate(both) for both in zip(self._rows, rows, strict=True)]
            summed = summed + self._totals
        self._rows, self._totals = rows, summed
        every = {"TruePos": np.concatenate(rows), "TruePos_lod": [_offsets(map(len, rows))]}
        state = {"HasState": np.ones(1, np.int32), "PosCount": summed, **every}
        return self._op.evaluate(_NOTHING | state)["MAP"]

    def get_map_var(self) -> tuple[Variable, Variable]:
        """Return the variables of the batch's and the accumulated mean average precision, [1]
        each.
        """
        return self.cur_map, self.accum_map

    def reset(self, executor: Executor, reset_program: Program | None = None) -> None:
        """Reset the accumulated state, by running an op in `reset_program`."""
        program = Program() if reset_program is None else reset_program
        with recording_guard(program):
            state = program.current_block().clone_variable(self.has_state)
            layers.fill_constant([1], "int32", 0, out=state)
        executor.run(program)


def _offsets(lengths: Iterable[int]) -> Array:
    return np.cumsum([0, *lengths], dtype=np.int64)


_NOTHING = {
    "DetectRes": np.zeros((0, 6), np.float32),
    "DetectRes_lod": [_offsets([0])],
    "Label": np.zeros((0, 5), np.float32),
    "Label_lod": [_offsets([0])],
}
