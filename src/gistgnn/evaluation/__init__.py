"""The output of a model for every node of a graph: at once, layer by layer, or part by part; and
its scores.
"""

from gistgnn.evaluation.inference import Inference
from gistgnn.evaluation.scores import METHODS, Evaluation, evaluate, evaluation_mode, predict

__all__ = ["METHODS", "Evaluation", "Inference", "evaluate", "evaluation_mode", "predict"]
