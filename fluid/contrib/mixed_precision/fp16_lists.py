"""Which ops compute in half precision, which in float32, and which follow their inputs.

Reference: fluid.contrib.mixed_precision.fp16_lists of release 1.8.5, whose lists these are.
"""

from __future__ import annotations

from collections.abc import Collection

from fluid.recording.arguments import typed

__all__ = ["AutoMixedPrecisionLists", "black_list", "gray_list", "white_list"]

white_list = {"conv2d", "matmul", "mul"}
"""Ops that benefit most from half precision and are safe: products with float32 accumulation.

Changes of the three sets affect the lists that are created afterwards.
"""

black_list = set(
    "exp square log mean sum cos_sim softmax softmax_with_cross_entropy "
    "sigmoid_cross_entropy_with_logits cross_entropy cross_entropy2".split()
)
"""Ops unsafe in half precision: overflow, or loss of small differences."""

gray_list = set(
    "elementwise_add elementwise_sub elementwise_mul elementwise_div elementwise_max "
    "elementwise_min elementwise_pow elementwise_mod elementwise_floordiv batch_norm tanh sigmoid "
    "lookup_table top_k pool2d pool3d dropout relu relu6 leaky_relu soft_relu flatten2 stack "
    "unstack uniform_random_batch_size_like gaussian_random gaussian_random_batch_size_like slice "
    "rank scale transpose2 reshape2 gather fill_constant get_tensor_from_selected_rows sign "
    "cast".split()
)
"""Ops that follow the dtype of their inputs. Unlisted ops compute in float32."""

Names = Collection[str]


class AutoMixedPrecisionLists:
    """The white, black and gray list, with the user's additions to the white or black list.

    `custom_black_varnames` names variables whose readers and writers remain in float32. Raises
    ValueError if an op is in both of the user's lists.

    >>> lists = AutoMixedPrecisionLists(custom_white_list={"softmax"}, custom_black_list={"mul"})
    >>> "softmax" in lists.white_list, sorted(lists.white_list)
    (True, ['conv2d', 'matmul', 'softmax'])
    """

    @typed
    def __init__(
        self,
        custom_white_list: Names | None = None,
        custom_black_list: Names | None = None,
        custom_black_varnames: Names | None = None,
    ) -> None:
        white, black = set(custom_white_list or ()), set(custom_black_list or ())
        if both := sorted(white & black):
            raise ValueError(f"Custom white list overlap custom black list: {', '.join(both)}")
        self.white_list = white_list - black | white
        self.black_list = black_list - white | black
        self.gray_list = gray_list - white - black
        self.black_varnames = None if custom_black_varnames is None else set(custom_black_varnames)
