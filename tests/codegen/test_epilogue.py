"""Kernels that begin with a product: the tail works in place, in memory the head may write."""

import pytest

from compiler.options import Options
from tests.codegen.support import compare, module_of

SPLIT = Options(disable=frozenset({"fuse_epilogue"}))
UNSHARED = Options(disable=frozenset({"reuse_memory", "fuse_pointwise"}))
EVERY = {"all passes": Options(), "split": SPLIT, "no reuse, heads of one op": UNSHARED}

GRAPHS = {
    "bias, residual and activation": """
graph main {
  feed x: f32[N, 2, 5, 5]
  feed r: f32[N, 3, 5, 5]
  param w: f32[3, 2, 3, 3]
  param b: f32[3]
  (Output=h: f32[N, 3, 5, 5]) = conv2d(Filter=w, Input=x) {'paddings': [1, 1]}
  (Out=a: f32[N, 3, 5, 5]) = elementwise_add(X=h, Y=b) {'axis': 1}
  (Out=c: f32[N, 3, 5, 5]) = elementwise_add(X=a, Y=r)
  (Out=y: f32[N, 3, 5, 5]) = relu(X=c)
  return y
}
""",
    "what is made is read twice": """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 3]
  (Out=h: f32[N, 3]) = mul(X=x, Y=w)
  (Out=s: f32[N, 3]) = sigmoid(X=h)
  (Out=y: f32[N, 3]) = elementwise_mul(X=h, Y=s)
  return y
}
""",
    "two outputs": """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 3]
  (Out=h: f32[N, 3]) = matmul(X=x, Y=w) {'alpha': 0.5}
  (Out=a: f32[N, 3]) = scale(X=h) {'scale': -1.0, 'bias': 0.7}
  (Out=y: f32[N, 3]) = relu(X=a)
  return y, a
}
""",
    "no output of the type of what is made": """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 3]
  (Out=h: f32[N, 3]) = mul(X=x, Y=w)
  (Out=a: f32[N, 3]) = tanh(X=h)
  (Out=y: f64[N, 3]) = cast(X=a) {'in_dtype': 5, 'out_dtype': 6}
  return y
}
""",
    "the only output is what the tail writes over": """
graph main {
  feed x: f32[3, 5]
  feed d: f32[5, 4]
  param w: f32[3, 4]
  param lr: f32[1]
  (Out=g: f32[3, 4]) = matmul(X=x, Y=d)
  (ParamOut=w#1: f32[3, 4] over w) = sgd(Grad=g, LearningRate=lr, Param=w)
  return w#1
}
""",
    "the head reads what the tail would write over": """
graph main {
  feed x: f32[4, 4]
  param w: f32[4, 4]
  param lr: f32[1]
  (Out=g: f32[4, 4]) = mul(X=x, Y=w)
  (ParamOut=w#1: f32[4, 4] over w) = sgd(Grad=g, LearningRate=lr, Param=w)
  return w#1
}
""",
    "two products": """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 3]
  param u: f32[4, 3]
  (Out=a: f32[N, 3]) = mul(X=x, Y=w)
  (Out=b: f32[N, 3]) = mul(X=x, Y=u)
  (Out=c: f32[N, 3]) = elementwise_mul(X=a, Y=b)
  (Out=y: f32[N, 3]) = tanh(X=c)
  return y
}
""",
    "what is added is made behind the product": """
graph main {
  feed x: f32[N, 4]
  param w: f32[4, 4]
  (Out=h: f32[N, 4]) = mul(X=x, Y=w)
  (Out=s: f32[N, 4]) = softmax(X=x)
  (Out=t: f32[N, 4]) = softmax(X=s)
  (Out=y: f32[N, 4]) = elementwise_add(X=h, Y=t)
  return y
}
""",
    "without code of its own": """
graph main {
  feed x: f32[N, 2, 4, 4]
  param w: f32[2, 3, 2, 2]
  param b: f32[3]
  (Output=h: f32[N, 3, 8, 8]) = conv2d_transpose(Filter=w, Input=x) {'strides': [2, 2]}
  (Out=a: f32[N, 3, 8, 8]) = elementwise_add(X=h, Y=b) {'axis': 1}
  (Out=y: f32[N, 3, 8, 8]) = relu(X=a)
  return y
}
""",
    "a table": """
graph main {
  feed ids: i64[N, 1]
  feed p: f32[N, 3]
  param w: f32[5, 3]
  (Out=h: f32[N, 3]) = lookup_table(Ids=ids, W=w)
  (Out=a: f32[N, 3]) = scale(X=h) {'scale': 2.0}
  (Out=y: f32[N, 3]) = elementwise_add(X=a, Y=p)
  return y
}
""",
    "state updated twice in one kernel": """
graph main {
  feed x: f32[4]
  param w: f32[4]
  param lr: f32[1]
  (Out=d: f32[4]) = sum(X=[w, w])
  (ParamOut=w#1: f32[4] over w) = sgd(Grad=x, LearningRate=lr, Param=w)
  (ParamOut=w#2: f32[4] over w#1) = sgd(Grad=d, LearningRate=lr, Param=w#1)
  return w#2
}
""",
}


@pytest.mark.parametrize("options", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("text", GRAPHS.values(), ids=GRAPHS)
def test_epilogue_kernels_match_the_interpreter(text, options):
    compare(text, options)


def test_the_tail_works_in_the_memory_of_the_output():
    module = module_of(GRAPHS["bias, residual and activation"])
    mine = [buffer.name for buffer in module.buffers if not buffer.name.startswith("t")]
    assert mine == ["y"]
    assert "np.maximum(y, 0.0, out=y)" in module.source


def test_without_an_output_of_its_type_a_result_has_scratch_for_the_step():
    module = module_of(GRAPHS["no output of the type of what is made"])
    assert [buffer.name for buffer in module.buffers] == ["y", "t0"]
    module = module_of(GRAPHS["the only output is what the tail writes over"])
    assert [buffer.name for buffer in module.buffers] == ["t0"]


def test_anchor_may_wait_for_epilogue_operands():
    source = module_of(GRAPHS["what is added is made behind the product"]).source
    assert source.index("t = softmax(s)") < source.index("h = mul(x, w)")


def test_anchor_does_not_read_epilogue_results():
    source = module_of(GRAPHS["the head reads what the tail would write over"]).source
    assert "2 ops in 2 steps" in source
