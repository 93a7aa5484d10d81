"""Run the command line: ``python -m numtape``."""

import sys

from .cli import main

sys.exit(main())
