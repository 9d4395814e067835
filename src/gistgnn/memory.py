"""How much memory a run took."""

import sys

import torch


def peak_memory_bytes(device: torch.device) -> int:
    """Return the most memory this process has held: on the GPU where the run was there, else resident on the host."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().peak_wset
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB
