"""Memory that is left."""

import psutil
import torch


def available_bytes(device: torch.device) -> int:
    """Return the bytes that can still be had on a device."""
    if device.type != "cuda":
        return int(psutil.virtual_memory().available)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused
