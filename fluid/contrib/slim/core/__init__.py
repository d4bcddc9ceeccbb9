"""`Compressor`: training with strategies that compress a model, as a configuration file says."""

from fluid.contrib.slim.core import compressor, config, strategy
from fluid.contrib.slim.core.compressor import Compressor, Context
from fluid.contrib.slim.core.config import ConfigFactory
from fluid.contrib.slim.strategies.strategy import Strategy

__all__ = ["Compressor", "ConfigFactory", "Context", "Strategy", "compressor", "config", "strategy"]
