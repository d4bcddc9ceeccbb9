"""Every instruction from registers to a register beside the scalar model."""

import pytest

from tests.ptx.disagreements import BY_THREAD, marked
from tests.ptx.forms import Form
from tests.ptx.listed import FORMS
from tests.ptx.runner import disagreements


@pytest.mark.parametrize("form", marked(FORMS, BY_THREAD))
def test_results(form: Form) -> None:
    found = disagreements(form)
    assert not found, "\n".join([f"{len(found)} operands", *found[:12]])
