"""NIST's nonlinear regression problems from the second start: digits of the certified parameters.

All 27 problems of the Statistical Reference Datasets; the data are in nist_strd.txt beside this file.

Run: python benchmarks/science/nist.py [--json figures.json]
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from harness import Report, options

import numtape as nt
from numtape.interop.scipy import CurveFit, curve_fit

#: The digits to reach, by the level of difficulty.
WANTED = {"lower": 8, "average": 8, "higher": 6}
Model = Callable[..., Any]


@dataclass(frozen=True)
class Problem:
    """A data set with certified values, as in the file."""

    name: str
    level: str
    residual_sum: float
    #: A row for each parameter: start 1, start 2, certified value, certified standard deviation.
    parameters: Any
    #: A row for each observation: y and the predictors.
    data: Any

    @property
    def certified(self) -> Any:
        return self.parameters[:, 2]

    @property
    def deviations(self) -> Any:
        return self.parameters[:, 3]

    @property
    def predictors(self) -> Any:
        x = self.data[:, 1:]
        return x[:, 0] if x.shape[1] == 1 else x

    @property
    def observed(self) -> Any:
        # The model of Nelson is one of log(y).
        return np.log(self.data[:, 0]) if self.name == "Nelson" else self.data[:, 0]

    def fit(self, start: int = 2) -> CurveFit:
        """Fit the model from one of the two starts."""
        # To the last digit that rounding leaves.
        tolerances = dict(ftol=1e-15, xtol=1e-15, gtol=1e-15, x_scale="jac", max_nfev=20000, polish=True)
        start_values = self.parameters[:, start - 1]
        return curve_fit(MODELS[self.name], self.predictors, self.observed, start_values, **tolerances)


def digits(found: Any, certified: Any) -> float:
    """Return to how many digits all numbers agree, 11 at most: as many are certified."""
    errors = np.abs(np.asarray(found) - certified) / np.abs(certified)
    return min(11.0, -math.log10(max(float(errors.max()), 1e-11)))


def problems() -> list[Problem]:
    """Return the problems of the file."""
    blocks = Path(__file__).with_name("nist_strd.txt").read_text().split("\n\n")[1:]
    return [_problem(block.splitlines()) for block in blocks]


def _problem(lines: list[str]) -> Problem:
    name, level, residual_sum = lines[0].split()
    parameters = [line.split()[1:] for line in lines[1:] if line.startswith("b")]
    data = [line.split() for line in lines[1 + len(parameters) :]]
    return Problem(name, level, float(residual_sum), np.array(parameters, float), np.array(data, float))


def saturation(x: Any, b1: Any, b2: Any) -> Any:
    return b1 * (1.0 - nt.exp(-b2 * x))


def decay_over_line(x: Any, b1: Any, b2: Any, b3: Any) -> Any:
    return nt.exp(-b1 * x) / (b2 + b3 * x)


def three_decays(x: Any, b1: Any, b2: Any, b3: Any, b4: Any, b5: Any, b6: Any) -> Any:
    return b1 * nt.exp(-b2 * x) + b3 * nt.exp(-b4 * x) + b5 * nt.exp(-b6 * x)


def two_peaks(x: Any, b1: Any, b2: Any, b3: Any, b4: Any, b5: Any, b6: Any, b7: Any, b8: Any) -> Any:
    peaks = b3 * nt.exp(-((x - b4) ** 2) / b5**2) + b6 * nt.exp(-((x - b7) ** 2) / b8**2)
    return b1 * nt.exp(-b2 * x) + peaks


def quadratics(x: Any, b1: Any, b2: Any, b3: Any, b4: Any, b5: Any) -> Any:
    return (b1 + b2 * x + b3 * x**2) / (1.0 + b4 * x + b5 * x**2)


def cubics(x: Any, b1: Any, b2: Any, b3: Any, b4: Any, b5: Any, b6: Any, b7: Any) -> Any:
    return (b1 + b2 * x + b3 * x**2 + b4 * x**3) / (1.0 + b5 * x + b6 * x**2 + b7 * x**3)


def oscillations(x: Any, b1: Any, b2: Any, b3: Any, b4: Any, b5: Any, b6: Any, b7: Any, b8: Any, b9: Any) -> Any:
    turns = 2.0 * np.pi * x
    year = b2 * np.cos(turns / 12.0) + b3 * np.sin(turns / 12.0)
    return (
        b1
        + year
        + b5 * nt.cos(turns / b4)
        + b6 * nt.sin(turns / b4)
        + b8 * nt.cos(turns / b7)
        + b9 * nt.sin(turns / b7)
    )


MODELS: dict[str, Model] = {
    "Misra1a": saturation,
    "Chwirut2": decay_over_line,
    "Chwirut1": decay_over_line,
    "Lanczos3": three_decays,
    "Gauss1": two_peaks,
    "Gauss2": two_peaks,
    "DanWood": lambda x, b1, b2: b1 * x**b2,
    "Misra1b": lambda x, b1, b2: b1 * (1.0 - (1.0 + b2 * x / 2.0) ** -2),
    "Kirby2": quadratics,
    "Hahn1": cubics,
    "Nelson": lambda x, b1, b2, b3: b1 - b2 * x[:, 0] * nt.exp(-b3 * x[:, 1]),
    "MGH17": lambda x, b1, b2, b3, b4, b5: b1 + b2 * nt.exp(-x * b4) + b3 * nt.exp(-x * b5),
    "Lanczos1": three_decays,
    "Lanczos2": three_decays,
    "Gauss3": two_peaks,
    "Misra1c": lambda x, b1, b2: b1 * (1.0 - (1.0 + 2.0 * b2 * x) ** -0.5),
    "Misra1d": lambda x, b1, b2: b1 * b2 * x / (1.0 + b2 * x),
    "Roszman1": lambda x, b1, b2, b3, b4: b1 - b2 * x - nt.arctan(b3 / (x - b4)) / np.pi,
    "ENSO": oscillations,
    "MGH09": lambda x, b1, b2, b3, b4: b1 * (x**2 + x * b2) / (x**2 + x * b3 + b4),
    "Thurber": cubics,
    "BoxBOD": saturation,
    "Rat42": lambda x, b1, b2, b3: b1 / (1.0 + nt.exp(b2 - b3 * x)),
    "MGH10": lambda x, b1, b2, b3: b1 * nt.exp(b2 / (x + b3)),
    "Eckerle4": lambda x, b1, b2, b3: b1 / b2 * nt.exp(-0.5 * ((x - b3) / b2) ** 2),
    "Rat43": lambda x, b1, b2, b3, b4: b1 / (1.0 + nt.exp(b2 - b3 * x)) ** (1.0 / b4),
    "Bennett5": lambda x, b1, b2, b3: b1 * (b2 + x) ** (-1.0 / b3),
}


def main() -> int:
    given = options(__doc__ or "")
    report = Report("NIST's nonlinear regression problems, second start: digits that lack")
    for problem in problems():
        fit = problem.fit()
        reached = digits(fit.x, problem.certified)
        errors = digits(fit.errors, problem.deviations)
        wanted = WANTED[problem.level]
        title = f"{problem.name} ({problem.level}): {reached:.1f} digits, {errors:.1f} of the standard deviations"
        report.add(title, max(0.0, wanted - reached), 0.0, f"of {wanted}")
    return report.finish(given.json)


if __name__ == "__main__":
    sys.exit(main())
