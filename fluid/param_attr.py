"""Parameter attributes: name, initializer, learning rate, regularizer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Annotated, Literal, TypeAlias, TypedDict
from weakref import WeakValueDictionary

from fluid.initializer import Initializer
from fluid.recording.arguments import UNCHECKED, typed
from fluid.recording.narrowing import is_sequence
from fluid.recording.variable import Variable
from fluid.regularizer import WeightDecayRegularizer

__all__ = ["ParamAttr", "ParamAttrLike", "WeightNormParamAttr"]


class ParamAttrFields(TypedDict):
    """The arguments of a parameter that its attributes decide."""

    name: str | None
    optimize_attr: dict[str, float | Variable]
    regularizer: WeightDecayRegularizer | None
    trainable: bool
    do_model_average: bool


class ParamAttr:
    """The attributes of a parameter.

    `learning_rate` is a factor on the optimizer's; `regularizer` overrides the optimizer's. Raises
    TypeError or ValueError for an invalid argument.
    """

    @typed
    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = True,
    ) -> None:
        if name == "":
            raise ValueError("name of ParamAttr can not be empty str")
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.do_model_average = do_model_average

    @staticmethod
    def to_attr(arg: object) -> OneAttr | list[OneAttr]:
        """Convert a layer's `param_attr` to a ParamAttr, a list of them, or False for none.

        A string is a name; an initializer or a regularizer becomes an attribute; None and True mean
        the defaults. Raises TypeError for anything else.
        """
        return [_to_one(item) for item in arg] if is_sequence(arg) else _to_one(arg)

    def to_kwargs(self) -> ParamAttrFields:
        """Return the arguments for `Block.create_parameter`, except the initializer."""
        return {
            "name": self.name,
            "optimize_attr": {"learning_rate": self.learning_rate},
            "regularizer": self.regularizer,
            "trainable": self.trainable,
            "do_model_average": self.do_model_average,
        }

    def _to_kwargs(self, with_initializer: bool = False) -> dict[str, object]:
        return self.to_kwargs() | ({"initializer": self.initializer} if with_initializer else {})

    _to_attr = to_attr


OneAttr: TypeAlias = ParamAttr | Literal[False]
"""The attributes of one parameter, or False for no parameter."""


def _to_one(arg: object) -> OneAttr:
    if isinstance(arg, ParamAttr):
        return arg
    if arg is None or isinstance(arg, bool):
        return False if arg is False else ParamAttr()
    if isinstance(arg, str):
        return ParamAttr(name=arg)
    if isinstance(arg, Initializer):
        return ParamAttr(initializer=arg)
    if isinstance(arg, WeightDecayRegularizer):
        return ParamAttr(regularizer=arg)
    raise TypeError(f"{type(arg).__name__} can not be cast to ParamAttr")


class _Weights:
    """A list of weights in order of creation, held while their programs are alive."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, Variable] = WeakValueDictionary()
        self._numbers = count()

    def add(self, weight: Variable) -> None:
        """Add a weight."""
        self._known[next(self._numbers)] = weight

    def __get__(self, instance: object, owner: type | None = None) -> list[Variable]:
        return [weight for _, weight in sorted(self._known.items(), key=lambda each: each[0])]


normalized_weights = _Weights()
"""The weights created by `create_normalized_weight`."""


class WeightNormParamAttr(ParamAttr):
    """The attributes of a weight `g * v / |v|`, whose parameters are `<name>_g` and `<name>_v`.

    Norms are taken over all axes but `dim`, or over all if it is None: `dim` is the output axis, 1
    for `fc` and 0 for `conv2d`. `params_with_weight_norm` lists the weights of all programs.
    """

    params_with_weight_norm = normalized_weights

    @typed
    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = False,
    ) -> None:
        rest = (learning_rate, regularizer, trainable, do_model_average)
        super().__init__(name, initializer, *rest)
        self.dim = dim


OneParamAttr: TypeAlias = ParamAttr | Initializer | WeightDecayRegularizer | str | bool | None
"""The attributes of one parameter, its initializer, regularizer or name; False for no parameter."""

ParamAttrLike: TypeAlias = Annotated[OneParamAttr | Sequence[OneParamAttr], UNCHECKED]
"""The `param_attr` or `bias_attr` of a layer: one for all its parameters, or a list."""
