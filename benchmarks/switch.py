"""A switch between machines of `benchmarks/cluster.sh`, for kernels without netem.

    python -m benchmarks.switch COUNT MILLISECONDS MBIT

It makes the devices wire1, wire2, ... as root. A packet that machine i sends to an address that
ends in j leaves wire i and comes out of wire j later: by the delay, and by what the packet and
those before it take at this rate. Packets have up to 64 KB: the kernel cuts and joins them at its
own maximum, as it does for a network card.
"""

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

_SET_NAME = 0x400454CA  # TUNSETIFF
_SET_OFFLOAD = 0x400454D0  # TUNSETOFFLOAD
# IFF_TUN | IFF_NO_PI | IFF_VNET_HDR. Before every packet 10 bytes say how the kernel has to cut it.
_KIND = 0x5001
_LARGE = 3  # TUN_F_CSUM | TUN_F_TSO4
_TARGET = 10 + 19  # of a packet: the last byte of the address that it goes to


def main() -> None:
    count = int(sys.argv[1])
    delay = float(sys.argv[2]) / 1000
    rate = float(sys.argv[3]) * 1e6 / 8
    ends = [wire(f"wire{i}") for i in range(1, count + 1)]
    queues: list[deque[tuple[float, bytes]]] = [deque() for _ in ends]
    free = [0.0] * count  # the time at which a wire will have delivered all that it was sent
    while True:
        due = min((queue[0][0] for queue in queues if queue), default=None)
        wait = None if due is None else max(due - time.monotonic(), 0)
        for end in select.select(ends, [], [], wait)[0]:
            packet = os.read(end, 2**17)
            target = packet[_TARGET] - 1 if packet[10] >> 4 == 4 else count  # IPv4
            if target < count:
                free[target] = max(free[target], time.monotonic() + delay) + len(packet) / rate
                queues[target].append((free[target], packet))
        now = time.monotonic()
        for end, queue in zip(ends, queues, strict=True):
            while queue and queue[0][0] <= now:
                deliver(end, queue.popleft()[1])


def wire(name: str) -> int:
    """Make a device whose packets this process reads and writes."""
    end = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(end, _SET_NAME, struct.pack("16sH22x", name.encode(), _KIND))
    fcntl.ioctl(end, _SET_OFFLOAD, _LARGE)
    return end


def deliver(end: int, packet: bytes) -> None:
    """Write a packet to a device; it is lost if the device is down, as on a lost machine."""
    with contextlib.suppress(OSError):
        os.write(end, packet)


if __name__ == "__main__":
    main()
