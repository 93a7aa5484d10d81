"""A run as a list of hashes, one for each record, to compare with another run, now or from a file."""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from ..core.context import current, entered
from ..core.gradients import check_target, link_of, seed_of, sweep
from ..core.graph import collect, graph_of
from ..core.recompute import is_at_hand, run_again, value
from ..core.record import Gone, Record
from ..core.scopes import Follower, Observer
from ..core.value import Value
from ..core.write import stamp_at
from ..dtypes import is_float, widened
from ..errors import FreedError, OperandError, OverwrittenError, SavedFileError
from ..kernels.machine import machine
from ..serialization.replacing import replace_file

FORMAT = "numtape digest"
#: Goes up when a document can no longer be read by what read the last version.
VERSION = 1
_index = attrgetter("index")
#: Longer parameters stand in a digest as their hash.
_MOST_TEXT = 120


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a digest knows of a record."""

    op: str
    #: The static parameters, or their hash; draws of random numbers are among them.
    params: str
    #: ``%3`` for the output of the fourth record; the hash of anything else, after its name.
    operands: tuple[str, ...]
    shape: str
    dtype: str
    #: The hash of the output.
    value: str
    #: The hash of its cotangent; empty if no backward was asked for, or none arrives.
    cotangent: str
    #: The user's line. It is shown and not compared: files may have moved.
    site: str = dataclasses.field(compare=False)

    def __str__(self) -> str:
        params = f"; {self.params}" if self.params else ""
        cotangent = f", cotangent {self.cotangent}" if self.cotangent else ""
        called = f"{self.op}({', '.join(self.operands)}{params})"
        return f"{called} {self.shape} {self.dtype} is {self.value}{cotangent}, at {self.site}"


@dataclasses.dataclass(frozen=True)
class Digest:
    """A hash for each record of a run, oldest first, and what it ran on. Two of them are equal if the runs are.

    Example:
        >>> x = nt.tensor([1.0, 2.0])
        >>> with nt.Tape() as tape:
        ...     y = nt.exp(x).sum()
        >>> digest = tape.digest()
        >>> len(digest), digest == nt.Digest.from_json(digest.to_json())
        (2, True)
    """

    entries: tuple[Entry, ...]
    #: The class of CPU, the libraries and the kernel provider.
    machine: dict[str, str] = dataclasses.field(compare=False)
    #: The gradients of leaves: the number of the record that first read each, and its name and hash. None if no
    #: backward was asked for.
    gradients: tuple[tuple[int, str], ...] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __repr__(self) -> str:
        return f"<Digest: {len(self)} records, {self.hash}>"

    def __str__(self) -> str:
        lines = [f"%{number} = {entry}" for number, entry in enumerate(self.entries)]
        lines += [f"gradient of {text}, read by %{number}" for number, text in self.gradients or ()]
        return "\n".join([f"{len(self)} records, {self.hash}", *lines])

    @property
    def has_cotangents(self) -> bool:
        """Whether a backward was asked for."""
        return self.gradients is not None or any(entry.cotangent for entry in self.entries)

    @property
    def hash(self) -> str:
        """One hash for the whole run, of everything that is compared."""
        return _hashed(json.dumps([[_compared(entry) for entry in self.entries], self.gradients]).encode())

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the digest as a JSON document, and write it to a file if a path is given."""
        records = [dataclasses.asdict(entry) for entry in self.entries]
        document = {
            "format": FORMAT,
            "version": VERSION,
            "machine": self.machine,
            "records": records,
            "gradients": self.gradients,
        }
        text = json.dumps(document, indent=1)
        if path is not None:
            replace_file(path, [text.encode()], "to_json")
        return text

    save = to_json

    @classmethod
    def from_json(cls, document_or_path: str | os.PathLike[str]) -> "Digest":
        """Return the digest that `to_json` wrote.

        Args:
            document_or_path: the document itself, or the path of a file that holds it.

        Raises:
            SavedFileError: it is no such document, damaged, or of a later version.
        """
        text = document_or_path
        if not (isinstance(text, str) and text.lstrip().startswith("{")):
            with open(text, encoding="utf-8", errors="replace") as file:
                text = file.read()
        return _parse(text)

    load = from_json


