"""`FleetUtil`: messages of worker 0, zeros, the area under the curve over workers."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import fluid
from fleet import collective
from fleet.fleet_util import FleetUtil, area
from fleet.roles.user_defined import UserDefinedCollectiveRoleMaker
from tests.fleet import programs


@pytest.fixture
def util() -> FleetUtil:
    collective.fleet.init(UserDefinedCollectiveRoleMaker(0, programs.endpoints(1)))
    return FleetUtil("collective")


def test_modes() -> None:
    with pytest.raises(ValueError, match="mode must be one of transpiler, collective"):
        FleetUtil("other")
    with pytest.raises(NotImplementedError, match="no PSLIB here"):
        FleetUtil("pslib")


def test_worker_0_speaks(
    util: FleetUtil, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        util.rank0_print("printed")
        util.rank0_info("info")
        util.rank0_error("error")
    assert capsys.readouterr().out == "printed\n"
    assert {"info", "error"} <= set(caplog.messages)


def test_area_and_zeros(util: FleetUtil, capsys: pytest.CaptureFixture[str]) -> None:
    scope = fluid.Scope()
    assert util.get_global_auc(scope) is None
    positive, negative = np.array([[0, 1, 3]]), np.array([[4, 1, 0]])
    for name, counts in (("p", positive), ("n", negative)):
        scope.var(name).get_tensor().set(counts, fluid.CPUPlace())
    assert util.get_global_auc(scope, "p", "n") == pytest.approx((4 * 4 + 3 + 0.5) / 20)
    util.print_global_auc(scope, "p", "n", "day 1")
    assert "day 1 global auc = 0.97" in capsys.readouterr().out
    util.set_zero("p", scope)
    assert np.array(scope.find_var("p").get_tensor()).tolist() == [[0, 0, 0]]
    assert util.get_global_auc(scope, "p", "n") == 0.5 and area(np.array([]), np.array([])) == 0.5
