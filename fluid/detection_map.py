"""Mean average precision of detected boxes, of a batch and of all batches, as part of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fluid import layers, unique_name
from fluid.framework import Program, Variable, program_guard
from fluid.initializer import Constant
from fluid.layer_helper import LayerHelper

__all__ = ["DetectionMAP", "detection_map"]

_STATES = (
    ("accum_pos_count", "int32"),
    ("accum_true_pos", "float32"),
    ("accum_false_pos", "float32"),
)


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Variable] | None = None,
    out_states: Sequence[Variable] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """The mean average precision [1] of found boxes [found, 6] against true ones [true, 5 or 6].

    A found box is class, score, left, top, right, bottom; a true one class, maybe whether it is
    difficult, and the box; both have LoD. `ap_version` is "integral" or "11point". The states (true
    boxes by class, scores of right and of wrong ones) go on if `has_state` holds anything but 0.
    As in Paddle 1.8, `background_label` does not reach the op.
    """
    helper = LayerHelper("detection_map")
    mean = helper.create_variable_for_type_inference("float32")
    states = out_states or [
        helper.create_variable_for_type_inference(dtype) for _, dtype in _STATES
    ]
    given = input_states or (None, None, None)
    helper.append_op(
        "detection_map",
        inputs={
            "Label": label,
            "DetectRes": detect_res,
            "HasState": has_state,
            **dict(zip(("PosCount", "TruePos", "FalsePos"), given, strict=True)),
        },
        outputs={
            "MAP": mean,
            **dict(zip(("AccumPosCount", "AccumTruePos", "AccumFalsePos"), states, strict=True)),
        },
        attrs={
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
            "class_num": class_num,
        },
    )
    return mean


class DetectionMAP:
    """Ops that compute the mean average precision of every batch and of all batches so far.

    `input` [found, 6], `gt_label` [true, 1], `gt_box` [true, 4] and `gt_difficult` [true, 1], if
    any, have LoD, a sequence an image. Fetch both variables of `get_map_var`, and call `reset`
    before each pass.
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
        settings: dict[str, Any] = {
            "class_num": class_num,
            "background_label": background_label,
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_version": ap_version,
        }
        self.cur_map = detection_map(input, label, **settings)
        states = [self._create_state(suffix, dtype, [-1, 1]) for suffix, dtype in _STATES]
        self.has_state = self._create_state("has_state", "int32", [1])
        self.helper.set_variable_initializer(self.has_state, Constant(0))
        self.accum_map = detection_map(
            input,
            label,
            has_state=self.has_state,
            input_states=states,
            out_states=states,
            **settings,
        )
        layers.fill_constant([1], self.has_state.dtype, 1, out=self.has_state)

    def _create_state(self, suffix: str, dtype: str, shape: list[int] | None) -> Variable:
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        return self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """The variables of the batch's and of all batches' mean average precision, [1] each."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Begin anew with the next batch; the op that does so is run in `reset_program`."""
        program = Program() if reset_program is None else reset_program
        with program_guard(program):
            state = program.current_block()._clone_variable(self.has_state)
            layers.fill_constant([1], state.dtype, 0, out=state)
        executor.run(program)
