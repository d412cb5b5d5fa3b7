"""A changed file in a process that has imported the original: the code of functions that differ is replaced in place.

Importing a package costs seconds, a fork of a process that has imported it milliseconds. What runs only on import (constants
of a module, bodies of classes, functions that these call) cannot be changed this way; `replace` says so, and such a
change needs a process that imports the changed file.
"""

import gc
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType


def functions_by_file(folder: str) -> dict[str, list[FunctionType]]:
    """Every function alive whose code comes from a file of a folder, also where wrappers hold it."""
    found: dict[str, list[FunctionType]] = {}
    for value in gc.get_objects():
        if type(value) is FunctionType and value.__code__.co_filename.startswith(folder):
            found.setdefault(value.__code__.co_filename, []).append(value)
    return found


def _differing(old: CodeType, new: CodeType, in_function: bool) -> Iterator[tuple[CodeType, CodeType] | None]:
    """Pairs of functions' codes that differ, the outermost first; None where code that only importing runs does."""
    if old == new:
        return
    parts = [[x for x in code.co_consts if isinstance(x, CodeType)] for code in (old, new)]
    if [x.co_name for x in parts[0]] != [x.co_name for x in parts[1]] or old.co_name != new.co_name:
        yield None
        return
    body = bool(old.co_flags & inspect.CO_NEWLOCALS and old.co_flags & inspect.CO_OPTIMIZED)
    here = in_function or (body and not (old.co_name.startswith("<") and old.co_name != "<lambda>"))
    if here:
        yield old, new
    elif _own(old) != _own(new):
        yield None
    for first, second in zip(*parts, strict=True):
        yield from _differing(first, second, here)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _codes(part)


def _own(code: CodeType) -> tuple:
    """What a code does, without the functions defined in it."""
    return code.co_code, code.co_names, tuple((type(x), x) for x in code.co_consts if not isinstance(x, CodeType))


def replace(path: str, old: str, new: str, alive: dict[str, list[FunctionType]]) -> bool:
    """Let the functions of an imported file do what its changed text says; False where that is not enough.

    alive: what functions_by_file found. True too where the file is not imported yet, for importing reads the changed one.
    """
    module = next((m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == path), None)
    if module is None:
        return True
    compiled = [module.__spec__.loader.source_to_code(text.encode(), path) for text in (old, new)]
    pairs = list(_differing(*compiled, in_function=False))
    if None in pairs:
        return False
    codes = list(_codes(compiled[0]))
    if any(codes.count(before) > 1 for before, _ in pairs):  # equal lambdas on one line: which is which?
        return False
    changes = [(f, after) for before, after in pairs for f in alive.get(path, []) if f.__code__ == before]
    if not changes:
        return False
    for function, after in changes:
        function.__code__ = after
    return True
