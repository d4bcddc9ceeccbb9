"""Steps check LoD offsets before they read them, wherever they come from, on every host target."""

import numpy as np
import pytest

import runtime
from compiler.codegen.module import Module
from compiler.driver import compile_graph
from compiler.ir.text.printer import parse
from runtime.errors import StepError

TARGETS = ("numpy", "native")
ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)
WRONG = {
    (1, 2, 5): "start at 1",
    (-(2**62), 2, 5): "start at -4611686018427387904",
    (0, 2, 6): "end at 6",
    (0, 2, 2**40): "end at 1099511627776",
    (0, 2, 4): "end at 4",
    (0, 6, 5): "fall from 6 to 5 at index 2",
    (0, -(2**63), 5): "fall from 0 to -9223372036854775808 at index 1",
}
POOL = "(Out=y: f32[2, 3]) = sequence_pool(X=x, X_lod=[o]) {'pooltype': 'SUM'}  // model.py:7"
GRAPHS = {
    "a feed": f"""
graph main {{
  feed x: f32[R, 3]
  feed o: i64[3]
  {POOL}
  return y
}}
""",
    "the result of an op": f"""
graph main {{
  feed x: f32[R, 3]
  feed f: i32[3]
  (Out=o: i64[3]) = cast(X=f) {{'in_dtype': 2, 'out_dtype': 3}}
  {POOL}
  return y
}}
""",
    "state": f"""
graph main {{
  feed x: f32[R, 3]
  param o: i64[3]
  {POOL}
  return y
}}
""",
    "a feed read in a branch": """
graph main {
  feed x: f32[R, 3]
  feed o: i64[3]
  (Out=c: bool[1]) = fill_constant() {'shape': [1], 'value': 1.0, 'dtype': 0}
  (Out=y: f32[2, 3]) = fill_constant() {'shape': [2, 3], 'value': 0.0, 'dtype': 5}
  (Written=[y#1: f32[2, 3] over y]) = if(Cond=[c], Captured=[y, x, o]) graph branch {
    feed y: f32[2, 3]
    feed x: f32[R, 3]
    feed o: i64[3]
    (Out=p: f32[2, 3]) = sequence_pool(X=x, X_lod=[o]) {'pooltype': 'SUM'}  // model.py:7
    return p
  }
  return y#1
}
""",
}


def compiled(text: str, target: str) -> Module:
    return compile_graph(parse(text), target=target).module


