"""A graph in the language of Graphviz."""

import os
from typing import Any

from ..serialization.replacing import replace_file
from .describing import graph_of
from .graph import Graph, Node, Profile, Source


def to_dot(
    what: Any, path: str | os.PathLike[str] | None = None, *, profile: Profile | None = None, values: bool = False
) -> str:
    r"""Return a graph as DOT text, which Graphviz draws, and write it to a file if a path is given.

    Boxes are records, with op, shape and line; ellipses are leaves, dashed ellipses constants. Draw it with
    ``dot -Tsvg graph.dot -o graph.svg``.

    Args:
        what: a tracked tensor, a tape, a list of records, or a graph.
        path: where to write it.
        profile: numbers by the index of a record; norms of gradients are shown.
        values: whether to run a sweep for norms of gradients, if no profile gives them.

    Example:
        >>> x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
        >>> print(nt.to_dot((x * 2.0).sum()).splitlines()[3])
          s0 [label="x\n(2,) float32", shape=ellipse];
    """
    text = _text(graph_of("to_dot", what, profile, values))
    if path is not None:
        replace_file(path, [text.encode(errors="replace")], "to_dot")
    return text


def _text(graph: Graph) -> str:
    lines = ["digraph tape {", '  graph [rankdir=TB, label="made by numtape"];', '  node [fontname="sans-serif"];']
    lines += [f"  s{number} [{_source(source)}];" for number, source in enumerate(graph.sources)]
    lines += [f"  r{number} [{_record(number, node)}];" for number, node in enumerate(graph.records)]
    for number, node in enumerate(graph.records):
        for link in node.inputs:
            if not isinstance(link, str):
                lines.append(f"  {f'r{link}' if link >= 0 else f's{~link}'} -> r{number};")
    return "\n".join([*lines, "}", ""])


def _source(source: Source) -> str:
    style = "" if source.kind == "leaf" else ", style=dashed"
    return f"label={_quoted(source.name, f'{source.shape} {source.dtype}')}, shape=ellipse{style}"


def _record(number: int, node: Node) -> str:
    title = f"%{number} {node.op}" + (f" {node.name}" if node.name else "")
    constants = ", ".join(link for link in node.inputs if isinstance(link, str))
    norm = node.numbers.get("grad_norm")
    flow = "" if norm is None else f"gradient {norm:.3g}" + (f" {node.mark}" if node.mark else "")
    below = [f"{node.shape} {node.dtype}", constants, node.params, flow, node.site]
    return f"label={_quoted(title, *filter(None, below))}, shape=box"


def _quoted(*lines: str) -> str:
    r"""Return lines as one DOT string. Inside of it only quotes and backslashes mean something."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ") for line in lines)
    return '"' + "\\n".join(escaped) + '"'
