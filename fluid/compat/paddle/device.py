"""`paddle.device`: a module without names, as in release 1.8; `fluid` has the places."""
