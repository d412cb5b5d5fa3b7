"""One process that makes inputs and reads them, one after the other: a line of JSON in, a line of JSON out."""

import contextlib
import json
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

LONGEST = 2000  # characters of a message
SPARE = 4 << 30  # bytes of address space, beyond what the process has once it has begun
GROWTH = 1 << 30  # bytes of memory that the reading of one small file may add
OK, REFUSED = "read", "refused"
FOREIGN, SILENT, MEMORY, MESSAGE = "foreign exception", "wrong without a word", "out of memory", "poor message"
ABORT, HANG, UNMADE = "abort", "hang", "not made"  # the last is a fault of the fuzzer itself
DEFECTS = (FOREIGN, SILENT, MEMORY, MESSAGE, ABORT, HANG, UNMADE)


def outcome(call: dict[str, Any], folder: Path) -> tuple[str, str]:
    """Outcome of an input, with its message."""
    from jaxdyn.errors import JaxdynError

    from .checks import Wrong
    from .readers import read

    before = _peak()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = read(call, folder)
    except JaxdynError as error:
        status, words = _judged(str(error), call)
    except Wrong as error:
        status, words = SILENT, str(error)
    except MemoryError:
        status, words = MEMORY, _place()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        status, words = FOREIGN, f"{type(error).__name__}: {str(error)[:300]} {_place()}"
    else:
        status, words = (REFUSED, f"exit code {code}") if code else (OK, "")
    if _peak() - before > GROWTH:
        return MEMORY, f"{(_peak() - before) >> 20} MiB more; {words}"
    return status, words


def _judged(message: str, call: dict[str, Any]) -> tuple[str, str]:
    """A message of the library is short and names the file."""
    if len(message) > LONGEST:
        return MESSAGE, f"{len(message)} characters: {message[:200]}"
    name = Path(call["file"]).name
    named = len(name) > 150 or name in message or repr(name)[1:-1] in message  # long ones are cut
    texts = ("<text>", "the MJCF text", "the column map", "columns.toml", "missing.csv")
    if call["reader"] != "command" and not named and not any(x in message for x in texts):
        return MESSAGE, f"the file is not named: {message[:300]}"
    return REFUSED, message


def _place() -> str:
    """Place in the package where the error being handled was raised."""
    frames = traceback.extract_tb(sys.exc_info()[2])
    ours = [f for f in frames if f"{os.sep}jaxdyn{os.sep}" in f.filename and "site-packages" not in f.filename]
    last = ours[-1] if ours else frames[-1]
    return f"({Path(last.filename).name}:{last.lineno} in {last.name}; {Path(frames[-1].filename).name}:{frames[-1].lineno})"


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _bounded() -> None:
    """Limit the address space to what the process has by now and some more."""
    with contextlib.suppress(OSError, ValueError):
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + SPARE
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))


def prepare(valid: Path) -> None:
    """JAX set up, the valid files made and read once, so that what follows is only what an input adds."""
    import jax

    from . import seeds

    jax.config.update("jax_enable_x64", True)
    if not (valid / "made").exists():
        seeds.make(valid)
    with contextlib.suppress(ImportError):
        import pinocchio  # noqa: F401
    with contextlib.suppress(ImportError):
        import mujoco  # noqa: F401


def main() -> None:
    valid, scratch = Path(sys.argv[1]), Path(sys.argv[2])
    from .kinds import make_input

    # what is printed while reading must not come between the answers
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    prepare(valid)
    _bounded()
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        folder = scratch / "input"
        os.chdir(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        if asked.get("folder"):
            shutil.copytree(asked["folder"], folder)
            call = json.loads((folder / "call.json").read_text())
        else:
            try:
                call = make_input(asked["kind"], asked["key"], valid, folder)
            except Exception as error:
                words = f"{type(error).__name__}: {error} {_place()}"
                answer = {"status": UNMADE, "words": words, "seconds": 0.0, "call": {"reader": ""}}
                print(json.dumps(answer), file=answers, flush=True)
                continue
        os.chdir(folder)
        start = time.perf_counter()
        status, words = outcome(call, folder)
        answer = {"status": status, "words": words, "seconds": time.perf_counter() - start, "call": call}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
