"""Fully connected, embedding and recurrent unit layer objects.

Arguments, parameters and ops are those of release 1.8.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from fluid.dygraph.layers import Layer
from fluid.framework import Variable, default_main_program
from fluid.initializer import Constant
from fluid.layers.recommending.sampling import custom_distribution
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike, SlotValue
from fluid.recording.checks import FLOATS, check_variable, check_variable_and_dtype

__all__ = [
    "NCE", "BilinearTensorProduct", "Dropout", "Embedding", "GRUUnit", "Linear", "PRelu",
    "TreeConv",
]  # fmt: skip

_GATES = {"identity": 0, "sigmoid": 1, "tanh": 2, "relu": 3}


class Linear(Layer):
    """`act(input @ weight + bias)` over the last axis of the input."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        act: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act = act
        self.weight = self.create_parameter([input_dim, output_dim], param_attr, dtype)
        self.bias = self.create_parameter([output_dim], bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable) -> Variable:
        """Map `input`, [..., input_dim], to [..., output_dim]."""
        check_variable_and_dtype(input, "input", FLOATS, "Linear")
        out = self._helper.append_result("matmul", {"X": input, "Y": self.weight})
        if self.bias is not None:
            axis = {"axis": len(input.shape) - 1}
            out = self._helper.append_result("elementwise_add", {"X": out, "Y": self.bias}, axis)
        return self._helper.append_activation(out, self._act)


class Dropout(Layer):
    """Dropout; see `layers.dropout`."""

    def __init__(
        self,
        p: float = 0.5,
        seed: int | None = None,
        dropout_implementation: str = "downgrade_in_infer",
        is_test: bool = False,
    ) -> None:
        super().__init__()
        assert isinstance(p, float | int), "p argument should be a number"
        assert 0 <= p <= 1, "p argument should between 0 and 1"
        assert isinstance(seed, int | None), "seed argument should be None or a integer"
        modes = ("downgrade_in_infer", "upscale_in_train")
        assert dropout_implementation in modes, f"dropout_implementation should be one of {modes}"
        self._seed = seed
        self._attrs = {
            "dropout_prob": p,
            "is_test": is_test,
            "dropout_implementation": dropout_implementation,
        }

    def forward(self, input: Variable) -> Variable:
        """Apply dropout to `input`."""
        seed = self._seed or default_main_program().random_seed or None
        attrs = {**self._attrs, "fix_seed": seed is not None, "seed": seed or 0}
        if default_main_program().follows_layers:
            attrs["is_test"] = not self.training
        out = self._helper.create_variable_for_type_inference(input.dtype)
        mask = self._helper.create_variable_for_type_inference("uint8", stop_gradient=True)
        self._helper.append_op("dropout", {"X": input}, {"Out": out, "Mask": mask}, attrs)
        return out