def digest_of(what: Any, loss: Any = None) -> Digest:
    """Return the digest of records, of a tape's records, or of those behind a tensor.

    Values that were not kept are made again, so this runs at most as long as the forward did. Run it in the same scope
    of `nt.deterministic` as the forward.

    Args:
        what: a tracked tensor, something that has `records`, or a list of records.
        loss: a tensor to run a backward from, which delivers and frees nothing, for the hashes of cotangents and of
            the gradients of leaves. All records behind it count.

    Raises:
        FreedError: if a value is gone: a backward has freed the graph, or what it was made of was overwritten since, by
            an optimizer or by a module that updates a buffer in place.
    """
    records = _records_of(what)
    cotangents, found = ({}, None) if loss is None else _backward(loss)
    if loss is not None:
        # A tape may have been entered late, or never: what lies behind the loss belongs to its backward as well.
        behind = set(collect([link_of(loss)])).difference(records)
        records = sorted((*records, *behind), key=_index)
    numbers = {record: number for number, record in enumerate(records)}
    last_use = {link: number for number, record in enumerate(records) for link in record.inputs if type(link) is Record}
    made: dict[Record, Any] = {}
    entries = []
    with entered(scopes=(), observers=()), np.errstate(all="ignore"):
        for number, record in enumerate(records):
            made[record] = _value(record, made)
            operands = tuple(_operand(record, i, numbers, made) for i in range(len(record.inputs)))
            entries.append(
                Entry(
                    op=record.op.name,
                    params=_params(record.params),
                    operands=operands,
                    shape=_text(record.shape),
                    dtype=_text(record.dtype),
                    value=_hash_of(made[record]),
                    cotangent=cotangents.get(record, ""),
                    site=record.site,
                )
            )
            for link in (*record.inputs, record):
                if type(link) is Record and last_use.get(link, number) <= number:
                    made.pop(link, None)
    return Digest(tuple(entries), machine(), None if found is None else _gradients(records, found))


def _records_of(what: Any) -> Sequence[Record]:
    if isinstance(what, Value):
        check_target("digest", what)
        return collect([link_of(what)])[::-1]
    records = what if isinstance(what, list | tuple) else getattr(what, "records", None)
    if not isinstance(records, list | tuple) or not all(isinstance(record, Record) for record in records):
        raise OperandError(f"digest: wants a tensor, a tape or a list of records, not {type(what).__name__}.")
    return sorted(records, key=_index)


def _value(record: Record, made: dict[Record, Any]) -> Any:
    """Return the output of a record, made again from those before it where it is not kept."""
    if is_at_hand(record):
        return record.array
    try:
        for link in record.inputs:
            # Of what was recorded before the first of the list, only what is kept is there.
            if type(link) is Record and link not in made:
                made[link] = value(link)
        return run_again(record, made)
    except OverwrittenError as error:
        raise FreedError(
            f"digest: the output of {record.op.name} is not kept, and to compute it again is too late; take the digest "
            f"before the write that this names, or do as it says. {error}"
        ) from error
    except FreedError as error:
        raise FreedError(
            f"digest: the output of {record.op.name} at {record.site} is gone, and so is what it was made of; take the "
            "digest before the backward and the optimizer's step."
        ) from error


def _operand(record: Record, position: int, numbers: dict[Record, int], made: dict[Record, Any]) -> str:
    link = record.inputs[position]
    if type(link) is Record:
        if link in numbers:
            return f"%{numbers[link]}"
        try:
            return _hash_of(made[link] if link in made else value(link))
        except (FreedError, OverwrittenError):
            return "(earlier)"
    if type(link) is Gone:
        if link.operand is None:
            return "(gone)"
        link = link.operand
    if not isinstance(link, Value):
        # A number is what the op made of it, however it was written and whatever the record keeps.
        is_number = isinstance(link, int | float) and not isinstance(link, bool) and is_float(record.dtype)
        return _text(np.asarray(link, widened(record.dtype)) if is_number else link)
    is_same = link.version is None or link.version[0].count == stamp_at(record, position)
    return f"{_name(link)} {_hash_of(link.array) if is_same else '(overwritten)'}"


def _name(leaf: Value) -> str:
    return leaf.name or "tensor"


def _gradients(records: Sequence[Record], found: dict[Any, Any]) -> tuple[tuple[int, str], ...]:
    """Return the gradients of the leaves that records read, each with the number of its first reader."""
    readers: dict[Any, int] = {}
    for number, record in enumerate(records):
        for link in record.inputs:
            if isinstance(link, Value) and link in found:
                readers.setdefault(link, number)
    return tuple((number, f"{_name(leaf)} {_hash_of(found[leaf])}") for leaf, number in readers.items())


