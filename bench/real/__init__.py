"""Published third-party models and texts."""
