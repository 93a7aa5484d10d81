"""The command line: ``numtape demo`` or ``python -m numtape demo``."""

import argparse
import sys
from collections.abc import Sequence

from .. import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = argparse.ArgumentParser(prog="numtape", description="Tape-based automatic differentiation on NumPy.")
    parser.add_argument("--version", action="version", version=f"numtape {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="fit Kepler's third law on a tape and show what the tape holds")
    demo.add_argument("--steps", type=int, default=200, help="gradient steps (default: 200)")
    options = parser.parse_args(arguments)
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    from .demo import run

    return run(options.steps, sys.stdout)
