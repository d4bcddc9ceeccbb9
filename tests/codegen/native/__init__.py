"""Tests of the native target."""
