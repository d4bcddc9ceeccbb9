"""Attacks on readers of untrusted files: a module each, with `main(arguments) -> exit code`."""
