"""Standardisation: features are scaled by the mean and standard deviation of the training nodes."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gistgnn.errors import InputError
from gistgnn.graphs.graph import Graph
from gistgnn.io.digests import RUN, check_file
from gistgnn.io.tensors import TensorFile, find_tensors, write_tensors
from gistgnn.io.whole_files import replacing

WORDS_BELOW = 0.1  # share of features that are not 0


@dataclass(frozen=True, eq=False)
class Standardisation:
    """Scales every feature to mean 0 and standard deviation 1 over the training nodes."""

    mean: Tensor  # [F]
    std: Tensor  # [F]; 1 if all training nodes have the same value

    @classmethod
    def of(cls, graph: Graph) -> "Standardisation":
        """Compute mean and standard deviation of a graph's training nodes."""
        x = graph.x[graph.train]
        std, mean = torch.std_mean(x, dim=0, correction=0)
        constant = x.amin(dim=0) == x.amax(dim=0)  # rounding may make its standard deviation greater than 0
        return cls(mean, torch.where(constant | (std == 0), 1.0, std))

    @staticmethod
    def suits(x: Tensor) -> bool:
        """Whether features, [N, F], should be scaled: all but words, which are few in each row and never negative."""
        words = int(torch.count_nonzero(x)) < WORDS_BELOW * x.numel() and float(x.min()) >= 0
        return not words

    def features(self, x: Tensor) -> Tensor:
        """Return scaled features: [N, F].

        Raises:
            InputError: ``x`` has another number of features.
        """
        if x.shape[1] != len(self.mean):
            raise InputError(f"x has {x.shape[1]} features; the model was trained on {len(self.mean)}")
        return ((x - self.mean.to(x.device)) / self.std.to(x.device)).contiguous()

    def graph(self, graph: Graph) -> Graph:
        """Return the graph with scaled features."""
        return graph.with_features(self.features(graph.x))

    def save(self, path: Path, run: str = "") -> str:
        """Write a safetensors file with the id of the run, and return its digest.

        An existing file is replaced in one step.
        """
        tensors = {"mean": self.mean.cpu(), "std": self.std.cpu()}
        specs = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        with replacing(path) as temporary:
            return write_tensors(temporary, specs, lambda name: [tensors[name]], {RUN: run})

    @classmethod
    def load(cls, path: Path) -> "Standardisation":
        """Read a file that `save` wrote.

        Raises:
            InputError: the file is missing or damaged.
        """
        check_file(path, "train the run again")
        places, file = find_tensors(path), TensorFile(path)
        if missing := {"mean", "std"} - places.keys():
            raise InputError(f"{path} has no '{min(missing)}'; train the run again")
        with closing(file):
            return cls(file.read(places["mean"]), file.read(places["std"]))
