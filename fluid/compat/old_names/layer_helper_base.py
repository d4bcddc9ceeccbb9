"""The base of layer helpers, which is the helper itself here."""

from fluid.layer_helper import LayerHelper as LayerHelperBase

__all__ = ["LayerHelperBase"]
