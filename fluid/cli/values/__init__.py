"""Inputs and results of the commands: arrays, images and text."""
