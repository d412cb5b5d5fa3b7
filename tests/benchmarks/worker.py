"""The process that runs one part: it configures JAX before its first use and writes the records to a JSON file."""

import argparse
import json
import os
import sys
import warnings


def main() -> None:
    """Run a part; the command-line arguments are a JSON file with the settings, and the file to write."""
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    options = argparse.Namespace(**settings)
    warnings.filterwarnings("ignore", module=r"(brax|mujoco|frax|adam|flax|jaxopt)\b")
    import jax

    jax.config.update("jax_enable_x64", options.precision == "float64")
    jax.config.update("jax_cpu_enable_async_dispatch", not options.inline)
    jax.config.update("jax_num_cpu_devices", options.devices)
    import importlib

    from . import machine
    from .session import Session

    about = machine.description()
    session = Session(options, options.precision)
    importlib.import_module(f".parts.{options.part}", __package__).run(session)
    about["peaks"] = [
        {"precision": precision, "devices": devices, **machine.peaks(precision, options.budget, options.turns, devices)}
        for precision, devices in options.peaks
    ]
    draft = sys.argv[2] + ".part"
    with open(draft, "w", encoding="utf-8") as file:
        json.dump({"machine": about, "records": session.records}, file, default=float)
    os.replace(draft, sys.argv[2])


if __name__ == "__main__":
    main()
