"""Variables are distributed over servers: round-robin, or by name."""

from collections import Counter

import pytest

import fluid
from fluid.transpiler import HashName, RoundRobin
from fluid.transpiler.ps_dispatcher import PSDispatcher

SERVERS = ["127.0.0.1:6007", "127.0.0.1:6008", "127.0.0.1:6009"]


def test_turns_continue_until_they_are_reset() -> None:
    turns = RoundRobin(SERVERS)
    assert turns.dispatch(["v1", "v2", "v3", "v4", "v5"]) == [*SERVERS, *SERVERS[:2]]
    assert turns.dispatch(["v6"]) == SERVERS[2:]
    turns.reset()
    assert turns.dispatch(["v6"]) == SERVERS[:1]
    assert turns.eps == SERVERS


def test_names_are_equal_everywhere(fresh_programs: object) -> None:
    names = [f"fc_{number}.w_0" for number in range(300)]
    result = HashName(SERVERS).dispatch(names)
    assert result[:6] == [SERVERS[number] for number in (2, 1, 1, 0, 2, 0)]
    assert min(Counter(result).values()) > 60
    variable = fluid.data("fc_3.w_0", [None, 2], "float32")
    gradients = ["fc_3.w_0@GRAD", variable, "fc_3.w_0@GRAD.block0", "fc_3.w_0.block0"]
    first, second, third, fourth = HashName(SERVERS).dispatch(gradients)
    assert (first, third) == (second, fourth) and first == result[3]


@pytest.mark.parametrize("kind", [RoundRobin, HashName])
def test_there_must_be_endpoints(kind: type[PSDispatcher]) -> None:
    with pytest.raises(IndexError, match="has no endpoints"):
        kind([]).dispatch(["w"])


def test_how_is_for_subclasses_to_define() -> None:
    with pytest.raises(NotImplementedError, match="PSDispatcher does not say"):
        PSDispatcher(SERVERS).dispatch(["w"])


def test_names_may_be_methods() -> None:
    class Described:
        def name(self) -> str:
            return "fc_3.w_0"

    assert HashName(SERVERS).dispatch([Described()]) == HashName(SERVERS).dispatch(["fc_3.w_0"])
