"""Native kernels give the same numbers where sizes are beyond every threshold.

The samples of test_native.py again, with each threshold as small as tests lower it: their arrays are
then divided among units and parts, packed, and read in blocks, as large ones are.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from compiler.codegen.native.host import detected
from compiler.support.thresholds import all_thresholds, lowered
from tests.ops.compiled_samples import Compiled
from tests.ops.samples import Sample
from tests.ops.test_generated import backward, forward
from tests.ops.test_native import BACKWARD, FORWARD, TARGET

pytestmark = pytest.mark.skipif(detected() is None, reason="no native code for this CPU")

ONCE = Compiled(TARGET, once=True)


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    """Lower every threshold."""
    with lowered({name: threshold.small for name, threshold in all_thresholds().items()}):
        yield


def again(parameter: Any) -> object:
    """A sample as a parameter; of images, those with channels last are for the fast tests too."""
    (sample,) = parameter.values
    layouts = {sample.attrs.get(name, "") for name in ("data_format", "data_layout")}
    marks = () if layouts & {"NHWC", "NDHWC"} else parameter.marks
    return pytest.param(sample, id=sample.op, marks=marks)


@pytest.mark.parametrize("sample", [*map(again, FORWARD)])
def test_forward(sample: Sample) -> None:
    ONCE.check(forward(sample), sample)


@pytest.mark.parametrize("sample", [*map(again, BACKWARD)])
def test_backward(sample: Sample) -> None:
    ONCE.check(backward(sample), sample)
