"""Public functions as users compile them, each alone, in batches and differentiated, in processes that an abort may end.

The other tests compile with `quick` flags (conftest.py); these with none. `users_programs` has the functions and their
arguments, `case.stages` what of it runs when.
"""

import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest

import jaxdyn
from data_paths import ROOT
from helpers import coverage_check
from users_programs.elsewhere import BY_EXAMPLES, NOT_OF_ARRAYS, WITHIN
from users_programs.environment import environment

GROUPS = "dynamics", "mechanism", "quantities", "frames", "spatial", "motion", "control", "trajectory", "solvers"
OFTEN = "dynamics", "mechanism", "trajectory"  # in continuous integration; most others are compiled by examples there
PLACES = "arguments", "flow", "compilers"  # where calls of dynamics stand
LIMIT = 1500  # [s] for a group; what takes longer hangs


def failures(group: str, *options: str) -> list[str]:
    """Failures in a group; after an abort the next program runs."""
    found, done, count = [], 0, None
    own = environment()
    if group in PLACES:  # XLA cannot serialize what it has from the cache ("Function ... not found", jaxlib 0.10.2)
        own.pop("JAX_COMPILATION_CACHE_DIR", None)
    while count is None or done < count:
        command = [sys.executable, "-m", "users_programs.run", group, *options, "--after", str(done)]
        try:
            ended = subprocess.run(command, env=own, capture_output=True, text=True, timeout=LIMIT)
            out, errors, how = ended.stdout, ended.stderr, f"ended the process with {ended.returncode}"
        except subprocess.TimeoutExpired as late:
            out, errors, how = (late.stdout or b"").decode(), "", f"took more than {LIMIT} s"
        lines = [json.loads(line) for line in out.splitlines() if line.startswith('{"')]
        assert lines, f"{group} did not start:\n{errors[-3000:]}"
        count = lines[0]["programs"]
        found += [f"{line['done']}: {line['problem']}" for line in lines if line.get("problem")]
        done += sum("done" in line for line in lines)
        if done < count:
            assert "begun" in lines[-1], errors[-3000:]
            said = next((line for line in errors.splitlines() if line.startswith("F")), errors[-300:])
            found.append(f"{lines[-1]['begun']} {how}: {said}")
            done += 1
    return found


@pytest.mark.parametrize(
    "group", [pytest.param(g, marks=pytest.mark.ci if g in OFTEN else pytest.mark.nightly) for g in GROUPS]
)
def test_programs_of_users(group):
    problems = failures(group)
    assert not problems, "\n".join(problems)


@pytest.mark.nightly
@pytest.mark.parametrize("group", PLACES)
def test_wherever_calls_stand(group):
    problems = failures(group, "--devices", "2")
    assert not problems, "\n".join(problems)


@pytest.mark.nightly
@pytest.mark.parametrize("group", ["dynamics"])
def test_programs_of_users_in_single_precision(group):
    problems = failures(group, "--single")
    assert not problems, "\n".join(problems)


@pytest.mark.nightly
@pytest.mark.parametrize("group", ["dynamics", "mechanism"])
def test_batches_in_single_precision(group):
    problems = failures(group, "--single", "--tier", "nightly")
    assert not problems, "\n".join(problems)


@pytest.mark.nightly
@pytest.mark.parametrize("group", PLACES)
def test_wherever_calls_stand_on_one_device(group):
    problems = failures(group)
    assert not problems, "\n".join(problems)


@pytest.mark.nightly
@pytest.mark.parametrize("group", GROUPS)
def test_derivatives_and_batches(group):
    problems = failures(group, "--tier", "nightly")
    assert not problems, "\n".join(problems)


def public() -> set[str]:
    """Names of all that can be called: exports of the package and its namespaces, and functions of modules among them."""
    found, check = set(), coverage_check()
    own = importlib.import_module("jaxdyn._public")  # where `jaxdyn` itself looks its names up
    for module in (own, *(getattr(jaxdyn, name) for name in check.NAMESPACES)):
        for name in check.exported(module):
            value = vars(module)[name]
            if not inspect.ismodule(value):
                found |= {name} if callable(value) else set()
            elif name not in check.NAMESPACES:
                here = getattr(value, "__all__", vars(value))
                found |= {
                    f"{name}.{k}"
                    for k, x in vars(value).items()
                    if k in here and k[0] != "_" and inspect.isfunction(x) and x.__module__.startswith(value.__name__)
                }
    return found


def test_every_public_function_is_compiled_as_users_do():
    """In a group of this file, or in the example that is named, or it is no function of arrays for the reason named."""
    tabled = {
        name.split(",")[0].split(" with ")[0]
        for group in GROUPS
        for name in importlib.import_module(f"users_programs.{group}").cases()
    }
    tabled |= {name.split(".")[0] for name in tabled if name[:1].isupper()} | set(WITHIN)
    listed = [name for names in NOT_OF_ARRAYS.values() for name in names]
    everywhere = [*sorted(tabled), *BY_EXAMPLES, *listed]
    assert public() - set(everywhere) == set(), "add them to a group or to users_programs.elsewhere"
    known = public() | {name for name in tabled if "." in name}
    assert set(everywhere) - known == set(), "these are no exports"
    assert len(listed) == len(set(listed)) and not set(listed) & (tabled | set(BY_EXAMPLES))
    for name, (example, word) in BY_EXAMPLES.items():
        text = (ROOT / "examples" / example).read_text()
        assert re.search(rf"jaxdyn\.(\w+\.)?{word}\b", text), f"{name}: {example} has no {word}"
    for name, part_of in WITHIN.items():
        assert part_of in tabled, f"{name}: there is no case {part_of}"
