"""The command line: ``numtape demo`` and ``numtape check``, or ``python -m numtape demo``."""

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
    check = commands.add_parser("check", help="certify the gradients of a function of yours")
    check.add_argument("target", help="module:function or path/to/file.py:function")
    check.add_argument("--args", help='the arguments, a Python expression with np and nt: "np.ones(3), 2.0"')
    check.add_argument("--tolerance", type=float, default=1e-6, help="the largest relative error (default: 1e-6)")
    check.add_argument("--method", default="six_point", help="central, four_point, six_point (default) or richardson")
    options = parser.parse_args(arguments)
    return _demo(demo, options) if options.command == "demo" else _check(check, options)


def _demo(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    if options.steps < 1:
        parser.error("--steps must be at least 1")
    from .demo import run

    return run(options.steps, sys.stdout)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from .check import UsageError, run

    try:
        return run(options.target, options.args, options.tolerance, options.method, sys.stdout)
    except UsageError as error:
        parser.error(str(error))
