"""The subcommands of `fluid`: `demo`, `inspect`, `infer`, `run` and the others;
`main` parses them.
"""
