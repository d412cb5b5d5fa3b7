"""One model in a process of its own: a line of JSON before and after each program, so that an abort names the program.

python -m sweep.worker NAME KIND SOURCE FLOATING [--seed 0] [--programs 40] [--after N]
"""

import argparse
import json
import time
import traceback
import warnings

import jax
import numpy as np

import jaxdyn

from .models import FREE_NAME, Model
from .peers import NoPeer, moving_joints, truth
from .programs import Robot, Wrong, programs

STATES = 3


def say(**line: object) -> None:
    print(json.dumps(line), flush=True)


def loaded(model: Model) -> jaxdyn.Chain:
    """The model's chain."""
    if model.kind == "random":
        from .trees import random_tree

        return random_tree(int(model.source))
    if model.floating:
        return jaxdyn.load(model.source, floating_base=FREE_NAME)
    return jaxdyn.load(model.source)


def robot_of(model: Model, chain: jaxdyn.Chain, seed: int, singular: bool = False) -> tuple[Robot, str | None]:
    """The robot at random states, and why no other program knows it, or None."""
    rng = np.random.default_rng(seed)
    turn = jax.random.key(seed)
    positions = [np.asarray(jaxdyn.random_configuration(chain, key)) for key in jax.random.split(turn, STATES)]
    states = [(q, *rng.normal(size=(2, chain.nv))) for q in positions]
    frame, reason, truths = chain.link_names[-1], None, []
    try:
        truths = [truth(model, chain, frame, *state) for state in states[:2]]
    except NoPeer as error:
        reason = str(error)
    return Robot(chain, frame, states, truths, singular), reason


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("kind")
    parser.add_argument("source")
    parser.add_argument("floating", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--after", type=int, default=0, help="how many programs to leave out")
    parser.add_argument("--programs", type=int, default=40)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    model = Model(options.name, options.kind, options.source, bool(options.floating))
    say(begun="load")
    peer, why = None, None
    if model.kind != "random":
        try:
            peer = moving_joints(model)
        except NoPeer as error:
            why = str(error)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", jaxdyn.ModelWarning)
        try:
            chain = loaded(model)
        except jaxdyn.ModelError as error:
            if model.kind == "random":  # which are made to be possible
                say(done="load", problem=f"refused: {error}")
            else:
                say(done="load", refused=str(error), peer=peer, why=why)
            return
    noted = [str(w.message) for w in seen if issubclass(w.category, jaxdyn.ModelWarning)]
    singular = any("mass matrix is singular" in message for message in noted)
    robot, reason = robot_of(model, chain, options.seed, singular)
    todo = programs(robot, options.seed, jax.device_count(), options.programs)
    say(done="load", refused=None, peer=peer, why=why, no_truth=reason, nv=chain.nv, programs=len(todo), warned=noted)
    for title, check in list(todo.items())[options.after :]:
        say(begun=title)
        start, problem = time.process_time(), None
        try:
            check()
        except Wrong as error:
            problem = f"wrong: {error}"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-2:])}"[
                :2000
            ]
        say(done=title, problem=problem, seconds=round(time.process_time() - start, 2))


if __name__ == "__main__":
    main()
