"""`python -m gistgnn`: the command line, as torchrun starts it."""

import os
import sys

from gistgnn.cli.main import main

status = main()
if status == 0 and "TORCHELASTIC_RUN_ID" in os.environ:
    # Everything is written. In rare runs a thread of Gloo aborts the interpreter while it shuts down; torchrun would
    # take that for a rank that failed.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
sys.exit(status)
