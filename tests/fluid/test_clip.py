"""Gradient clips of scripts, by the two methods that release 1.8.5 calls."""

import numpy as np
import pytest

import fluid
from fluid.clip import GradientClipBase, GradientClipByGlobalNorm, set_gradient_clip


class MeanClip(GradientClipBase):
    """Divides each gradient by the number of gradients."""

    def _process_context(self, context, param, grad):
        self.noted = context.setdefault("names", [])
        self.noted.append(param.name)

    def _create_operators(self, param, grad):
        return param, fluid.layers.scale(grad, 1.0 / len(self.noted))


def test_a_clip_of_a_script_is_called_for_each_gradient(fresh_programs, exe):
    x = fluid.data("x", [2, 3])
    weight = fluid.ParamAttr("w", initializer=fluid.initializer.Constant(1.0))
    loss = fluid.layers.reduce_sum(fluid.layers.fc(x, 1, param_attr=weight))
    clip = MeanClip()
    set_gradient_clip(clip)
    fluid.optimizer.SGD(1.0).minimize(loss)
    exe.run(fluid.default_startup_program())
    exe.run(feed={"x": np.ones((2, 3), "float32")})
    assert sorted(clip.noted) == ["fc_0.b_0", "w"]
    np.testing.assert_allclose(fluid.executor.fetch_var("w"), 0.0)
    block = fluid.default_main_program().global_block()
    roles = [op.attr("op_role_var")[0] for op in block.ops if op.type == "scale"]
    assert sorted(roles) == ["fc_0.b_0", "w"]


def test_a_global_norm_is_that_of_the_gradients_noted_before(fresh_programs, exe):
    x = fluid.data("x", [2, 3])
    loss = fluid.layers.mean(fluid.layers.fc(x, 2))
    pairs = fluid.backward.append_backward(loss)
    clip, context = GradientClipByGlobalNorm(0.1), {}
    for param, grad in pairs:
        clip._process_context(context=context, param=param, grad=grad)
    clipped = [clip._create_operators(param=param, grad=grad)[1] for param, grad in pairs]
    exe.run(fluid.default_startup_program())
    values = exe.run(feed={"x": np.ones((2, 3), "float32")}, fetch_list=clipped)
    assert sum(float((value**2).sum()) for value in values) == pytest.approx(0.01, rel=1e-5)
    types = [op.type for op in fluid.default_main_program().global_block().ops]
    assert types.count("elementwise_div") == 1
    with pytest.raises(ValueError, match="should have one 'clip_norm'"):
        GradientClipByGlobalNorm(0.2)._process_context(context, *pairs[0])
