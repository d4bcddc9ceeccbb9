"""Tools of developers: `verify` looks for wrong results, `ptx` runs GPU kernels without a GPU."""
