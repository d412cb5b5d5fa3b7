"""Section on the terms chosen from the log and those tried and rejected."""

from ...identification._result import Identification
from .._markup import DASH, MINUS, Column, columns_table, escaped, faint, folded, names_column, number


def terms_section(result: Identification) -> str:
    """One row per trial: its reduction of the error on left-out blocks, and whether it was adopted; empty without a choice."""
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
            "The fitted runs are cut into blocks, each predicted by a fit to the others. A term is adopted if it reduces the "
            "RMS of a joint's error by at least 1 %, and if the mean gain over the blocks exceeds two standard errors (one, "
            "if the joints' gains together exceed two). Adopted terms are compared with the model without them, the others "
            "with the final model."
        ),
    )
