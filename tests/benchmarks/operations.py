"""Floating-point operations of a program, counted from its jaxpr: those of the algorithm, before XLA's optimisation.

An addition, multiplication, division, root or comparison of two floats is one operation, and a multiply-add is two. A sine,
cosine or other transcendental function is also one operation; these are also counted separately. The body of a scan counts
once per iteration. Moving numbers does not count. XLA's own cost analysis is not suitable, because it counts the body of a loop
only once.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

ONE = {
    "add",
    "sub",
    "mul",
    "div",
    "rem",
    "max",
    "min",
    "sqrt",
    "rsqrt",
    "sign",
    "floor",
    "ceil",
    "abs",
    "neg",
    "square",
}
ONE |= {"add_any", "lt", "gt", "le", "ge", "eq", "ne", "select_n", "clamp"}
TRANSCENDENTAL = {"sin", "cos", "tan", "tanh", "exp", "log", "log1p", "expm1", "atan2", "asin", "acos", "atan", "pow"}
OVER_INPUT = {"reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "cumsum", "cumprod"}


@dataclasses.dataclass
class Count:
    """Operations of a program.

    Attributes:
        operations: number of all floating-point operations.
        transcendental: number of transcendental functions among them.
        equations: number of equations in the jaxpr and in the jaxprs it contains, a measure of the program's size.
        bounded: False if the program contains a loop of unknown length.
    """

    operations: float = 0.0
    transcendental: float = 0.0
    equations: int = 0
    bounded: bool = True


def count(function, *arguments) -> Count:
    """Count the operations of f(*arguments)."""
    total = Count()
    _walk(jax.make_jaxpr(function)(*arguments).jaxpr, 1.0, total)
    return total


def _walk(jaxpr, times: float, total: Count) -> None:
    for equation in jaxpr.eqns:
        total.equations += 1
        name, params = equation.primitive.name, equation.params
        inner = [y for x in params.values() for y in (x if isinstance(x, (tuple, list)) else [x]) if _is_program(y)]
        if name == "scan":
            _walk(_program(params["jaxpr"]), times * params["length"], total)
        elif name == "while":
            total.bounded = False
            for program in inner:
                _walk(_program(program), times, total)
        elif name == "cond":
            sizes = []
            for branch in params["branches"]:
                part = Count()
                _walk(_program(branch), times, part)
                sizes.append(part)
                total.equations += part.equations
            worst = max(sizes, key=lambda part: part.operations)
            total.operations += worst.operations
            total.transcendental += worst.transcendental
        elif name.startswith(("custom_jvp", "custom_vjp")):
            program = params.get("call_jaxpr", params.get("fun_jaxpr"))
            _walk(_program(program), times, total)
        elif inner:
            for program in inner:
                _walk(_program(program), times, total)
        else:
            operations = times * _operations(name, equation)
            total.operations += operations
            if name in TRANSCENDENTAL:
                total.transcendental += operations


def _operations(name: str, equation) -> float:
    out, given = equation.outvars[0].aval, [x.aval for x in equation.invars]
    if not given or not jnp.issubdtype(getattr(given[-1], "dtype", jnp.int32), jnp.floating):
        return 0.0
    if name in ONE or name in TRANSCENDENTAL:
        return math.prod(out.shape)
    if name == "integer_pow":
        power = abs(equation.params["y"])
        return math.prod(out.shape) * max(power.bit_length() + power.bit_count() - 2, 0)
    if name in OVER_INPUT:
        return math.prod(given[0].shape)
    if name == "dot_general":
        contracted = equation.params["dimension_numbers"][0][0]
        return 2.0 * math.prod(out.shape) * math.prod(given[0].shape[i] for i in contracted)
    if name in ("scatter-add", "scatter_add"):
        return math.prod(given[-1].shape)
    if name == "cholesky":
        return math.prod(out.shape) * out.shape[-1] / 3
    if name == "triangular_solve":
        return math.prod(out.shape) * given[0].shape[-1]
    if name in ("lu", "lu_pivots_to_permutation"):
        return 2 / 3 * math.prod(given[0].shape) * given[0].shape[-1] if name == "lu" else 0.0
    return 0.0


def _is_program(x) -> bool:
    return hasattr(x, "eqns") or hasattr(x, "jaxpr")


def _program(x):
    return getattr(x, "jaxpr", x) if not hasattr(x, "eqns") else x


def size_in_bytes(tree) -> int:
    """Number of bytes of all arrays in a tree, or of the shapes that `jax.eval_shape` returns."""
    return sum(math.prod(x.shape) * jnp.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree))
