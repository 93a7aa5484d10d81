"""The command line: ``numtape demo``, ``check``, ``bench``, ``digest`` and ``info``, or ``python -m numtape demo``."""

import argparse
import sys
from collections.abc import Sequence

from .. import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    parser = argparse.ArgumentParser(prog="numtape", description="Tape-based automatic differentiation on NumPy.")
    parser.add_argument("--version", action="version", version=f"numtape {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    added = {
        "demo": _add_demo(commands.add_parser("demo", help="train a model on handwritten digits")),
        "check": _add_check(commands.add_parser("check", help="certify the gradients of a function of yours")),
        "bench": _add_bench(commands.add_parser("bench", help="time a function of yours, or what numtape does here")),
        "digest": _add_digest(commands.add_parser("digest", help="find where two runs part, by their digests")),
        "info": commands.add_parser("info", help="print versions, BLAS, threads, SIMD, providers and extras"),
    }
    options = parser.parse_args(arguments)
    try:
        return _COMMANDS[options.command](added[options.command], options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130  # What shells expect of a program that Ctrl-C ended.


def _add_demo(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("--model", choices=("mlp", "cnn", "lstm", "transformer"), help="what to train (default: cnn)")
    parser.add_argument("--epochs", type=_positive, help="how often to go through the data (default: by the model)")
    parser.add_argument("--seed", type=_natural, help="of all random numbers (default: 0)")
    parser.add_argument("--out", default="numtape-demo", help="the folder to write to (default: numtape-demo)")
    parser.add_argument("--resume", action="store_true", help="go on with the run in that folder")
    return parser


def _add_check(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("target", help="module:function or path/to/file.py:function")
    parser.add_argument("--args", help='the arguments, a Python expression with np and nt: "np.ones(3), 2.0"')
    parser.add_argument("--tolerance", type=float, default=1e-6, help="the largest relative error (default: 1e-6)")
    parser.add_argument("--method", default="six_point", help="central, four_point, six_point (default) or richardson")
    return parser


def _add_bench(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("target", nargs="?", help="module:function or path/to/file.py:function (default: our own work)")
    parser.add_argument("--args", help='the arguments, a Python expression with np and nt: "np.ones(3), 2.0"')
    parser.add_argument("--gradient", action="store_true", help="also time the value with its gradient")
    parser.add_argument("--profile", action="store_true", help="also print what each op takes")
    parser.add_argument("--warmup", type=_natural, default=5, help="calls before the measured ones (default: 5)")
    parser.add_argument("--iterations", type=_positive, default=30, help="measured calls (default: 30)")
    parser.add_argument("--json", help="write all times to this file")
    parser.add_argument("--csv", help="write the figures to this file")
    parser.add_argument("--baseline", help="compare with this file, which --json wrote; exit with 1 if slower")
    parser.add_argument("--threshold", type=float, default=1.05, help="the largest ratio to it (default: 1.05)")
    return parser


def _add_digest(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("first", help="a file that tape.digest().to_json(path) wrote")
    parser.add_argument("second", help="the other one")
    return parser


def _demo(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from .demo import DemoError, run

    asked = {"model": options.model, "epochs": options.epochs, "seed": options.seed}
    try:
        return run(asked, options.out, options.resume, sys.stdout)
    except DemoError as error:
        print(f"numtape demo: {error}", file=sys.stderr)
        return 1


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from .check import run
    from .target import UsageError

    try:
        return run(options.target, options.args, options.tolerance, options.method, sys.stdout)
    except UsageError as error:
        parser.error(str(error))


def _bench(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from .bench import Asked, run
    from .target import UsageError

    asked = {name: value for name, value in vars(options).items() if name != "command"}
    try:
        return run(Asked(**asked), sys.stdout)
    except UsageError as error:
        parser.error(str(error))


def _digest(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from .digest import run
    from .target import UsageError

    try:
        return run(options.first, options.second, sys.stdout)
    except UsageError as error:
        parser.error(str(error))


def _info(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from .info import run

    return run(sys.stdout)


_COMMANDS = {"demo": _demo, "check": _check, "bench": _bench, "digest": _digest, "info": _info}


def _positive(text: str) -> int:
    return _at_least(1, text)


def _natural(text: str) -> int:
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    """Return an integer of the command line, or raise what argparse turns into a line of usage."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from {least} on")
    return int(text)
