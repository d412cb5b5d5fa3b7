"""Runs a group's cases in this process, with a line of JSON before and after each, so that an abort names its program.

    python -m users_programs.run GROUP [--tier ci|nightly|all] [--single] [--devices N] [--after N]

--single: JAX's default types, float32, and no derivatives; else x64 is on. --devices: how many the processor counts as.
--after: how many programs to skip. A group has `cases()`, or `programs()` by name, which say what is wrong.
"""

import argparse
import importlib
import json
import time
import traceback

import jax


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("group")
    parser.add_argument("--tier", default="ci", choices=["ci", "nightly", "all"])
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--after", type=int, default=0)
    options = parser.parse_args()
    if not options.single:
        jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", options.devices)
    from .case import single_stages, stages

    group = importlib.import_module(f".{options.group}", __package__)
    programs = [
        (f"{name}, {stage}", check)
        for rank, (name, case) in enumerate(group.cases().items() if hasattr(group, "cases") else ())
        for stage, check in (
            single_stages(case, options.tier) if options.single else stages(case, rank, options.tier)
        ).items()
    ]
    if hasattr(group, "programs"):
        programs += group.programs().items()
    print(json.dumps({"programs": len(programs)}), flush=True)
    for name, check in programs[options.after :]:
        print(json.dumps({"begun": name}), flush=True)
        start = time.process_time()
        try:
            problem = check()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}\n{''.join(traceback.format_tb(error.__traceback__)[-2:])}"
        print(json.dumps({"done": name, "problem": problem, "seconds": time.process_time() - start}), flush=True)


if __name__ == "__main__":
    main()
