"""Names and attribute values come back from their text, and nothing in it is ever run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import CompileError, ParseError
from compiler.ir.graph import Graph
from compiler.ir.model_format.attributes import Opaque
from compiler.ir.model_format.protobuf import build
from compiler.ir.program import BlockRef
from compiler.ir.text.literals import name_text, parse_attributes, parse_name, value_text
from compiler.ir.text.printer import parse, same, show
from compiler.ir.types import DType, TensorType

SCALED = "graph g {\n  feed x: f32[3]\n  (Out=y: f32[3]) = scale(X=x) {}\n}\n"


@given(st.text())
def test_names_come_back(name: str):
    assert parse_name(name_text(name)) == name
    g = Graph(name)
    g.feed(name, TensorType(DType.FP32, (1,)))
    assert same(parse(show(g)), g)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.builds(BlockRef, st.integers(0, 99)),
    lambda items: st.lists(items, max_size=4) | st.tuples(items) | st.tuples(items, items),
    max_leaves=8,
)


@given(VALUES)
def test_attribute_values_come_back(value):
    again = parse_attributes(f"{{'a': {value_text(value)}}}")["a"]
    assert value_text(again) == value_text(value)
    assert type(again) is type(value)


@given(st.floats(width=32, allow_nan=False))
def test_float32_values_stay_exact(value: float):
    assert parse_attributes(f"{{'a': {value_text(np.float32(value))}}}")["a"] == value


def test_attributes_of_later_releases_come_back():
    later = Opaque(build("OpDesc.Attr", name="axes", type=15))
    assert parse_attributes(f"{{'axes': {value_text(later)}}}") == {"axes": later}


@pytest.mark.parametrize("value", [{1}, {"a": 1}, b"bytes", 1j, object, np.zeros(2)])
def test_what_is_no_attribute_is_rejected(value):
    with pytest.raises(CompileError, match="cannot be an attribute"):
        value_text(value)


REFUSED = [
    "{'a': f(1)}", "{'a': x}", "{'a': 1 + 2}", "{'a': (lambda: 1)}", "{'a': {1: 2}}", "{'a': 1j}",
    "{'a': b'x'}", "{'a': --1}", "{'a': -True}", "{1: 2}", "{**{}}", "[1]", "{'a': 1, 'a': 2}",
    "{'a': block('x')}", "{'a': block(1, 2)}", "{'a': opaque('zz')}", "{'a': opaque('ff')}",
    "{'a': " + "[" * 300 + "]" * 300 + "}", "{'a': " + "-" * 20_000 + "1}", "{'a': '\0'}",
    "{'a': " + "9" * 5_000 + "}",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_attribute_text_is_never_run(text: str):
    with pytest.raises(ValueError, match=r"."):
        parse_attributes(text)
    with pytest.raises(ParseError):
        parse(SCALED.replace("{}", text))
