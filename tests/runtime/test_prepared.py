"""Prepared arrays: computed when their state changed, always if nobody would notice, shared."""

import gc

import numpy as np
import pytest

from compiler.support.shared_arrays import SharedArrays
from runtime.prepared import PreparedArrays, StatefulCode
from runtime.tensors.contents import Clock


class FakeCode:
    """Native code whose only kernel doubles; `ran` lists the kernels as they run."""

    def __init__(self):
        self.ran = []

    def feed(self, index, dtype):
        return index, dtype

    number = repeat = at = columns = most = indices = offsets = expect_at_most = None

    def call(self, kernel, arguments, units):
        self([(kernel, arguments, units)])()

    def __call__(self, commands):
        def run():
            for kernel, (*inputs, out), _ in commands:
                np.copyto(out, 2 * sum(inputs))
                self.ran.append(kernel)

        return run


class State:
    """Watched state; `version` is set by the test."""

    def __init__(self, version=1):
        self.version = version


class Bed:
    """Code over states by name, and bindings of it."""

    def __init__(self, **states):
        self.states, self.clock, self.fake = states, Clock(), FakeCode()
        self.arrays = {name: np.ones(3, "f4") for name in states}
        self.code = StatefulCode(self.fake, self.states.get, self.clock)

    def bind(self, *names, watched=True) -> tuple[np.ndarray, PreparedArrays]:
        inputs = tuple(self.arrays[name] for name in names)
        return self.code.bind(
            lambda: self.code.prepared("k", inputs, 1, (3,), "float32", names if watched else ())
        )

    def change(self, name, version, value):
        self.arrays[name][:] = value
        self.states[name].version = version
        self.clock.contents += 1


def test_constants_are_computed_at_binding_and_once():
    bed = Bed(w=State())
    out, prepared = bed.bind("w", watched=False)
    assert out.tolist() == [2, 2, 2] and not prepared.is_watching
    bed.change("w", 2, 5)
    again, _ = bed.bind("w", watched=False)
    assert again is out and bed.fake.ran == ["k"]


def test_watched_state_is_used_when_it_changed():
    bed = Bed(w=State(), other=State())
    out, prepared = bed.bind("w")
    assert prepared.is_watching and prepared.nbytes == 12
    for _ in range(3):
        prepared.refresh()
    assert out.tolist() == [2, 2, 2] and bed.fake.ran == ["k"]
    bed.change("w", 2, 5)
    prepared.refresh()
    assert out.tolist() == [10, 10, 10] and bed.fake.ran == ["k", "k"]
    bed.change("other", 2, 5)
    prepared.refresh()
    assert bed.fake.ran == ["k", "k"]


def test_state_whose_changes_go_unnoticed_is_used_every_time():
    bed = Bed(w=State(), hidden=State(None))
    out, prepared = bed.bind("w", "hidden")
    for value in range(3):
        bed.arrays["hidden"][:] = value
        prepared.refresh()
        assert out.tolist() == [2 + 2 * value] * 3
    bed.change("hidden", 7, 1)
    for _ in range(3):
        prepared.refresh()
    assert len(bed.fake.ran) == 4


def test_state_in_a_plain_mapping_is_used_every_time():
    bed = Bed(w=None)
    out, prepared = bed.bind("w")
    for value in range(3):
        bed.arrays["w"][:] = value
        prepared.refresh()
        assert out.tolist() == [2 * value] * 3


def test_bindings_share_prepared_arrays():
    bed = Bed(w=State())
    (out, first), (same, second) = bed.bind("w"), bed.bind("w")
    first.refresh()
    second.refresh()
    assert same is out and bed.fake.ran == ["k"]
    bed.change("w", 2, 5)
    second.refresh()
    first.refresh()
    assert out.tolist() == [10, 10, 10] and bed.fake.ran == ["k", "k"]


def test_other_arrays_and_other_states_are_not_mixed_up():
    bed = Bed(w=State())
    out, first = bed.bind("w")
    bed.arrays["w"] = np.full(3, 4, "f4")
    other, second = bed.bind("w")
    first.refresh()
    second.refresh()
    assert (out.tolist(), other.tolist()) == ([2, 2, 2], [8, 8, 8])
    assert second.are_made_of(bed.states.get)
    bed.states["w"] = State()
    assert not second.are_made_of(bed.states.get)
    assert bed.bind("w")[0] is not other


def test_nothing_is_kept_for_bindings_that_are_gone():
    bed = Bed(w=State())
    bound = bed.bind("w")
    bound[1].refresh()
    del bound
    gc.collect()
    assert not bed.code._known


def test_a_failed_computation_is_tried_again():
    bed = Bed(w=State())
    out, prepared = bed.bind("w")
    prepared.refresh()
    bed.change("w", 2, 5)
    compute, bed.fake.ran = bed.fake.ran, None
    with pytest.raises(AttributeError):
        prepared.refresh()
    bed.fake.ran = compute
    prepared.refresh()
    assert out.tolist() == [10, 10, 10] and bed.fake.ran == ["k", "k"]


def test_sequences_feeds_and_calls_are_those_of_the_code():
    bed = Bed()
    x, out = np.ones(3, "f4"), np.empty(3, "f4")
    bed.code([("a", (x, out), 1)])()
    bed.code.call("b", (x, out), 1)
    assert bed.fake.ran == ["a", "b"] and bed.code.feed(1, "f") == (1, "f")


def made_of_constants(shared, arrays):
    """Bind an array of `w`, and one made of that; returns both, and the kernels that ran."""
    fake = FakeCode()
    code = StatefulCode(fake, {}.get, Clock(), shared)

    def make():
        first = code.prepared("k", (arrays["w"],), 1, (3,), "float32")
        return first, code.prepared("k2", (first,), 1, (3,), "float32")

    return (*code.bind(make, arrays)[0], fake.ran)


def test_executables_share_prepared_constants():
    kept = []
    shared = SharedArrays(keep=kept.append)
    arrays = {"w": np.ones(3, "f4")}
    first, second, ran = made_of_constants(shared, arrays)
    assert (second.tolist(), ran) == ([4, 4, 4], ["k", "k2"])
    again, same, ran = made_of_constants(shared, arrays)
    assert again is first and same is second and ran == []
    assert [list(each.values()) for each in kept] == [[first, second]]


def test_arrays_of_an_earlier_process_are_used_if_they_fit():
    kept = []
    made_of_constants(SharedArrays(keep=kept.append), {"w": np.ones(3, "f4")})
    (stored,) = kept
    arrays = {"w": np.full(3, np.nan, "f4")}  # it is not read
    assert made_of_constants(SharedArrays(stored), arrays)[1].tolist() == [4, 4, 4]
    misfits = {text: array.reshape(3, 1) for text, array in stored.items()}
    assert made_of_constants(SharedArrays(misfits), {"w": np.ones(3, "f4")})[2] == ["k", "k2"]


def test_arrays_of_later_sizes_are_not_kept():
    shared = SharedArrays()
    made_of_constants(shared, {"w": np.ones(3, "f4")})
    made_of_constants(shared, {"w": np.ones(3, "f4"), "v": np.ones(3, "f4")})
    shared.add({"other": np.ones(2)})
    assert shared.find("other") is None
