"""Section on the model terms that were tried on the logs, and either adopted or rejected."""

from ...identification._result import Identification
from .._markup import DASH, MINUS, Column, columns_table, escaped, faint, folded, names_column, number


def terms_section(result: Identification) -> str:
    """Section with the error reduction on held-out blocks and the outcome of each trial; empty if there were no trials."""
    if result.choice is None:
        return ""
    trials = sorted(result.choice.trials, key=lambda trial: (not trial.adopted, trial.joint))
    joints = ("all joints", *result.chain.joint_names)
    columns = [
        names_column("joint", (joints[trial.joint] for trial in trials)),
        Column("kind", [escaped(trial.kind) for trial in trials], "text"),
        Column("best of its kind", [escaped(trial.name) for trial in trials], "text"),
        Column("reduces the error by [%]", [number(trial.gain, 3) for trial in trials]),
        Column("in standard errors", [f"{trial.ratio:.1f}".replace("-", MINUS) for trial in trials]),
        Column("", [("adopted", "yes") if trial.adopted else DASH for trial in trials], "text"),
    ]
    return folded(
        "Terms tried",
        "terms",
        columns_table(columns),
        faint(
            "The fitted runs are divided into blocks, each of which is predicted by a fit to the others. A term is adopted if "
            "it reduces a joint's RMS error by at least 1 %, and if the mean gain over the blocks is significant in a "
            "one-sided t-test at the level of 5 %. The gain of an adopted term is relative "
            "to the model without this term; the gain of a rejected term is relative to the final model."
        ),
    )
