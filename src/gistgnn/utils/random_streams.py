"""Random streams that depend on a run's seed and a place in the run, and on nothing else.

Blocks, dropout and initial weights come from streams with the key (seed, purpose, round, sub-GCN).
They do not depend on where and in which order sub-GCNs run, or on whether the run was resumed.
"""

import zlib

import numpy as np
import torch
from torch import Tensor

from gistgnn.utils.checks import LARGEST_SEED, check_count


def _sequence(seed: int, purpose: str, key: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *key])


def check_seed(seed: int) -> int:
    """Return the seed. Raise InputError if it is not an integer from 0 to `LARGEST_SEED`."""
    return check_count("seed", seed, least=0, most=LARGEST_SEED)


def generator(seed: int, purpose: str, *key: int) -> np.random.Generator:
    """Return a NumPy generator for one purpose at one place of a run.

    The place is a ``key`` such as (round, sub-GCN).
    """
    return np.random.Generator(np.random.PCG64(_sequence(seed, purpose, key)))


class Stream:
    """Within a `with` block torch draws from a stream of its own.

    It does so on the CPU and on a CUDA ``device``. The next block goes on where the last one has
    ended. After a block the generators are as they were before.
    """

    def __init__(
        self, seed: int, purpose: str, *key: int, device: torch.device | None = None
    ) -> None:
        self._device = device if device is not None and device.type == "cuda" else None
        state = int(_sequence(seed, purpose, key).generate_state(1, np.uint64)[0]) & (2**63 - 1)
        outside = self._read()
        # `torch.manual_seed` would move the streams of all GPUs as well.
        torch.default_generator.manual_seed(state)
        if self._device is not None:
            with torch.cuda.device(self._device):
                torch.cuda.manual_seed(state)
        self._states = self._read()
        self._write(outside)

    def __enter__(self) -> None:
        self._outside = self._read()
        self._write(self._states)

    def __exit__(self, *_: object) -> None:
        self._states = self._read()
        self._write(self._outside)

    def _read(self) -> list[Tensor]:
        states = [torch.default_generator.get_state()]
        return states if self._device is None else [*states, torch.cuda.get_rng_state(self._device)]

    def _write(self, states: list[Tensor]) -> None:
        torch.default_generator.set_state(states[0])
        if self._device is not None:
            torch.cuda.set_rng_state(states[1], self._device)
