"""The bytes of a memory profiler over time, drawn into a PNG file."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, MissingExtraError
from .activations import BACKWARD, Activations
from .memory_text import show

#: Colours that stay apart for colour-blind eyes (Okabe and Ito).
FORWARD_COLOUR, BACKWARD_COLOUR, PEAK_COLOUR = "#0072B2", "#E69F00", "#D55E00"
#: How many checkpoints are drawn: the last ones.
MOST_CHECKPOINTS = 20
_UNITS = (("GB", 2**30), ("MB", 2**20), ("KB", 2**10), ("bytes", 1))


def draw(activations: Activations, path: str | Path) -> None:
    """Draw the timeline: bytes after each event, the area coloured by phase, with checkpoints and the peak."""
    if not activations.timeline:
        raise ArgumentError("GradientMemoryProfiler.plot: no op was recorded, so there is nothing to draw.")
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingExtraError("GradientMemoryProfiler.plot: needs Matplotlib; pip install numtape[plot].") from error
    # The last event was a while ago: what has died since shows as one more point.
    timeline = [*activations.timeline, ("forward now", activations.live)]
    unit, size = next((unit, size) for unit, size in _UNITS if activations.peak >= size or size == 1)
    heights = [nbytes / size for _, nbytes in timeline]
    figure = figures.Figure(figsize=(9.0, 4.0), layout="constrained")
    axes = figure.add_subplot()
    _draw_areas(axes, [event for event, _ in timeline], heights)
    _draw_checkpoints(axes, [event for event, _ in timeline])
    top = max(range(len(heights)), key=heights.__getitem__)
    axes.plot([top], [heights[top]], "o", color=PEAK_COLOUR, label=f"peak {show(activations.peak)}")
    axes.set_xlabel("ops, in the order in which they ran, and now" + _left_out(timeline))
    axes.set_ylabel(f"activations, {unit}")
    axes.margins(x=0.03)
    axes.set_ylim(0, max(1.0, *heights) * 1.3 if size == 1 else max(heights) * 1.3)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


def _draw_areas(axes: Any, events: list[str], heights: list[float]) -> None:
    is_backward = [event.startswith(BACKWARD) for event in events]
    places = range(len(heights))
    for label, colour, wanted in (("forward", FORWARD_COLOUR, False), ("backward", BACKWARD_COLOUR, True)):
        where = [flag is wanted for flag in is_backward]
        if any(where):
            # A phase reaches to the first point of the next, so that no gap is left between them.
            reach = [here or before for here, before in zip(where, [False, *where], strict=False)]
            axes.fill_between(places, heights, where=reach, color=colour, alpha=0.45, label=label, linewidth=0)
    axes.plot(places, heights, color="black", linewidth=0.8)


def _left_out(timeline: Sequence[tuple[str, int]]) -> str:
    """Say how many checkpoints are not drawn, if there are such."""
    count = sum(event.startswith("checkpoint") for event, _ in timeline)
    return f"\nthe last {MOST_CHECKPOINTS} of {count} checkpoints are marked" if count > MOST_CHECKPOINTS else ""


def _draw_checkpoints(axes: Any, events: list[str]) -> None:
    marks = [(place, event.partition(" ")[2]) for place, event in enumerate(events) if event.startswith("checkpoint")]
    lowest, previous = 0.0, -len(events)
    for place, name in marks[-MOST_CHECKPOINTS:]:
        # Names of neighbours would cover each other, so the next one stands lower.
        lowest = lowest + 0.3 if place - previous < len(events) / 40 and lowest < 0.6 else 0.0
        previous = place
        axes.axvline(place, color="gray", linestyle=":", linewidth=1)
        axes.text(
            place,
            0.98 - lowest,
            name,
            transform=axes.get_xaxis_transform(),
            rotation=90,
            va="top",
            ha="right",
            fontsize=8,
        )
