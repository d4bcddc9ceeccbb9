"""Containers of layers and parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast, overload

from fluid.dygraph.layers import Layer, expect_instance
from fluid.framework import Parameter

__all__ = ["LayerList", "ParameterList", "Sequential"]


class Sequential(Layer):
    """Layers called in sequence; arguments are layers or (name, layer) pairs."""

    def __init__(self, *layers: Layer | tuple[str, Layer]) -> None:
        super().__init__()
        for index, entry in enumerate(layers):
            name, layer = entry if isinstance(entry, tuple) else (str(index), entry)
            self.add_sublayer(name, layer)

    def __getitem__(self, name: str | int) -> Layer:
        """Return a layer by name or index."""
        return cast(Layer, self._sub_layers[str(name)])

    def __setitem__(self, name: str | int, layer: Layer) -> None:
        """Replace or append a layer."""
        expect_instance(layer, Layer, f"{name!r} must be a Layer, not {layer!r:.60}")
        self._sub_layers[str(name)] = layer

    def __delitem__(self, name: str | int) -> None:
        """Remove a layer."""
        assert str(name) in self._sub_layers, f"there is no layer {name!r}"
        del self._sub_layers[str(name)]

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._sub_layers)

    def forward(self, input: object) -> object:
        """Call the layers in sequence; return the output of the last one."""
        for layer in self._sub_layers.values():
            input = cast(Layer, layer)(input)
        return input


class ParameterList(Layer):
    """A list of parameters."""

    def __init__(self, parameters: Iterable[Parameter] | None = None) -> None:
        super().__init__()
        for parameter in parameters or ():
            self.append(parameter)

    def __getitem__(self, idx: int) -> Parameter:
        """Return the parameter at an index."""
        return cast(Parameter, self._parameters[str(idx)])

    def __setitem__(self, idx: int, param: Parameter) -> None:
        """Replace the parameter at an index."""
        expect_instance(param, Parameter, f"{param!r:.60} is no Parameter")
        self.add_parameter(str(idx), param)

    def __len__(self) -> int:
        """Return the number of parameters."""
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        """Iterate over the parameters in order."""
        return iter(cast(dict[str, Parameter], self._parameters).values())

    def append(self, parameter: Parameter) -> ParameterList:
        """Append a parameter; return self."""
        expect_instance(parameter, Parameter, f"{parameter!r:.60} is no Parameter")
        self.add_parameter(str(len(self)), parameter)
        return self


class LayerList(Layer):
    """A list of layers; whoever holds it calls them."""

    def __init__(self, sublayers: Iterable[Layer] | None = None) -> None:
        super().__init__()
        for sublayer in sublayers or ():
            self.append(sublayer)

    @overload
    def __getitem__(self, idx: int) -> Layer: ...
    @overload
    def __getitem__(self, idx: slice) -> LayerList: ...
    def __getitem__(self, idx: int | slice) -> Layer | LayerList:
        """Return the layer at an index, or a list of those in a range."""
        if isinstance(idx, slice):
            return type(self)(list(self)[idx])
        return cast(Layer, self._sub_layers[str(idx)])

    def __setitem__(self, idx: int, sublayer: Layer) -> None:
        """Replace the layer at an index."""
        self.add_sublayer(str(idx), sublayer)

    def __delitem__(self, idx: int | slice) -> None:
        """Remove a layer, or those in a range; those after it move up."""
        layers = list(self)
        del layers[idx]
        self._replace(layers)

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self._sub_layers)

    def __iter__(self) -> Iterator[Layer]:
        """Iterate over the layers in order."""
        return iter(cast(dict[str, Layer], self._sub_layers).values())

    def append(self, sublayer: Layer) -> LayerList:
        """Append a layer; return self."""
        self.add_sublayer(str(len(self)), sublayer)
        return self

    def insert(self, index: int, sublayer: Layer) -> None:
        """Insert a layer before an index; AssertionError if the index is out of range."""
        expect_instance(sublayer, Layer, f"{sublayer!r:.60} is no Layer")
        assert 0 <= index <= len(self), f"index {index} of a list of {len(self)} layers"
        layers = list(self)
        layers.insert(index, sublayer)
        self._replace(layers)

    def extend(self, sublayers: Iterable[Layer]) -> LayerList:
        """Append layers; return self."""
        for sublayer in sublayers:
            self.append(sublayer)
        return self

    def _replace(self, layers: list[Layer]) -> None:
        self._sub_layers.clear()
        self._sub_layers.update({str(index): layer for index, layer in enumerate(layers)})
