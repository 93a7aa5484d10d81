"""A graph as one page that needs nothing else: the graph's JSON, positions, style and scripts in a single file."""

import base64
import hashlib
import html
import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import OperandError
from ..serialization.replacing import replace_file
from .describing import graph_of
from .graph import NUMBERS, Graph, Profile
from .graph_flow import EXPLODING, VANISHING
from .graph_json import document
from .layout import NODE_HEIGHT, NODE_WIDTH, layout

#: In the order in which they are joined; each is a function or constants that later ones use.
SCRIPTS = ("model.js", "drawing.js", "graph_view.js", "charts.js", "panel.js", "main.js")


def to_html(
    what: Any, path: str | os.PathLike[str], *, profile: Profile | None = None, values: bool = True, title: str = ""
) -> Path:
    """Write a graph as one HTML page, which any browser shows without a network.

    The page has the graph with pan, zoom and search, every record with name, shapes, bytes, time and source line, the
    memory over forward and backward, and the flow of gradients, with vanishing and exploding ones marked. It works
    with mouse, touch and keyboard.

    Args:
        what: a tracked tensor, a tape, a list of records, or a graph.
        path: the file to write; its directory must exist.
        profile: numbers by the index of a record, instead of those that are read from the graph.
        values: whether to read statistics from the values that are kept, and to run a sweep for norms of gradients.
            Nothing is delivered to ``.grad``, nothing is freed, and hooks are not called.
        title: what the page is called; the file's name otherwise.

    Returns:
        The path.

    Raises:
        NotConnectedError: the tensor has no graph.
        OSError: the file cannot be written.

    Example:
        >>> import os, tempfile
        >>> x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
        >>> nt.to_html((x * x).sum(), os.path.join(tempfile.mkdtemp(), "tape.html")).name
        'tape.html'
    """
    if not isinstance(path, str | os.PathLike):
        raise OperandError(f"to_html: the path is of type {type(path).__name__}; write nt.to_html(loss, 'tape.html').")
    graph = graph_of("to_html", what, profile, values)
    place = Path(path)
    replace_file(place, [page(graph, title or place.stem).encode(errors="replace")], "to_html")
    return place


def page(graph: Graph, title: str) -> str:
    """Return the page.

    Everything that a user can name is JSON in a block that is no script, which scripts put into the page as text. The
    page's policy lets nothing run but the scripts written here, and nothing load.
    """
    records, sources = layout(graph)
    data = document(graph) | {
        "places": {"records": records, "sources": sources, "width": NODE_WIDTH, "height": NODE_HEIGHT},
        "meanings": NUMBERS,
        "bounds": {"vanishing": VANISHING, "exploding": EXPLODING},
        "title": title,
    }
    parts = {
        "title": html.escape(title),
        "policy": _policy(),
        "style": _asset("page.css"),
        "script": _script(),
        "data": _inert(json.dumps(data, allow_nan=False, separators=(",", ":"))),
    }
    text = _asset("page.html")
    # Each part is put in once, from the last on, so that nothing in a part is taken for a place.
    for name in ("data", "script", "style", "title", "policy"):
        before, _, after = text.rpartition(f"<!--{name}-->")
        text = f"{before}{parts[name]}{after}"
    return text


def frame(graph: Graph, height: int = 640) -> str:
    """Return the page in a frame of its own, for notebooks."""
    inside = html.escape(page(graph, "tape"))
    return (
        f'<iframe title="the tape as a graph" sandbox="allow-scripts" srcdoc="{inside}" '
        f'style="width: 100%; height: {height}px; border: 1px solid #888; border-radius: 6px"></iframe>'
    )


def _inert(text: str) -> str:
    """Return JSON that cannot end the block that it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath("page_assets", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"


@cache
def _policy() -> str:
    """Return a content security policy that names style and script by their hashes."""
    return (
        f"default-src 'none'; style-src '{_hash(_asset('page.css'))}'; script-src '{_hash(_script())}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
