"""Tests of the front end; scripts that they run in processes of their own are no tests."""

collect_ignore = ["scripts"]