class Embedding(Layer):
    """An embedding table; see `fluid.embedding`."""

    def __init__(
        self,
        size: Sequence[int],
        is_sparse: bool = False,
        is_distributed: bool = False,
        padding_idx: int | None = None,
        param_attr: ParamAttrLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        row = -1 if padding_idx is None else padding_idx % size[0]
        self._attrs = {
            "is_sparse": is_sparse,
            "is_distributed": is_distributed,
            "remote_prefetch": is_sparse and not is_distributed,
            "padding_idx": row,
        }
        self.weight = self.create_parameter(size, param_attr, dtype)

    def forward(self, input: Variable) -> Variable:
        """Return the rows of the table, [..., size[1]], for ids of any shape."""
        check_variable_and_dtype(input, "input", ["int64"], "Embedding")
        inputs = {"Ids": input, "W": self.weight}
        return self._helper.append_result("lookup_table_v2", inputs, self._attrs, self._dtype)


class GRUUnit(Layer):
    """One GRU step; see `layers.gru_unit`.

    `size` is three times that of the state.
    """

    def __init__(
        self,
        size: int,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        activation: str = "tanh",
        gate_activation: str = "sigmoid",
        origin_mode: bool = False,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self.activation, self.gate_activation = _GATES[activation], _GATES[gate_activation]
        width = size // 3
        self.weight = self.create_parameter([width, 3 * width], param_attr, dtype)
        self.bias = self.create_parameter([1, 3 * width], bias_attr, dtype, is_bias=True)

    def forward(self, input: Variable, hidden: Variable) -> tuple[Variable, Variable, Variable]:
        """Return the new state, the reset state and the gates."""
        for name, variable in (("input", input), ("hidden", hidden)):
            check_variable_and_dtype(variable, name, FLOATS, "GRUUnit")
        inputs = {"Input": input, "HiddenPrev": hidden, "Weight": self.weight, "Bias": self.bias}
        slots = ("Gate", "ResetHiddenPrev", "Hidden")
        make = self._helper.create_variable_for_type_inference
        outs = {slot: make(self._dtype) for slot in slots}
        attrs = {"activation": self.activation, "gate_activation": self.gate_activation}
        self._helper.append_op("gru_unit", inputs, outs, attrs)
        return outs["Hidden"], outs["ResetHiddenPrev"], outs["Gate"]


class NCE(Layer):
    """Noise-contrastive estimation; see `layers.nce`. Without `bias_attr` it has no bias."""

    def __init__(
        self,
        num_total_classes: int,
        dim: int,
        sample_weight: Variable | None = None,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        num_neg_samples: int | None = None,
        sampler: str = "uniform",
        custom_dist: Sequence[float] | None = None,
        seed: int = 0,
        is_sparse: bool = False,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        samplers = {"uniform": 0, "log_uniform": 1, "custom_dist": 2}
        if sampler not in samplers:
            raise ValueError(f"sampler should be one of {[*samplers]}, but received {sampler!r}")
        self._inputs: dict[str, SlotValue] = {}
        if sampler == "custom_dist":
            self._inputs |= custom_distribution(self._helper, custom_dist, num_total_classes)
        self._attrs = {
            "num_total_classes": int(num_total_classes),
            "num_neg_samples": int(10 if num_neg_samples is None else num_neg_samples),
            "seed": seed,
            "sampler": samplers[sampler],
            "is_sparse": is_sparse,
            "remote_prefetch": is_sparse,
        }
        self.weight = self.create_parameter([num_total_classes, dim], param_attr, dtype)
        self._inputs["Weight"] = self.weight
        if bias_attr:
            self.bias = self.create_parameter([num_total_classes, 1], bias_attr, dtype, True)
            self._inputs["Bias"] = self.bias

    def forward(
        self, input: Variable, label: Variable, sample_weight: Variable | None = None
    ) -> Variable:
        """Return the loss of each row of `input`, [rows, dim], for class `label`, [rows, 1]."""
        check_variable_and_dtype(input, "input", FLOATS, "NCE")
        check_variable_and_dtype(label, "label", ["int64"], "NCE")
        inputs = {**self._inputs, "Input": input, "Label": label, "SampleWeight": sample_weight}
        make = self._helper.create_variable_for_type_inference
        outs = {"Cost": make(input.dtype), "SampleLogits": make(input.dtype)}
        outs["SampleLabels"] = make(label.dtype)
        self._helper.append_op("nce", inputs, outs, self._attrs)
        return outs["Cost"] / (self._attrs["num_neg_samples"] + 1)


class PRelu(Layer):
    """`max(0, x) + weight * min(0, x)`; see `layers.prelu`."""

    def __init__(
        self,
        mode: str,
        channel: int | None = None,
        input_shape: Sequence[int] | None = None,
        param_attr: ParamAttrLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__("prelu", dtype)
        self._mode = mode
        shape = _alpha_shape(mode, channel, input_shape)
        self.weight = self.create_parameter(
            shape, param_attr, "float32", default_initializer=Constant(1.0)
        )

    def forward(self, input: Variable) -> Variable:
        """Apply the activation elementwise."""
        check_variable_and_dtype(input, "input", ["float32"], "PRelu")
        inputs = {"X": input, "Alpha": self.weight}
        return self._helper.append_result("prelu", inputs, {"mode": self._mode})


def _alpha_shape(mode: str, channel: int | None, shape: Sequence[int] | None) -> list[int]:
    if mode == "all":
        return [1]
    if mode == "channel":
        assert isinstance(channel, int), "channel argument is required when mode is 'channel'."
        return [1, channel, 1, 1]
    if mode == "element":
        assert isinstance(shape, list | tuple), "input_shape is required when mode is 'element'."
        return [1, *shape[1:]]
    raise ValueError(f"mode should be one of all, channel, element, but received {mode!r}")


class BilinearTensorProduct(Layer):
    """Bilinear product of two inputs; see `layers.bilinear_tensor_product`."""

    def __init__(
        self,
        input1_dim: int,
        input2_dim: int,
        output_dim: int,
        name: str | None = None,
        act: str | None = None,
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act, self._name = act, name
        shape = [output_dim, input1_dim, input2_dim]
        self.weight = self.create_parameter(shape, param_attr, dtype)
        self.bias = self.create_parameter([1, output_dim], bias_attr, dtype, is_bias=True)

    def forward(self, x: Variable, y: Variable) -> Variable:
        """Return the bilinear product of `x`, [rows, input1_dim], and `y`, [rows, input2_dim]."""
        for name, variable in (("x", x), ("y", y)):
            check_variable_and_dtype(variable, name, FLOATS, "BilinearTensorProduct")
        inputs = {"X": x, "Y": y, "Weight": self.weight, "Bias": self.bias}
        name = None if self._name is None else f"{self.full_name()}.{self._name}"
        out = self._helper.create_variable(name=name, dtype=self._dtype, persistable=False)
        self._helper.append_op("bilinear_tensor_product", inputs, {"Out": out})
        return self._helper.append_activation(out, self._act)


class TreeConv(Layer):
    """Tree convolution; see `contrib.layers.tree_conv`.

    Without `bias_attr` it has no bias.
    """

    def __init__(
        self,
        feature_size: int,
        output_size: int,
        num_filters: int = 1,
        max_depth: int = 2,
        act: str | None = "tanh",
        param_attr: ParamAttrLike = None,
        bias_attr: ParamAttrLike = None,
        name: str | None = None,
        dtype: DTypeLike = "float32",
    ) -> None:
        super().__init__(dtype=dtype)
        self._act, self._name, self._max_depth = act, name, max_depth
        self.bias = None
        if bias_attr:
            self.bias = self.create_parameter([num_filters], bias_attr, dtype, is_bias=True)
        shape = [feature_size, 3, output_size, num_filters]
        self.weight = self.create_parameter(shape, param_attr, dtype)

    def forward(self, nodes_vector: Variable, edge_set: Variable) -> Variable:
        """Return node features, [batch, nodes, output_size, num_filters], from nodes and edges."""
        check_variable(nodes_vector, "nodes_vector", "TreeConv")
        check_variable(edge_set, "edge_set", "TreeConv")
        make = self._helper.create_variable_for_type_inference
        named = self._name and self.create_variable(self._name, False, self._dtype)
        out = named or make(self._dtype)
        inputs = {"NodesVector": nodes_vector, "EdgeSet": edge_set, "Filter": self.weight}
        self._helper.append_op("tree_conv", inputs, {"Out": out}, {"max_depth": self._max_depth})
        if self.bias is not None:
            inputs = {"X": out, "Y": self.bias}
            out = self._helper.append_result("elementwise_add", inputs, {"axis": 1})
        return self._helper.append_activation(out, self._act)
