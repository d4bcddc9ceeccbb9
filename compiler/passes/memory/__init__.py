"""Passes that order ops and let values share memory."""
