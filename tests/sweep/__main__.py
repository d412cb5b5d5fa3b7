"""The standing sweep: many robots in many programs, each robot in a process of its own with a time limit for each program.

Robots are the URDF and MJCF files of wheels on PyPI, below `--robots` (`--fetch` puts them there, 470 MB), and random trees.
Of each, loading is compared with Pinocchio's or MuJoCo's, then up to 40 programs on one device and 3 on two are compiled and
checked. Results are kept as they come, in `--results`: interrupt the sweep and start it again to go on. It ends with a table
and exit status 1 where a process aborted or hung, an exception was none of jaxdyn's, or a number was wrong.
"""

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .campaign import Campaign, Settings
from .models import all_models, fetch
from .report import summary


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    folder = Path(options.robots) if options.robots else None
    if folder and options.fetch:
        folder.mkdir(parents=True, exist_ok=True)
        fetch(folder)
    models = all_models(folder, options.trees, options.seed)
    models = [m for m in models if all(part in m.name for part in options.only)][: options.models]
    settings = Settings(options.programs, options.limit, not options.one_device, options.quick, options.seed)
    try:
        campaign = Campaign(settings, Path(options.results))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    due = [model for model in models if model.name not in campaign.finished]
    start = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:

        def one(model):
            if time.monotonic() - start < 60 * options.minutes:
                campaign.run(model)
                done = len(campaign.finished)
                print(f"{done} of {len(models)} after {time.monotonic() - start:.0f} s: {model.name}", file=sys.stderr)

        tasks = [pool.submit(one, model) for model in due]
        try:
            for task in tasks:
                task.result()
        except KeyboardInterrupt:
            campaign.stop()
            pool.shutdown(cancel_futures=True)
            raise
    text, defects = summary(campaign.lines, {m.name for m in models})
    print(text)
    return int(defects > 0)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sweep", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--robots", metavar="FOLDER", help="where the wheels are unpacked; without, random trees only")
    parser.add_argument("--fetch", action="store_true", help="fetch and unpack the wheels that are not there, with pip")
    parser.add_argument("--trees", type=int, default=100, metavar="N", help="random trees")
    parser.add_argument("--models", type=int, metavar="N", help="at most so many robots of the shuffled list")
    parser.add_argument("--programs", type=int, default=40, metavar="N", help="programs of each robot on one device")
    parser.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="robots whose names hold this")
    parser.add_argument("--one-device", action="store_true", help="leave out the programs on two devices")
    parser.add_argument("--quick", action="store_true", help="LLVM does not optimise: half the time, not users' flags")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="robots at a time")
    parser.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="for one program")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no robot after so long")
    parser.add_argument("--results", default=".sweep.jsonl", metavar="FILE")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on")
