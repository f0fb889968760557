"""Training of the models that `flashsift compare --sift` and mounts run."""

import os
from collections.abc import Iterable
from typing import Any


def fit(
    traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    **options: object,
) -> dict[str, Any]:
    """Trains a model, writes it to `output`, and returns the report.

    `options` are those of `flashsift train`, with underscores: `model="gbdt"`, `only_cache=True`.
    Raises FlashsiftError, or Unusable from flashsift.train.data, with the text of the command.
    """
    from flashsift import FlashsiftError, binary
    from flashsift._trace import flags

    from . import __main__ as command

    def refuse(message: str) -> None:
        raise FlashsiftError(message)

    parser = command.parser()
    parser.error = refuse
    several = [traces] if isinstance(traces, str | os.PathLike) else list(traces)
    words = [*map(os.fspath, several), "--flashsift", binary(), "-q", "-o", os.fspath(output)]
    report: dict[str, Any] = command.run(parser.parse_args([*words, *flags(options)]))
    return report
