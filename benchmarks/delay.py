"""Forwards packets between two network devices with a delay: `python -m benchmarks.delay MILLISECONDS A B`.

For kernels without netem. This program creates the devices. They can be moved to other namespaces, and they disappear
with the process.
"""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_SET_NAME, _PLAIN = 0x400454CA, 0x1001  # TUNSETIFF; IFF_TUN | IFF_NO_PI


def main() -> None:
    delay = float(sys.argv[1]) / 1000
    ends = [open_device(name) for name in sys.argv[2:]]
    print("ready", flush=True)
    queues: list[deque[tuple[float, bytes]]] = [deque() for _ in ends]  # one per end
    while True:
        due = min((queue[0][0] for queue in queues if queue), default=None)
        patience = None if due is None else max(due - time.monotonic(), 0)
        for end in select.select(ends, [], [], patience)[0]:
            queues[ends.index(end)].append((time.monotonic() + delay, os.read(end, 65536)))
        now = time.monotonic()
        for queue, other in zip(queues, reversed(ends), strict=True):
            while queue and queue[0][0] <= now:
                deliver(other, queue.popleft()[1])


def open_device(name: str) -> int:
    """Create a device whose packets this process reads and writes."""
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, _SET_NAME, struct.pack("16sH22x", name.encode(), _PLAIN))
    return end


def deliver(end: int, packet: bytes) -> None:
    try:
        os.write(end, packet)
    except OSError:  # the device is down, and so is the receiver
        return


if __name__ == "__main__":
    main()
