"""Worker processes of verification: ranks and pools that fail, networks, exchanged files."""
