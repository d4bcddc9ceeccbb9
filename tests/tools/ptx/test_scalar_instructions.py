"""Every instruction from registers to a register beside the scalar model."""

import pytest

from tests.tools.ptx.forms import Form
from tests.tools.ptx.listed import FORMS, label
from tests.tools.ptx.runner import disagreements


@pytest.mark.parametrize("form", FORMS, ids=label)
def test_results(form: Form) -> None:
    result = disagreements(form)
    assert not result, "\n".join([f"{len(result)} operands", *result[:12]])
