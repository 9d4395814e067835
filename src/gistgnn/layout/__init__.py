"""The layout of a model: which dimension of which parameter lies along which hidden axis. Found by
`infer_layout`.
"""
