"""The commands users type: `fluid demo`, `fluid inspect`, `fluid infer`."""