class _Cotangents(Observer, Follower):
    """Hashes the cotangent of each record that a sweep passes."""

    looks_inside = False

    def __init__(self) -> None:
        self.found: dict[Record, str] = {}

    def on_sweep(self, records: Sequence[Record]) -> Follower:
        return self

    def on_step(self, record: Record, cotangent: Any, cotangents: dict[Any, Any]) -> None:
        """Note a record's cotangent; those of several outputs come as a list."""
        self.found[record] = _hash_of(tuple(cotangent) if isinstance(cotangent, list) else cotangent)


def _backward(loss: Any) -> tuple[dict[Record, str], dict[Any, Any]]:
    """Return the hashes of the cotangents of a backward, and the gradients of its leaves."""
    check_target("digest", loss)
    _, leaves = graph_of([link_of(loss)])
    sources = [leaf for leaf in leaves if isinstance(leaf, Value) and leaf.node is not None]
    observer = _Cotangents()
    # The sources are named so that nothing is delivered, not even to tensors that retain their gradient.
    with entered(observers=(observer,), tapes=(), watch_all=False, scopes=current().scopes):
        found = sweep([loss], [seed_of("digest", loss, None)], list(dict.fromkeys(sources)))
    return observer.found, found


def _params(params: dict[str, Any] | None) -> str:
    text = ", ".join(f"{name}={_text(value)}" for name, value in (params or {}).items())
    return text if len(text) <= _MOST_TEXT else _hashed(text.encode())


def _text(value: Any) -> str:
    """Return a text that is the same in every process: no addresses, no order of hashes."""
    match value:
        case np.ndarray() | np.generic():
            return _hash_of(value) if value.ndim or value.dtype.kind == "V" else repr(value.item())
        case list() | tuple():
            return f"({', '.join(map(_text, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return f"{{{', '.join(f'{_text(key)}: {_text(each)}' for key, each in value.items())}}}"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(_text, value)))}}}"
        case None | bool() | int() | float() | complex() | str() | bytes() | slice():
            return repr(value)
        case np.dtype():
            return str(value)
        case Value():
            return _hash_of(value.array)
        case functools.partial():
            return f"{_text(value.func)}{_text(value.args)}{_text(value.keywords)}"
    return getattr(value, "__qualname__", type(value).__qualname__)


def _hash_of(value: Any) -> str:
    """Return the hash of an array's dtype, shape and bits; of a tuple, for an op with several outputs, that of all."""
    if isinstance(value, tuple):
        return _hashed(" ".join("none" if part is None else _hash_of(part) for part in value).encode())
    array = np.ascontiguousarray(value)
    return _hashed(f"{array.dtype} {np.shape(value)} ".encode(), array.reshape(-1).view(np.uint8).data)


def _hashed(*parts: Any) -> str:
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        found.update(part)
    return found.hexdigest()


def _compared(entry: Entry) -> list[Any]:
    return [getattr(entry, field.name) for field in dataclasses.fields(entry) if field.name != "site"]


def _parse_entry(given: dict[str, Any]) -> Entry:
    operands = given["operands"]
    texts = [text for name, text in given.items() if name != "operands"]
    if not isinstance(operands, list) or not all(isinstance(text, str) for text in (*texts, *operands)):
        raise TypeError("a record holds something else than texts")
    return Entry(**{**given, "operands": tuple(operands)})


def _parse(text: str) -> Digest:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SavedFileError(f"digest: the document is damaged or no JSON ({error}); write it anew.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise SavedFileError(f'digest: this is JSON, but not what to_json writes: its format is not "{FORMAT}".')
    if found.get("version") != VERSION:
        raise SavedFileError(
            f"digest: the document has version {found.get('version')!r}, and this numtape reads version {VERSION}; "
            "read it with the numtape that wrote it, or write it anew."
        )
    try:
        if not isinstance(found["records"], list):
            raise TypeError("its records are no list")
        entries = tuple(map(_parse_entry, found["records"]))
        gradients = found.get("gradients")
        if gradients is not None:
            gradients = tuple((number, text) for number, text in gradients)
            if not all(type(number) is int and isinstance(text, str) for number, text in gradients):
                raise TypeError("a gradient is no number of a record and a text")
            if not all(0 <= number < len(entries) for number, _ in gradients):
                raise ValueError("a gradient is of a record that is not there")
        if not isinstance(found["machine"], dict):
            raise TypeError("its machine is no object")
        return Digest(entries, found["machine"], gradients)
    except (KeyError, TypeError, ValueError) as error:
        raise SavedFileError(
            f"digest: the document is damaged ({type(error).__name__}: {error}); write it anew."
        ) from error
