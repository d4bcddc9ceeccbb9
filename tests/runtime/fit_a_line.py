"""A step of training a line by SGD, written by hand as the compiler writes modules."""

import numpy as np

NAME = "fit_a_line"
TARGET = "numpy"
DIMS = ("N",)
FEEDS = (("x", "float32", ("N", 13)), ("y", "float32", ("N", 1)))
PARAMS = (
    ("fc_0.b_0", "float32", (1,), True),
    ("fc_0.w_0", "float32", (13, 1), True),
    ("learning_rate_0", "float32", (1,), True),
)
FETCHES = (("mean_0.tmp_0", "float32", (1,)),)
BUFFERS = (
    ("fc_0.tmp_1", "4*N", 0, 3),
    ("square_error_cost_0.tmp_0", "4*N", 2, 6),
    ("square_error_cost_0.tmp_1", "4*N", 3, 5),
    ("mean_0.tmp_0", 4, 4, 10),
    ("fc_0.tmp_1@GRAD", "4*N", 5, 8),
    ("fc_0.b_0@GRAD", 4, 6, 9),
    ("fc_0.w_0@GRAD", 52, 7, 10),
)


def bind(take, params, N):
    """Give the step for batches of N."""
    b, w, rate = (params[name] for name in ("fc_0.b_0", "fc_0.w_0", "learning_rate_0"))
    line = take(0, "float32", (N, 1))
    error = take(1, "float32", (N, 1))
    square = take(2, "float32", (N, 1))
    loss = take(3, "float32", (1,))
    d_line = take(4, "float32", (N, 1))
    d_b = take(5, "float32", (1,))
    d_w = take(6, "float32", (13, 1))

    def step(x, y):
        # (Out=fc_0.tmp_0) = mul(X=x, Y=fc_0.w_0)  train.py:3
        np.matmul(x, w, out=line)
        # (Out=fc_0.tmp_1) = elementwise_add(X=fc_0.tmp_0, Y=fc_0.b_0)  train.py:3
        np.add(line, b, out=line)
        # (Out=square_error_cost_0.tmp_0) = elementwise_sub(X=fc_0.tmp_1, Y=y)  train.py:4
        np.subtract(line, y, out=error)
        # (Out=square_error_cost_0.tmp_1) = square(X=square_error_cost_0.tmp_0)  train.py:4
        np.multiply(error, error, out=square)
        # (Out=mean_0.tmp_0) = mean(X=square_error_cost_0.tmp_1)  train.py:5
        np.mean(square, axis=0, out=loss)
        # (X@GRAD=fc_0.tmp_1@GRAD) = square_grad(X=square_error_cost_0.tmp_0)  train.py:6
        np.multiply(error, 2.0 / N, out=d_line)
        # (Y@GRAD=fc_0.b_0@GRAD) = elementwise_add_grad(Out@GRAD=fc_0.tmp_1@GRAD)  train.py:6
        np.sum(d_line, axis=0, out=d_b)
        # (Y@GRAD=fc_0.w_0@GRAD) = mul_grad(X=x, Out@GRAD=fc_0.tmp_1@GRAD)  train.py:6
        np.matmul(x.T, d_line, out=d_w)
        # (ParamOut=fc_0.b_0) = sgd(Grad=fc_0.b_0@GRAD, Param=fc_0.b_0)  train.py:6
        np.subtract(b, d_b * rate, out=b)
        # (ParamOut=fc_0.w_0) = sgd(Grad=fc_0.w_0@GRAD, Param=fc_0.w_0)  train.py:6
        np.subtract(w, d_w * rate, out=w)
        return (loss,)

    return step
