"""`paddle.regularizer`: a module without names, as in release 1.8; `fluid.regularizer` has them."""
