"""A graph as a JSON document that says its version, and back."""

import json
import math
import os
from collections.abc import Callable
from typing import Any

from ..errors import OperandError, SavedFileError
from ..serialization.replacing import replace_file
from .describing import graph_of
from .graph import Graph, Layer, Node, Numbers, Profile, Source, Timeline

FORMAT = "numtape graph"
#: Goes up when a document can no longer be read by what read the last version.
VERSION = 1
#: How much of what is neither a document nor a path is shown.
MOST_SHOWN = 80


def to_json(
    what: Any, path: str | os.PathLike[str] | None = None, *, profile: Profile | None = None, values: bool = True
) -> str:
    """Return a graph as a JSON document, and write it to a file if a path is given.

    The document holds what a picture shows: ops, links, shapes, bytes, lines and numbers, but no arrays. `from_json`
    reads it again, also in another process.

    Args:
        what: a tracked tensor, a tape, a list of records, or a graph.
        path: where to write it.
        profile: numbers by the index of a record, instead of those that are read from the graph.
        values: whether to read statistics from the values that are kept, and to run a sweep for norms of gradients.

    Example:
        >>> x = nt.tensor([1.0, 2.0], requires_grad=True, name="x")
        >>> graph = nt.from_json(nt.to_json((x * x).sum()))
        >>> [record.op for record in graph.records], graph.sources[0].name
        (['mul', 'sum'], 'x')
    """
    text = json.dumps(document(graph_of("to_json", what, profile, values)), allow_nan=False, separators=(",", ":"))
    if path is not None:
        replace_file(path, [text.encode()], "to_json")
    return text


def from_json(document_or_path: str | os.PathLike[str]) -> Graph:
    """Return the graph that `to_json` wrote, for `to_html`, `to_dot` and `to_json`, and to look at.

    Args:
        document_or_path: the document itself, or the path of a file that holds it.

    Raises:
        SavedFileError: it is no such document, damaged, of a later version, or not to be found.

    Example:
        >>> x = nt.tensor(3.0, requires_grad=True)
        >>> nt.from_json(nt.to_json(x * x)).records[0].op
        'mul'
    """
    if not isinstance(document_or_path, str | os.PathLike):
        raise OperandError(
            f"from_json: wants the text of a document or a path, not {type(document_or_path).__name__}; write "
            "nt.from_json(path)."
        )
    text = document_or_path
    if not (isinstance(text, str) and text.lstrip().startswith("{")):
        text = _read(text)
    return _parse(text)


def _read(path: str | os.PathLike[str]) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (OSError, ValueError) as error:  # A ValueError is for text that can be no path.
        shown = repr(os.fspath(path))
        shown = shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
        raise SavedFileError(
            f"from_json: {shown} is neither a document that to_json wrote nor a file that can be read "
            f"({getattr(error, 'strerror', None) or error}); give the text itself, or the path of its file."
        ) from error


def document(graph: Graph) -> dict[str, Any]:
    """Return a graph as lists, dicts, text and numbers. What is empty is left out of records and sources."""
    sites: dict[tuple[str, str], int] = {}
    records = [
        _filled(
            op=node.op,
            kind=node.kind,
            inputs=node.inputs,
            shape=node.shape,
            dtype=node.dtype,
            bytes=node.nbytes,
            at=sites.setdefault((node.site, node.file), len(sites)),
            kept=node.kept,
            params=node.params,
            name=node.name,
            layer=node.layer,
            mark=node.mark,
            numbers=_plain(node.numbers),
        )
        for node in graph.records
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "records": records,
        "sources": [
            _filled(name=s.name, kind=s.kind, shape=s.shape, dtype=s.dtype, bytes=s.nbytes, numbers=_plain(s.numbers))
            for s in graph.sources
        ],
        "layers": [
            {"name": each.name, "sources": each.sources, "norm": _number(each.norm), "mark": each.mark}
            for each in graph.layers
        ],
        "memory": {
            "forward": graph.memory.forward,
            "backward": graph.memory.backward,
            "is_measured": graph.memory.is_measured,
        },
        "target": graph.target,
        "notes": graph.notes,
        "sites": [{"line": site, "file": file} for site, file in sites],
    }


def _filled(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value not in ("", {})}


def _plain(numbers: Numbers) -> dict[str, Any]:
    return {name: _number(number) for name, number in numbers.items()}


