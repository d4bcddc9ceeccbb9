"""`core.from_dlpack` and `_to_dlpack` of tensors."""

import numpy as np
import pytest

import fluid


def test_a_capsule_becomes_a_tensor() -> None:
    tensor = fluid.LoDTensor(np.arange(6).reshape(2, 3))
    copy = fluid.core.from_dlpack(tensor._to_dlpack())
    assert np.array(copy).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(TypeError, match="takes a DLPack capsule, not ndarray"):
        fluid.core.from_dlpack(np.ones(2))
