"""Denormal numbers are zero while a run lasts: some operations are slow with them."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

# `omp_pause_soft` of OpenMP 5.0: what the call gives up is made again when it is next needed.
_OMP_PAUSE_SOFT = 1


@contextmanager
def denormals_as_zero() -> Iterator[None]:
    """Take denormal numbers (below 1.2e-38 in float32) for zero in the block.

    This holds for the calling thread, for the threads between which torch splits its operations,
    and for threads that begin within the block. After the block all is as before. On a processor
    that cannot do so, nothing changes.
    """
    for number_type in (np.float32, np.float64):
        # NumPy 2.2 and older warn if they first look at a type while its denormals are zero.
        np.finfo(number_type)
    were_zero = denormals_are_zero()
    try:
        torch.set_flush_denormal(True)
        _end_pool_threads()
        yield
    finally:
        torch.set_flush_denormal(were_zero)
        _end_pool_threads()


def denormals_are_zero() -> bool:
    """Return whether denormal numbers are zero in the calling thread; torch does not tell."""
    return sys.float_info.min / 2 == 0.0


def _end_pool_threads() -> None:
    """End the threads between which torch splits operations; the next operation starts others.

    The state belongs to a thread, and a new thread has that of the thread which starts it. GNU's
    OpenMP, with which torch is built on Linux, keeps its threads from one operation to the next,
    and they would keep the former state. LLVM's and Intel's OpenMP pass the state on with every
    operation, on x86.
    """
    # A library finds the functions of those that it was linked with: here, of torch's OpenMP.
    pause_threads = getattr(ctypes.CDLL(torch._C.__file__), "omp_pause_resource_all", None)
    if pause_threads is not None:
        pause_threads(_OMP_PAUSE_SOFT)
