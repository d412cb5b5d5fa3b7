"""Files of complete torque models, including terms that a chain cannot contain: `save_torque_model`, `load_torque_model`.

The file format is that of `save_model`, with two additions. The first line also lists the further terms with their class
and static fields, and the arrays of these terms follow those of the chain. Terms are found by their class name, so new
classes of terms are supported automatically.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import DTypeLike

from ...errors import ModelError
from ...io._model_file import read_model, write_model
from .._friction.model import FrictionModel
from .._friction.terms import FrictionTerm
from .._regression.columns import RECIPES
from .torque_model import TorqueModel


def save_torque_model(model: TorqueModel, path: str | os.PathLike[str], about: Mapping[str, str] | None = None) -> None:
    """Save a complete model to one file, for example model.eqx, from which `load_torque_model` restores it bit for bit.

    `load_model` reads only the chain from such a file, and warns if the file contains further terms. If the model is
    only a chain, the file is identical to one written by `save_model`.

    Args:
        model: the model.
        path: the file.
        about: notes, which are stored as text in the first line.

    Raises:
        ModelError: the model has user-defined columns (`ExtraColumns`), which are functions and cannot be saved; or as
            for `save_model`. `dataclasses.replace(model, extra=(), extra_values=None)` removes such columns.
    """
    if own := [name for e in model.extra if e.recipe is None for name in e.names]:
        raise ModelError(
            f"the columns {', '.join(own)} are user-defined functions, which cannot be saved to a file",
            "save the model without them: dataclasses.replace(model, extra=(), extra_values=None)",
        )
    beyond: dict[str, Any] = {}
    arrays: dict[str, Array] = {}
    if model.friction is not None:
        assert model.coefficients is not None
        terms = [_described(term) for term in model.friction.terms]
        beyond["friction"] = {"cutoff": model.friction.cutoff, "terms": terms}
        arrays["coefficients"] = model.coefficients
        for k, term in enumerate(model.friction.terms):
            arrays |= {f"terms.{k}.{name}": value for name, value in _numbers(term)}
    if model.extra:
        assert model.extra_values is not None
        beyond["extra"] = [e.recipe for e in model.extra]
        arrays["extra_values"] = model.extra_values
    if model.delay is not None:
        arrays["delay"] = model.delay
    write_model(model.chain, path, about, beyond, arrays)


def load_torque_model(path: str | os.PathLike[str], *, dtype: DTypeLike | None = None) -> TorqueModel:
    """Read a model saved by `save_torque_model`, or a chain saved by `save_model`, from any version of the library.

    Args:
        path: the file.
        dtype: floating-point type of the leaves; by default that of the file.

    Raises:
        ModelError: as for `load_model`; or the class of a friction term is unknown. If it is your own subclass of
            `FrictionTerm`, import it first.
    """
    chain, beyond, arrays = read_model(path, dtype)
    try:
        friction = _friction(beyond["friction"], arrays) if "friction" in beyond else None
        extra = tuple(
            RECIPES[name](*(tuple(x) if isinstance(x, list) else x for x in arguments))
            for name, arguments in beyond.get("extra", ())
        )
        numbers = (arrays.get(name) for name in ("extra_values", "delay"))
        return TorqueModel(chain, friction, arrays.get("coefficients"), extra, *numbers)
    except ModelError as error:
        raise ModelError(error.fault, error.remedy, place=path) from None
    except Exception:  # JSON of another form can cause any exception
        raise ModelError("the first line does not describe a model; was the file edited by hand?", place=path) from None


def _friction(held: Mapping[str, Any], arrays: Mapping[str, Array]) -> FrictionModel:
    kinds, terms = {kind.__name__: kind for kind in _kinds(FrictionTerm)}, []
    for k, said in enumerate(held["terms"]):
        static = {name: tuple(x) if isinstance(x, list) else x for name, x in said["static"].items()}
        if (kind := kinds.get(said["kind"])) is None:
            raise ModelError(
                f"the class of the friction term {said['kind']} is unknown",
                "import the module that defines it first",
            )
        start = f"terms.{k}."
        numbers = {name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)}
        terms.append(kind(**static, **numbers))
    return FrictionModel(tuple(terms), held["cutoff"])


def _described(term: FrictionTerm) -> dict[str, Any]:
    """A term's class and static fields."""
    static = {f.name: getattr(term, f.name) for f in dataclasses.fields(term) if f.metadata.get("static")}
    return {"kind": type(term).__name__, "static": static}


def _numbers(term: FrictionTerm) -> Iterator[tuple[str, Array]]:
    for field in dataclasses.fields(term):
        if not field.metadata.get("static"):
            yield field.name, jnp.asarray(np.asarray(getattr(term, field.name)))


def _kinds(kind: type) -> Iterator[type]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)
