"""Locks on open files, which the system frees when their process ends."""

import errno

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
"""The errors of file systems that have no locks."""

HAS_LOCKS = fcntl is not None
"""Whether the system has such locks at all."""


def lock(handle: int) -> None:
    """Lock an open file, or do nothing where the system has no locks.

    Raises:
        BlockingIOError: another process holds the lock.
        OSError: the file system has no locks; see `NO_LOCKS`.
    """
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
