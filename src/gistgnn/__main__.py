"""`python -m gistgnn`: the command line, as torchrun starts it."""

import sys

from gistgnn.cli.main import main

sys.exit(main())
