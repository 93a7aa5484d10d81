"""The page of 10,000 records: how long it takes to write, and how large it is.

Run: python benchmarks/memory/page.py [--rounds 15] [--json figures.json]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import Report, interleaved, options

import numtape as nt

RECORDS = 10_000


def residual_chain() -> nt.Tensor:
    """Return a loss behind 10,001 records: blocks with a weight, a branch and a sum."""
    y = nt.tensor(np.linspace(0.1, 1.0, 32, dtype=np.float32), requires_grad=True, name="x")
    for i in range(RECORDS // 5):
        weight = nt.tensor(np.full(32, 0.999, np.float32), requires_grad=True, name=f"layers.{i}.weight")
        y = nt.tanh(y * weight) + nt.sin(y) * 0.01
    return y.sum()


def main() -> int:
    arguments = options(__doc__ or "")
    report = Report("the page of 10,000 records")
    loss = residual_chain()
    path = Path(tempfile.mkdtemp()) / "tape.html"
    works = {
        "with values and gradient norms": lambda: nt.to_html(loss, path),
        "structure alone": lambda: nt.to_html(loss, path, values=False),
    }
    for name, seconds in interleaved(works, arguments.rounds, 1).items():
        report.add(f"to_html, {name}", seconds, 5.0, "s")
    nt.to_html(loss, path)
    report.add("the file", path.stat().st_size / 1e6, 10.0, "MB")
    return report.finish(arguments.json)


if __name__ == "__main__":
    sys.exit(main())
