"""`Layer`: an object with parameters and sublayers, whose call appends ops to a program."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn, TypeAlias, cast

from fluid import unique_name
from fluid.dygraph.layer_object_helper import LayerObjectHelper
from fluid.framework import Parameter, Variable, default_main_program
from fluid.initializer import Initializer
from fluid.param_attr import ParamAttrLike
from fluid.recording.annotations import DTypeLike
from fluid.recording.var_types import VarDesc

__all__ = ["HookRemoveHelper", "Layer"]

VarType = VarDesc.VarType
Hook: TypeAlias = Callable[..., object]


class HookRemoveHelper:
    """Handle returned on registration of a hook, which removes it."""

    next_hook_id = 0

    def __init__(self, hooks: dict[int, Hook], hook: Hook) -> None:
        self._hooks, self._hook_id = hooks, HookRemoveHelper.next_hook_id
        HookRemoveHelper.next_hook_id += 1
        hooks[self._hook_id] = hook

    def remove(self) -> None:
        """Remove the hook, if not already removed."""
        self._hooks.pop(self._hook_id, None)


class Layer:
    """Base class of layer objects; subclasses define `forward`.

    Parameters and layers that are set as attributes are registered. Parameters are named after the
    layer: `<name_scope>_<n>.w_<k>`; the default `name_scope` is the class name in snake case.
    """

    training = True
    _parameters: dict[str, Parameter | None]
    _sub_layers: dict[str, Layer | None]
    _forward_pre_hooks: dict[int, Hook]
    _forward_post_hooks: dict[int, Hook]
    _built: bool
    _dtype: DTypeLike

    def __init__(self, name_scope: str | None = None, dtype: DTypeLike = VarType.FP32) -> None:
        scope = name_scope or _snake_case(type(self).__name__)
        vars(self).update(_parameters={}, _sub_layers={})
        vars(self).update(_forward_pre_hooks={}, _forward_post_hooks={})
        self._built, self._dtype = False, dtype
        self._full_name = unique_name.generate(scope)
        self._helper = LayerObjectHelper(self._full_name)

    def full_name(self) -> str:
        """Return the unique name of the layer."""
        return self._full_name

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Append the layer's ops; NotImplementedError unless overridden."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def backward(self, *inputs: object) -> NoReturn:
        """Raise ValueError: gradients are recorded by `append_backward`."""
        raise ValueError("Layer shouldn't implement backward")

    def _build_once(self, *inputs: object, **kwargs: object) -> None:
        """Create what depends on the first inputs; called before the first `forward`."""

    def __call__(self, *inputs: object, **kwargs: object) -> Any:
        """Append the layer's ops to the current program; return its output, as modified by
        hooks.
        """
        return self.call_forward(self.forward, *inputs, **kwargs)

    def call_forward(
        self, forward: Callable[..., object], /, *inputs: object, **kwargs: object
    ) -> object:
        """Call the layer with another function in place of its `forward`."""
        for hook in self._forward_pre_hooks.values():
            changed = hook(self, inputs)
            if changed is not None:
                several = isinstance(changed, tuple)
                inputs = cast(tuple[object, ...], changed) if several else (changed,)
        if not self._built:
            self._build_once(*inputs, **kwargs)
            self._built = True
        outputs = forward(*inputs, **kwargs)
        for hook in self._forward_post_hooks.values():
            changed = hook(self, inputs, outputs)
            outputs = outputs if changed is None else changed
        return outputs

    def register_forward_pre_hook(self, hook: Hook) -> HookRemoveHelper:
        """Register `hook(layer, inputs)`, called before `forward`; it may return new inputs."""
        return HookRemoveHelper(self._forward_pre_hooks, hook)

    def register_forward_post_hook(self, hook: Hook) -> HookRemoveHelper:
        """Register `hook(layer, inputs, outputs)`, called after `forward`; it may return new
        outputs.
        """
        return HookRemoveHelper(self._forward_post_hooks, hook)

    def train(self) -> None:
        """Switch this layer and its sublayers to training mode."""
        self._set_training(True)

    def eval(self) -> None:
        """Switch this layer and its sublayers to inference mode."""
        self._set_training(False)

    def _set_training(self, training: bool) -> None:
        program = default_main_program()
        if program.is_eager:
            program.trains = training
        for layer in (self, *self.sublayers()):
            vars(layer)["training"] = training

    def clear_gradients(self) -> None:
        """Set the gradients of its trainable parameters to zero (eager mode)."""
        for param in self.parameters():
            if param.trainable:
                param.clear_gradient()

    def set_dict(
        self,
        stat_dict: Mapping[str, object],
        include_sublayers: bool = True,
        use_structured_name: bool = True,
    ) -> None:
        """Set its parameters to the arrays or variables of a `state_dict` (eager mode).

        Keys are those of `state_dict`, or the parameters' names unless `use_structured_name`.
        Raises RuntimeError for a parameter that is missing; warns about keys that are not used.
        """
        state = self.state_dict()
        for name, param in state.items():
            key = name if use_structured_name else param.name
            if key not in stat_dict:
                raise RuntimeError(
                    f"Parameter not found, Can't not find [ {key} ] in stat_dict, which has "
                    f"{', '.join(map(str, list(stat_dict)[:5])) or 'none'}; "
                    f"use_structured_name is set to [{use_structured_name}]"
                )
            param.set_value(stat_dict[key])
        names = state if use_structured_name else {param.name for param in state.values()}
        unused = [key for key in stat_dict if key not in names]
        if unused:
            warnings.warn(
                f"Varibale [ {' '.join(unused)} ] are not used, because not included in layers "
                "state_dict",
                stacklevel=2,
            )

    load_dict = set_dict

    # ---- parameters and variables

    def create_parameter(
        self,
        shape: Sequence[int],
        attr: ParamAttrLike = None,
        dtype: DTypeLike = "float32",
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Variable | None:
        """Create a parameter of the layer in both programs; None if `attr` is False."""
        attr = None if isinstance(attr, str) and not attr else copy.deepcopy(attr)
        return self._helper.create_parameter(attr, shape, dtype, is_bias, default_initializer)

    def create_variable(
        self,
        name: str | None = None,
        persistable: bool | None = None,
        dtype: DTypeLike | None = None,
        type: int = VarType.LOD_TENSOR,
    ) -> Variable:
        """Create a variable in the current block, named after the layer."""
        whole = f"{self._full_name}.{name}" if name is not None else None
        if whole is None:
            whole = unique_name.generate(f"{self._full_name}._generated_var")
        return self._helper.create_variable(
            name=whole, persistable=persistable, dtype=dtype, type=type
        )

    def parameters(self, include_sublayers: bool = True) -> list[Parameter]:
        """Return its parameters and those of its sublayers."""
        return [param for _, param in self.named_parameters("", include_sublayers)]

    def named_parameters(
        self, prefix: str = "", include_sublayers: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield each parameter once, with its qualified name: `linear.weight`."""
        seen: set[int] = set()
        for path, layer in self.named_sublayers(prefix, include_sublayers, include_self=True):
            for key, param in layer._parameters.items():
                if param is not None and id(param) not in seen:
                    seen.add(id(param))
                    yield (f"{path}.{key}" if path else key), param

    def sublayers(self, include_sublayers: bool = True) -> list[Layer]:
        """Return its sublayers, recursively."""
        return [layer for _, layer in self.named_sublayers("", include_sublayers)]

    def named_sublayers(
        self,
        prefix: str = "",
        include_sublayers: bool = True,
        include_self: bool = False,
        layers_set: set[Layer] | None = None,
    ) -> Iterator[tuple[str, Layer]]:
        """Yield each sublayer once, with its qualified name: `block.conv`."""
        seen: set[Layer] = set() if layers_set is None else layers_set
        if include_self and self not in seen:
            seen.add(self)
            yield prefix, self
        for key, layer in self._sub_layers.items() if include_sublayers else ():
            if layer is not None:
                path = f"{prefix}.{key}" if prefix else key
                yield from layer.named_sublayers(path, True, True, seen)

    def state_dict(
        self,
        destination: MutableMapping[str, Parameter] | None = None,
        include_sublayers: bool = True,
        structured_name_prefix: str = "",
    ) -> MutableMapping[str, Parameter]:
        """Return its parameters by qualified name, added to `destination`."""
        params: MutableMapping[str, Parameter] = {} if destination is None else destination
        for key, param in self._parameters.items():
            if param is not None:
                params[structured_name_prefix + key] = param
        for key, layer in self._sub_layers.items() if include_sublayers else ():
            if layer is not None:
                layer.state_dict(params, True, f"{structured_name_prefix}{key}.")
        return params

    def add_sublayer(self, name: str, sublayer: Layer) -> Layer:
        """Register a sublayer under a name; AssertionError for anything but a Layer."""
        expect_instance(sublayer, Layer, f"{name!r} must be a Layer, not {sublayer!r:.60}")
        self._sub_layers[name] = sublayer
        return sublayer

    def add_parameter(self, name: str, parameter: Parameter | None) -> Parameter | None:
        """Register a parameter, or None, under a name; TypeError for anything else."""
        _expect(parameter, Parameter, name)
        self._parameters[name] = parameter
        return parameter

    # ---- attributes

    def __getattr__(self, name: str) -> Any:
        own = vars(self)
        for members in (own.get("_parameters"), own.get("_sub_layers")):
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        for field, kind in (("_parameters", Parameter), ("_sub_layers", Layer)):
            members: dict[str, object] | None = vars(self).get(field)
            if isinstance(value, kind) and members is None:
                raise ValueError("super(YourLayer, self).__init__() should be called first")
            if isinstance(value, kind) or name in (members or ()):
                _expect(value, kind, name)
                if name not in (members or ()):  # otherwise it keeps its place in the order
                    self._remove_attribute(name)
                vars(self)[field][name] = value
                return
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if not self._remove_attribute(name):
            object.__delattr__(self, name)

    def _remove_attribute(self, name: str) -> bool:
        """Remove an attribute of any kind; return whether it existed."""
        holders = (vars(self), self._parameters, self._sub_layers)
        holders_of_name = [holder for holder in holders if name in holder]
        for holder in holders_of_name:
            del holder[name]
        return bool(holders_of_name)


def _snake_case(name: str) -> str:
    """Convert a name to snake case: `Conv2DTranspose` to `conv2d_transpose`."""
    words = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", words).lower()


def expect_instance(value: object, kind: type, message: str) -> None:
    """Raise AssertionError with this message unless a value is an instance of `kind`."""
    assert isinstance(value, kind), message


def _expect(value: object, kind: type, name: str) -> None:
    if value is not None and not isinstance(value, kind):
        kind_name = type(value).__name__
        raise TypeError(
            f"{name!r} should be of type {kind.__name__} or None, but got {kind_name!r}"
        )
