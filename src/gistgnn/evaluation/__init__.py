"""The output of a model for every node of a graph: at once, layer by layer, or part by part."""

from gistgnn.evaluation.evaluation import METHODS, Evaluation, Inference

__all__ = ["METHODS", "Evaluation", "Inference"]
