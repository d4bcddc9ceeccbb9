"""Tests of fleets; scripts that they run in processes of their own are no tests."""

collect_ignore = ["scripts"]
