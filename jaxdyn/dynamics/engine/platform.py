"""Functions that have one form for the CPU and another for other platforms; a program contains the form for its platform.

Unlike `jax.lax.platform_dependent`, they trace the other form only when a program is lowered for another platform.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..._jax_compat import (
    Primitive,
    eval_jaxpr,
    instantiate_zeros,
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    register_lowering,
)

_by_platform_p = Primitive("by_platform")
_by_platform_p.multiple_results = True


def by_platform(
    cpu: Callable, default: Callable, *arguments: Any, each: tuple[Callable, tuple[bool, ...]] | None = None
) -> Any:
    """Evaluate cpu(*arguments) in programs for the CPU, and default(*arguments) in programs for other platforms.

    Neither function may capture traced arrays. Derivatives are computed in forward mode. For a batch, `each` is the
    function of one state and the mask of the arguments with a batch axis (`parallel.kernel_vmap`).
    """
    variables, structure = jax.tree.flatten(arguments)
    mesh = jax.sharding.get_abstract_mesh()

    def flat(function):
        return lambda *variables: function(*jax.tree.unflatten(structure, variables))

    def other(*variables):
        with jax.sharding.use_abstract_mesh(mesh):
            return jax.tree.leaves(flat(default)(*variables))

    jaxpr, shapes = jax.make_jaxpr(flat(cpu), return_shape=True)(*variables)
    out = _by_platform_p.bind(*variables, cpu=jaxpr, default=other, each=each)
    return jax.tree.unflatten(jax.tree.structure(shapes), out)


def _evaluated(jaxpr) -> Callable[..., list]:
    return lambda *variables: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *variables)


@_by_platform_p.def_effectful_abstract_eval
def _(*_, cpu, **__):
    return cpu.out_avals, cpu.effects


@_by_platform_p.def_impl
def _(*variables, cpu, default, each):
    del each
    on_cpu = all(device.platform == "cpu" for x in variables for device in jnp.asarray(x).devices())
    return (_evaluated(cpu) if on_cpu else default)(*variables)


def _batched(variables, dims, *, cpu, default, each):
    del each
    in_axes = tuple(dims)
    out = by_platform(jax.vmap(_evaluated(cpu), in_axes), jax.vmap(default, in_axes), *variables)
    return out, [0] * len(out)


def _jvp(primals, tangents, *, cpu, default, each):
    def pushed(function):
        return lambda primals, tangents: jax.jvp(function, primals, tangents)[1]

    # values and derivatives are computed separately, so that values are not batched when only the tangents are batched
    out = _by_platform_p.bind(*primals, cpu=cpu, default=default, each=each)
    tangents = tuple(instantiate_zeros(t) for t in tangents)
    return out, by_platform(pushed(_evaluated(cpu)), pushed(default), tuple(primals), tangents)


primitive_batchers[_by_platform_p] = _batched
primitive_jvps[_by_platform_p] = _jvp
register_lowering(
    _by_platform_p,
    lambda ctx, *x, cpu, **_: lower_fun(_evaluated(cpu), multiple_results=True)(ctx, *x),
    platform="cpu",
)
register_lowering(_by_platform_p, lambda ctx, *x, default, **_: lower_fun(default, multiple_results=True)(ctx, *x))
