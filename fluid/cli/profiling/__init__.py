"""Times of ops, for `fluid profile`, `fluid infer --profile` and `fluid inspect --profile`.

`steps` is the table of a model's runs, `native` its kernels against the limits of this CPU, `model`
and `script` what `fluid profile` does with either.
"""
