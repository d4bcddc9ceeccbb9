"""Attacks on what reads files of others: a module each, with `main(arguments) -> exit code`."""