def outcome(text: str, target: str, offsets: object) -> np.ndarray:
    """The result of a graph with these offsets as feed, feed of an op, or state."""
    feed = {"x": ROWS, "o": np.array(offsets), "f": np.array(offsets).astype(np.int32)}
    return runtime.load(compiled(text, target), params={"o": feed["o"]})(feed)[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", GRAPHS)
def test_wrong_offsets_raise_an_error_that_names_them(source: str, target: str) -> None:
    np.testing.assert_array_equal(
        outcome(GRAPHS[source], target, [0, 2, 5]), np.add.reduceat(ROWS, [0, 2])
    )
    for offsets, fault in WRONG.items():
        if source == "the result of an op" and abs(max(offsets, key=abs)) > 2**31:
            continue
        with pytest.raises(StepError) as error:
            outcome(GRAPHS[source], target, offsets)
        assert f"sequence_pool: the LoD offsets 'o' {fault}: expected" in str(error.value)
        assert "end at 5, the number of rows of 'x'" in str(error.value)
        assert "model.py:7" in str(error.value)


NESTED = """
graph main {
  feed x: f32[5, 3]
  feed outer: i64[3]
  feed inner: i64[4]
  (Out=p: f32[3, 3], Out_lod=[l: i64[3]]) = sequence_pool(X=x, X_lod=[outer, inner]) {'pooltype': 'SUM'}
  (Out=y: f32[2, 3]) = sequence_pool(X=p, X_lod=[l]) {'pooltype': 'SUM'}
  return y
}
"""  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_outer_levels_end_at_the_number_of_inner_sequences(target: str) -> None:
    run = runtime.load(compiled(NESTED, target))
    inner = np.array([0, 1, 3, 5])
    run({"x": ROWS, "outer": np.array([0, 1, 3]), "inner": inner})
    with pytest.raises(StepError, match=r"'outer' end at 4: .* sequences of 'inner'"):
        run({"x": ROWS, "outer": np.array([0, 1, 4]), "inner": inner})


TWO_VALUES = """
graph main {
  feed x: f32[5, 3]
  feed z: f32[4, 3]
  feed o: i64[3]
  (Out=y: f32[2, 3]) = sequence_pool(X=x, X_lod=[o]) {'pooltype': 'SUM'}
  (Out=u: f32[2, 3]) = sequence_pool(X=z, X_lod=[o]) {'pooltype': 'SUM'}
  return y, u
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_are_checked_for_each_number_of_rows(target: str) -> None:
    run = runtime.load(compiled(TWO_VALUES, target))
    with pytest.raises(StepError, match=r"'o' end at 5: .* rows of 'z'"):
        run({"x": ROWS, "z": ROWS[:4], "o": np.array([0, 1, 5])})


OVERWRITTEN = """
graph main {
  feed x: f32[5, 3]
  feed n: i64[3]
  param o: i64[3]
  (Out=y: f32[2, 3]) = sequence_pool(X=x, X_lod=[o]) {'pooltype': 'SUM'}
  (Out=o#1: i64[3] over o) = assign(X=n)
  (Out=u: f32[2, 3]) = sequence_pool(X=x, X_lod=[o#1]) {'pooltype': 'SUM'}
  return y, u
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_are_checked_again_once_they_are_overwritten(target: str) -> None:
    run = runtime.load(compiled(OVERWRITTEN, target), params={"o": np.array([0, 1, 5])})
    with pytest.raises(StepError, match="'o#1' end at 9"):
        run({"x": ROWS, "n": np.array([0, 1, 9])})


@pytest.mark.parametrize("target", TARGETS)
def test_derived_and_repeated_offsets_are_not_checked_again(target: str) -> None:
    source = compiled(NESTED, target).source
    assert source.partition("def bind")[2].count("    expect_offsets(") == 2


def test_fed_offsets_that_change_in_place_are_checked_again() -> None:
    run = runtime.load(compiled(GRAPHS["a feed"], "native"))
    offsets = np.array([0, 2, 5])
    run({"x": ROWS, "o": offsets})
    offsets[1] = -1
    with pytest.raises(StepError):
        run({"x": ROWS, "o": offsets})
    offsets[1] = 3
    np.testing.assert_array_equal(run({"x": ROWS, "o": offsets})[0], np.add.reduceat(ROWS, [0, 3]))


def test_equal_fed_offsets_are_valid_for_the_rows_they_were_checked_with() -> None:
    run = runtime.load(compiled(GRAPHS["a feed"], "native"))
    run({"x": ROWS, "o": np.array([0, 2, 5])})
    with pytest.raises(StepError, match=r"end at 5: expected .* end at 4"):
        run({"x": ROWS[:4], "o": np.array([0, 2, 5])})


EARLY = """
graph main {
  feed h: i64[R, 1]
  feed r: i64[S, 1]
  feed f: i32[3]
  feed g: i64[3]
  (Out=o: i64[3]) = cast(X=f) {'in_dtype': 2, 'out_dtype': 3}
  (SequenceNum=n: i64[1], Out=y: f32[2, 1]) = edit_distance(Hyps=h, Refs=r, Hyps_lod=[o], Refs_lod=[g])  // model.py:7
  return y
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_distances_read_what_a_decoder_leaves_of_blanks_only(target: str) -> None:
    """`ctc_align` gives a single -1 without a sequence then, as release 1.8.5 does."""
    run = runtime.load(compiled(EARLY, target))
    feed = {"h": np.array([[-1]]), "r": np.array([[1], [2], [1]]), "g": np.array([0, 1, 3])}
    assert run(feed | {"f": np.zeros(3, np.int32)})[0].tolist() == [[1.0], [2.0]]
    for wrong, fault in [((0, 0, 2), "end at 2"), ((0, 1, 0), "fall from 1 to 0")]:
        with pytest.raises(StepError, match=fault):
            run(feed | {"f": np.array(wrong, np.int32)})
