"""Arguments and help texts of commands that are run elsewhere."""
