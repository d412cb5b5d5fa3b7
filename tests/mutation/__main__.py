"""Mutation check: change one sign, factor, index or comparison at a time and see whether a test fails.

The first run records which tests run which lines (`--map` does so anew), the later ones use that. Each change is tried
in a copy of the tree, on the tests that run its line, until one fails. Results are kept as they come: interrupt the run
and start it again to go on. Changes that no test could notice are named, with the reason, in tests/mutation/equivalent.toml.
"""

import argparse
import sys
from pathlib import Path

from . import report
from .campaign import Results, run
from .coverage_map import Map
from .settings import Project
from .sites import KINDS, Site, all_sites, draw
from .slots import Slots, ToolError


def main(arguments: list[str] | None = None, project: Project | None = None) -> int:
    """0 where at least the wanted share of the changes was killed, 1 where not."""
    project = project or Project()
    options = parse(arguments, project)
    everywhere = list(all_sites(project.root, project.sources()))
    equivalents = report.read_equivalents(project.equivalents)
    for entry in report.stale(equivalents, everywhere):
        print(f"STALE: {project.equivalents.name} names a change that is not there: {entry.file}: {entry.before}")
    sites = draw(chosen(everywhere, options, project), options.count, options.seed)
    if options.list:
        for site in sorted(sites, key=lambda s: (s.file, s.line, s.column)):
            print(f"{site.file}:{site.line}  {site.kind}\n  - {site.before}\n  + {site.after}")
        print(f"{len(sites)} of {len(everywhere)}")
        return 0
    results = Results(Path(options.results or project.folder / f"results-{options.seed}.jsonl"))
    tiers = list(project.tiers)[: list(project.tiers).index(options.tier) + 1]
    with Slots(project, options.jobs, options.typecheck) as slots:
        for count, tier in enumerate(tiers, 1):
            map_ = Map(project, tier)
            names = map_.everything() if options.map else map_.missing()
            tried = [site for site in sites if not any(entry.names(site) for entry in equivalents)]
            due = [] if options.map else results.due(tried, tiers[:count], options.retry)
            if names and (due or options.map):
                map_.record(names, slots)
            for file in map_.stale() if due else ():
                print(f"changed since the map was made, lines are found by comparison: {file}")
            run(due, map_, slots, results, options.budget)
    if options.map:
        return 0
    found = report.summary(sites, equivalents, results, tiers)
    print(found.text())
    killed, tried = found.share(tiers[-1])
    return int(100 * killed < options.at_least * tried)


def chosen(sites: list[Site], options: argparse.Namespace, project: Project) -> list[Site]:
    """Places in the packages, files and lines asked for, of the kinds asked for."""
    places = [name.partition(":") for name in options.files or ()]
    parts = tuple(f"{project.package}/{part}/" for part in options.packages or ())

    def wanted(site: Site) -> bool:
        here = any(site.file == file and line in ("", str(site.line)) for file, _, line in places)
        return (here or not places) and (site.file.startswith(parts) or not parts) and site.kind in options.kinds

    return [site for site in sites if wanted(site)]


def parse(arguments: list[str] | None, project: Project) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200, help="changes drawn; a larger draw contains the smaller")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="+", choices=project.parts, metavar="NAME", help=", ".join(project.parts))
    parser.add_argument("--files", nargs="+", metavar="FILE[:LINE]", help="draw from these, relative to the root")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument(
        "--tier", choices=project.tiers, default=next(iter(project.tiers)), help="tests up to this tier"
    )
    parser.add_argument("--jobs", type=int, default=2, help="changes tried at a time")
    parser.add_argument(
        "--budget", type=float, default=300.0, metavar="SECONDS", help="processor time of one change in each tier"
    )
    parser.add_argument("--at-least", type=float, default=0.0, metavar="PERCENT", help="exit with 1 under this share")
    parser.add_argument("--retry", action="store_true", help="try survivors again: tests have been added")
    parser.add_argument("--typecheck", action="store_true", help="check annotations at run time, which may kill more")
    parser.add_argument("--results", metavar="FILE", help="by default .mutation/results-SEED.jsonl")
    parser.add_argument("--list", action="store_true", help="only show the draw")
    parser.add_argument("--map", action="store_true", help="only record which tests run which lines")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ToolError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on")
