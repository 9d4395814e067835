"""The command line, as the installed script, `python -m gistgnn` and torchrun start it."""

import os
import sys

from gistgnn.cli.process import ending_at_once


def run() -> int:
    """Run the command line, and return its exit status."""
    with ending_at_once():
        from gistgnn.cli.main import main

        status = main()
    if status == 0 and "TORCHELASTIC_RUN_ID" in os.environ:
        # Everything is written. In rare runs a thread of Gloo aborts the interpreter while it shuts
        # down; torchrun would take that for a rank that failed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return status


if __name__ == "__main__":
    sys.exit(run())
