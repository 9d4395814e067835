"""Whether the mean of many random matrices converges to what it should, at the rate it should."""

from collections.abc import Iterable

import torch
from torch import Tensor


class Mean:
    """The entries' mean and variance over samples, each entry over those samples that have it.

    Args:
        shape: of the samples.
    """

    def __init__(self, *shape: int) -> None:
        self.count = torch.zeros(shape, dtype=torch.float64)
        self._sum, self._squares = torch.zeros_like(self.count), torch.zeros_like(self.count)

    def add(self, sample: Tensor, has: Tensor | None = None) -> None:
        """Take a sample; ``has``: which entries it has, all of them if not said."""
        kept = torch.ones_like(self.count) if has is None else has.double().expand_as(self.count)
        self.count += kept
        self._sum += kept * sample
        self._squares += kept * sample**2

    def errors(self, exact: Tensor) -> Tensor:
        """Each entry's error in standard errors, of those that vary; what does not vary has to be exact."""
        mean = self._sum / self.count
        variance = (self._squares / self.count - mean**2).clamp(min=0)
        varies = variance > 1e-10 * (1 + mean**2)
        torch.testing.assert_close(mean[~varies], exact[~varies], rtol=1e-4, atol=1e-6)
        return ((mean - exact) / (variance / self.count).sqrt())[varies]


def features(x: Tensor, extra: int = 6) -> Tensor:
    """The features in float64, and some random ones: [N, F + extra]."""
    rng = torch.Generator().manual_seed(0)
    return torch.cat([x.double(), torch.randn(len(x), extra, dtype=torch.float64, generator=rng)], dim=1)


def converges(samples: Iterable[Tensor | tuple[Tensor, Tensor]], exact: Tensor, at: tuple[int, ...]) -> None:
    """Check that errors are as large as their standard errors, and no more, after so many samples.

    The mean square of errors in units of (deviation / sqrt(samples)) is 1 if the mean is right and errors shrink as the
    root of the number of samples; a bias makes it grow with that number.
    """
    mean, taken = Mean(*exact.shape), iter(samples)
    for number in range(1, max(at) + 1):
        sample = next(taken)
        mean.add(*sample) if isinstance(sample, tuple) else mean.add(sample)
        if number in at:
            errors = mean.errors(exact)
            assert len(errors) > 10
            assert 0.3 < errors.square().mean() < 3, errors.square().mean()
            assert errors.abs().max() < 5.5
