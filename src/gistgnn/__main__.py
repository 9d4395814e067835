"""`python -m gistgnn`: the command line, as torchrun starts it."""

import os
import sys

from gistgnn.cli.main import main

status = main()
if status == 0 and "TORCHELASTIC_RUN_ID" in os.environ:
    # All is written. Threads of Gloo's have been seen to abort the interpreter on its way out, once in many runs,
    # which torchrun takes for a rank that has failed.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
sys.exit(status)
