"""Functions of one robot as C and Python source code, for programs without JAX."""

import dataclasses
import keyword
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._version import version_of
from ..errors import DeploymentError, OutputError
from ..io.files import write_whole
from ..source import FUNCTIONS, PYTHON, C, Graph, Node, body, entries, trace

MOST = 400_000  # maximum number of operations of a function


@dataclasses.dataclass(frozen=True)
class SourceFunction:
    """Function for `write_source`.

    Attributes:
        function: function of arrays that returns an array or a tuple of arrays; JAX traces it in double precision.
        arguments: name and shape of every argument.
        about: description in one or two sentences, written as a comment in the files.
    """

    name: str
    function: Callable[..., Any]
    arguments: Mapping[str, tuple[int, ...]]
    results: tuple[str, ...]
    about: str = ""


@dataclasses.dataclass(frozen=True)
class _Traced:
    """Function decomposed into operations on scalars."""

    given: SourceFunction
    nodes: list[Node]
    results: list[np.ndarray]


def write_source(path: str | os.PathLike[str], functions: Sequence[SourceFunction], about: str = "") -> dict[str, Path]:
    """Write functions as source code in C (path.c and path.h) and Python (path.py).

    JAX traces the functions. Arrays are decomposed into scalars, loops are unrolled, and values that depend only on the robot
    are computed in advance. Both languages contain the same straight-line arithmetic, which agrees with the original function
    to rounding (1e-12 of the largest result).

    The C code requires C99 and the C mathematics library, uses no static or heap memory, and has no branches but selections
    between scalars, so every call takes about the same time. The parameters of a C function are its arguments followed by its
    results, all row-major arrays of doubles; a result may be the same array as an argument. The Python code requires only
    NumPy, and accepts and returns arrays.

    Unsupported are calls back to Python, LAPACK routines, loops with a data-dependent number of iterations, and data-dependent
    array indices.

    Args:
        path: path of the files without suffix; its last part, converted to an identifier, is the prefix of the C function
            names.

    Returns:
        The paths of the files, with the keys "h", "c" and "py".

    Raises:
        DeploymentError: a function contains an unsupported operation, has more than 400 000 operations, or returns a number
            of results that differs from the number of names; or a name is not an identifier or is used twice.
        OutputError: a file cannot be written.
    """
    stem = re.sub(r"\W", "_", Path(path).name)
    _check([stem], functions)
    traced = [_trace(function) for function in functions]
    top = re.sub(r'["\\*/]', " ", about) + f"\nWritten by jaxdyn {version_of()}."
    texts = {"h": _header(stem, traced, top), "c": _c(stem, Path(path).name, traced, top), "py": _python(traced, top)}
    written = {}
    for ending, text in texts.items():
        written[ending] = Path(f"{os.fspath(path)}.{ending}")
        write_whole(written[ending], text, OutputError)
    return written


def _check(names: list[str], functions: Sequence[SourceFunction]) -> None:
    for function in functions:
        own = [*function.arguments, *function.results]
        for name in (*names, function.name, *own):
            if not name.isidentifier() or keyword.iskeyword(name) or re.fullmatch(r"v\d+", name):
                remedy = "use letters, digits and _; do not start with a digit, and avoid keywords and names such as v1"
                raise DeploymentError(f"{name!r} cannot be used as a name in the generated C and Python code", remedy)
        if len({f.name for f in functions}) < len(functions) or len(set(own)) < len(own):
            fault = "two functions, or two arguments or results of this function, have the same name"
            raise DeploymentError(f"{function.name}: {fault}")


def _trace(given: SourceFunction) -> _Traced:
    graph = Graph()
    try:
        closed = trace(lambda *x: jax.tree.leaves(given.function(*x)), list(given.arguments.values()))
    except DeploymentError:
        raise
    except Exception as error:
        raise DeploymentError(f"{given.name} cannot be traced: {error}") from error
    with jax.enable_x64(True):
        arguments = [_inputs(graph, name, shape) for name, shape in given.arguments.items()]
        results = entries(graph, closed, arguments)
    if len(results) != len(given.results):
        raise DeploymentError(f"{given.name} returns {len(results)} arrays, but {len(given.results)} names are given")
    if len(graph.nodes) > MOST:
        raise DeploymentError(f"{given.name} has {len(graph.nodes)} operations, more than the maximum of {MOST}")
    return _Traced(given, graph.nodes, results)


def _inputs(graph: Graph, name: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.array([graph.input(f"{name}{k}") for k in range(math.prod(shape))], object).reshape(shape)


def _header(stem: str, functions: Sequence[_Traced], about: str) -> str:
    guard = f"{stem.upper()}_H"
    declared = "\n".join(f"/* {_sentence(f.given)} */\n{_prototype(stem, f)};\n" for f in functions)
    return (
        f'/* {about} */\n#ifndef {guard}\n#define {guard}\n\n#ifdef __cplusplus\nextern "C" {{\n#endif\n\n{declared}\n'
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif\n"
    )


def _sentence(given: SourceFunction) -> str:
    return given.about or f"{given.name}: {', '.join(given.results)} of {', '.join(given.arguments)}."


def _prototype(stem: str, traced: _Traced) -> str:
    parts = [f"const double {name}[{math.prod(shape)}]" for name, shape in traced.given.arguments.items()]
    parts += [f"double {name}[{x.size}]" for name, x in zip(traced.given.results, traced.results, strict=True)]
    return f"void {stem}_{traced.given.name}({', '.join(parts)})"


def _c(stem: str, name: str, functions: Sequence[_Traced], about: str) -> str:
    text = f'/* {about} */\n#include <math.h>\n\n#include "{name}.h"\n'
    for traced in functions:
        needed, lines, values = body(C, traced.nodes, traced.results)
        given = traced.given.arguments.items()
        owner = {f"{key}{k}": (key, k) for key, shape in given for k in range(math.prod(shape))}
        loads = ["const double {} = {}[{}];".format(entry, *owner[entry]) for entry in needed]
        read = {owner[entry][0] for entry in needed}
        unused = [f"(void){key};" for key in traced.given.arguments if key not in read]
        stores = [
            f"{key}[{k}] = {value};"
            for key, column in zip(traced.given.results, values, strict=True)
            for k, value in enumerate(column)
        ]
        # all results are computed before any is stored, since a result may be the same array as an argument
        inside = "\n".join(f"    {line}" for line in (*unused, *loads, *lines, *stores))
        text += f"\n{_prototype(stem, traced)}\n{{\n{inside}\n}}\n"
    return text


def _python(functions: Sequence[_Traced], about: str) -> str:
    called = {node.kind for traced in functions for node in traced.nodes} & FUNCTIONS.keys()
    imports = f"from math import {', '.join(sorted({'inf', 'nan', *called}))}  # noqa: F401"
    text = f'"""{about}"""\n\n{imports}\n\nimport numpy as np\n'
    for traced in functions:
        given = traced.given
        _, lines, values = body(PYTHON, traced.nodes, traced.results)
        loads = [
            f"{''.join(f'{name}{k}, ' for k in range(math.prod(shape)))}= np.ravel(np.asarray({name}, float)).tolist()"
            for name, shape in given.arguments.items()
        ]
        out = [
            f"np.array([{', '.join(column)}]).reshape({result.shape})"
            for column, result in zip(values, traced.results, strict=True)
        ]
        inside = "\n".join(f"    {line}" for line in (*loads, *lines, f"return {', '.join(out)}"))
        text += f'\n\ndef {given.name}({", ".join(given.arguments)}):\n    """{_sentence(given)}"""\n{inside}\n'
    return text
