"""`paddle.distribution`: a module without names, as in release 1.8; `fluid.layers` has them."""
