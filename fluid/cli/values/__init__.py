"""Arrays, images and text as feeds and results of commands."""
