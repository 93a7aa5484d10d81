"""Compare two runs by their digests, and print where they part: ``numtape digest a.json b.json``."""

from typing import TextIO

from ..errors import SavedFileError
from ..insight.digest_difference import diff_digests
from .target import UsageError


def run(first: str, second: str, out: TextIO) -> int:
    """Print the first difference of two files that `Digest.to_json` wrote; return 1 if there is one, else 0."""
    try:
        difference = diff_digests(first, second)
    except (OSError, SavedFileError) as error:
        raise UsageError(str(error)) from error
    print(difference, file=out)
    return int(bool(difference))
