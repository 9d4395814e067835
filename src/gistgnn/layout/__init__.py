"""The layout of a model: which dimension of which parameter lies along which hidden axis.

`infer_layout` finds it.
"""
