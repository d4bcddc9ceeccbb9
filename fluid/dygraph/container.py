"""Layers made of layers, and lists of layers and of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fluid.dygraph.layers import Layer
from fluid.framework import Parameter

__all__ = ["LayerList", "ParameterList", "Sequential"]


class Sequential(Layer):
    """Layers one after the other, given as layers or as pairs of a name and a layer."""

    def __init__(self, *layers: Any) -> None:
        super().__init__()
        for index, each in enumerate(layers):
            name, layer = each if isinstance(each, tuple) else (str(index), each)
            self.add_sublayer(name, layer)

    def __getitem__(self, name: str | int) -> Layer:
        """The layer of a name or an index."""
        return self._sub_layers[str(name)]

    def __setitem__(self, name: str | int, layer: Layer) -> None:
        """Put a layer in place of another one, or behind all."""
        assert isinstance(layer, Layer), f"{name!r} must be a Layer, not {layer!r:.60}"
        self._sub_layers[str(name)] = layer

    def __delitem__(self, name: str | int) -> None:
        """Take a layer out."""
        assert str(name) in self._sub_layers, f"there is no layer {name!r}"
        del self._sub_layers[str(name)]

    def __len__(self) -> int:
        """The number of layers."""
        return len(self._sub_layers)

    def forward(self, input: Any) -> Any:
        """The output of the last layer."""
        for layer in self._sub_layers.values():
            input = layer(input)
        return input


class ParameterList(Layer):
    """Parameters by index."""

    def __init__(self, parameters: Iterable[Parameter] | None = None) -> None:
        super().__init__()
        for each in parameters or ():
            self.append(each)

    def __getitem__(self, idx: int) -> Parameter:
        """The parameter of an index."""
        return self._parameters[str(idx)]

    def __setitem__(self, idx: int, param: Parameter) -> None:
        """Put a parameter in place of another one."""
        assert isinstance(param, Parameter), f"{param!r:.60} is no Parameter"
        self.add_parameter(str(idx), param)

    def __len__(self) -> int:
        """The number of parameters."""
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        """The parameters in order."""
        return iter(self._parameters.values())

    def append(self, parameter: Parameter) -> ParameterList:
        """Add a parameter at the end; the list itself."""
        assert isinstance(parameter, Parameter), f"{parameter!r:.60} is no Parameter"
        self.add_parameter(str(len(self)), parameter)
        return self


class LayerList(Layer):
    """Layers by index; they are called by whoever holds the list."""

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        for each in sublayers or ():
            self.append(each)

    def __getitem__(self, idx: int) -> Layer:
        """The layer of an index."""
        return self._sub_layers[str(idx)]

    def __setitem__(self, idx: int, sublayer: Layer) -> None:
        """Put a layer in place of another one."""
        self.add_sublayer(str(idx), sublayer)

    def __delitem__(self, idx: int) -> None:
        """Take a layer out; those behind it move up."""
        assert idx < len(self), f"there is no layer {idx}"
        self._replace([layer for index, layer in enumerate(self) if index != idx])

    def __len__(self) -> int:
        """The number of layers."""
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Layer]:
        """The layers in order."""
        return iter(self._sub_layers.values())

    def append(self, sublayer: Layer) -> LayerList:
        """Add a layer at the end; the list itself."""
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index: int, sublayer: Layer) -> None:
        """Put a layer before an index; AssertionError where there is none of it."""
        assert isinstance(sublayer, Layer), f"{sublayer!r:.60} is no Layer"
        assert 0 <= index <= len(self), f"index {index} of a list of {len(self)} layers"
        layers = list(self)
        layers.insert(index, sublayer)
        self._replace(layers)

    def extend(self, sublayers: Iterable[Layer]) -> LayerList:
        """Add layers at the end; the list itself."""
        for each in sublayers:
            self.append(each)
        return self

    def _replace(self, layers: list[Layer]) -> None:
        self._sub_layers.clear()
        self._sub_layers.update({str(index): layer for index, layer in enumerate(layers)})