def _number(number: float | None) -> Any:
    """Return a number in six digits; JSON has none that is not finite, so these are text."""
    if number is None:
        return None
    if not math.isfinite(number):
        return str(float(number))
    # What becomes whole by rounding is written as what was whole, so that a graph read from a document gives the same.
    rounded = number if _is_whole(number) else float(f"{number:.6g}")
    return int(rounded) if _is_whole(rounded) else rounded


def _is_whole(number: float) -> bool:
    return number.is_integer() and abs(number) < 2**53


def _parse(text: str) -> Graph:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SavedFileError(
            f"from_json: the document is damaged or no JSON ({error}); write it anew with to_json."
        ) from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SavedFileError(f'from_json: this is JSON, but not what to_json writes: its format is not "{FORMAT}".')
    if found.get("version") != VERSION:
        raise SavedFileError(
            f"from_json: the document has version {found.get('version')!r}, and this numtape reads version {VERSION}; "
            "read it with the numtape that wrote it, or write it anew."
        )
    try:
        graph = _graph(found)
        _check_links(graph)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise SavedFileError(
            f"from_json: the document is damaged ({type(error).__name__}: {error}); write it anew with to_json."
        ) from error
    return graph


def _graph(found: dict[str, Any]) -> Graph:
    sites = [(_text(site["line"]), _text(site["file"])) for site in _list(found["sites"])]
    memory = found["memory"]
    return Graph(
        tuple(_node(each, sites) for each in _list(found["records"])),
        tuple(
            Source(
                _text(each.get("name", "")),
                _text(each["kind"]),
                _shape(each["shape"]),
                _text(each["dtype"]),
                _count(each["bytes"]),
                _floats(each),
            )
            for each in _list(found["sources"])
        ),
        tuple(
            Layer(
                _text(each["name"]),
                tuple(map(_count, _list(each["sources"]))),
                _maybe(_float, each["norm"]),
                _text(each["mark"]),
            )
            for each in _list(found["layers"])
        ),
        Timeline(
            tuple(map(_count, _list(memory["forward"]))),
            tuple(map(_count, _list(memory["backward"]))),
            _one_of(bool, memory["is_measured"]),
        ),
        _maybe(_count, found["target"]),
        tuple(map(_text, _list(found["notes"]))),
    )


def _node(each: dict[str, Any], sites: list[tuple[str, str]]) -> Node:
    site, file = sites[_count(each["at"])]
    return Node(
        op=_text(each["op"]),
        kind=_text(each["kind"]),
        inputs=tuple(link if isinstance(link, str) else _one_of(int, link) for link in _list(each["inputs"])),
        shape=_shape(each["shape"]),
        dtype=_text(each["dtype"]),
        nbytes=_count(each["bytes"]),
        kept=_text(each.get("kept", "")),
        site=site,
        file=file,
        params=_text(each.get("params", "")),
        name=_text(each.get("name", "")),
        layer=_text(each.get("layer", "")),
        numbers=_floats(each),
        mark=_text(each.get("mark", "")),
    )


def _one_of(kind: type, value: Any) -> Any:
    """Return a value of a kind; raise if it is of another."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} stands where a value of type {kind.__name__} belongs")
    return value


def _text(value: Any) -> str:
    return str(_one_of(str, value))


def _list(value: Any) -> list[Any]:
    return list(_one_of(list, value))


def _count(value: Any) -> int:
    if _one_of(int, value) < 0:
        raise ValueError(f"{value} stands where a number from 0 on belongs")
    return int(value)


def _shape(value: Any) -> tuple[Any, ...]:
    """Return one shape, or several for an op with several outputs."""
    return tuple(tuple(map(_count, part)) if isinstance(part, list) else _count(part) for part in _list(value))


def _float(value: Any) -> float:
    """Return a number; one that is not finite was written as text."""
    if type(value) not in (int, float) and value not in ("nan", "inf", "-inf"):
        raise TypeError(f"{value!r} stands where a number belongs")
    return float(value)


def _floats(each: dict[str, Any]) -> Numbers:
    return {name: _float(number) for name, number in each.get("numbers", {}).items()}


def _maybe(kind: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else kind(value)


def _check_links(graph: Graph) -> None:
    """Raise if a record reads a later one, or anything links to what is not there."""
    for number, node in enumerate(graph.records):
        for link in node.inputs:
            if not isinstance(link, str) and not -len(graph.sources) <= link < number:
                raise ValueError(f"record {number} reads {link}")
    for layer in graph.layers:
        if any(source >= len(graph.sources) for source in layer.sources):
            raise ValueError(f"the layer {layer.name!r} has the sources {layer.sources}")
    if graph.target is not None and graph.target >= len(graph.records):
        raise ValueError(f"the target is {graph.target}")
