"""Map from lines to tests, recorded once per test file and tier and reused by later draws."""

import dataclasses
import difflib
import functools
import hashlib
import json
import shutil
from pathlib import Path

from .recording import COLLECTION, FIXTURE, IMPORT, write_json
from .settings import Project
from .sites import Site
from .slots import Slot, Slots, ToolError


@dataclasses.dataclass(frozen=True)
class Portion:
    """Tests of one file, in the order in which to run them."""

    tests: tuple[str, ...]
    cost: float  # processor seconds, with the fixtures that they share


@dataclasses.dataclass(frozen=True)
class Covering:
    """Tests for a statement, by file: those that were seen to run it, and the others of the same files.

    The others may run it too: what one test has made JAX trace, the next ones use.
    """

    seen: tuple[Portion, ...]
    others: tuple[Portion, ...]
    known: tuple[str, ...]  # all tests of these files, also those that fail or skip anyway


class Map:
    """Records of the test files of one tier."""

    def __init__(self, project: Project, tier: str):
        self.project, self.tier = project, tier
        self.folder = project.folder / "map" / tier
        self.records = {name: json.loads(path.read_text()) for name, path in self._paths() if path.exists()}

    def _paths(self) -> list[tuple[str, Path]]:
        return [(name, self.folder / f"{Path(name).stem}.json") for name in self.project.tests()]

    def everything(self) -> list[str]:
        return [name for name, _ in self._paths()]

    def missing(self) -> list[str]:
        """Test files without a record, or changed since."""
        return [name for name in self.everything() if self.records.get(name, {}).get("digest") != self._digest(name)]

    def _digest(self, name: str) -> str:
        return digest((self.project.root / name).read_text(encoding="utf-8"))

    def record(self, names: list[str], slots: Slots) -> None:
        """Run test files under coverage, each in a process of its own."""
        texts = {path: path.read_text(encoding="utf-8") for path in self.project.all_sources()}
        kept = self.project.folder / "sources"
        for folder in (kept, self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        for text in texts.values():
            (kept / digest(text)).write_text(text, encoding="utf-8")
        digests = {path.relative_to(self.project.root).as_posix(): digest(text) for path, text in texts.items()}

        def run(slot: Slot, name: str) -> tuple[str, dict]:
            parts = slot.folder / "parts"
            shutil.rmtree(parts, ignore_errors=True)
            reply = slot.ask((*self.project.tiers[self.tier], name), parts=str(parts))
            if reply["code"] not in (0, 1, 5) or reply["result"] is None:
                text = slot.log.read_text(errors="replace")
                raise ToolError(f"{name} could not be recorded (exit code {reply['code']}):\n{text[-3000:]}")
            return name, reply

        for count, (name, reply) in enumerate(slots.each(run, names), 1):
            record = {**reply["result"], "cpu": reply["cpu"], "digest": self._digest(name)}
            record["sources"] = {file: digests[file] for file in record["lines"]}
            self.records[name] = record
            write_json(dict(self._paths())[name], record)
            print(
                f"map [{count:2d}/{len(names)}] {name}: {len(record['tests'])} tests, {reply['cpu']:.0f} s", flush=True
            )
            for test, what in record["tests"].items():
                if what["outcome"] == "failed":
                    print(f"    fails on the unchanged package and is left out: {test}")

    def stale(self) -> list[str]:
        """Source files that have changed since some record was made; lines are then found by comparison."""
        seen = {(file, known) for record in self.records.values() for file, known in record["sources"].items()}
        return sorted({file for file, known in seen if self._changed(file, known)})

    def _changed(self, file: str, known: str) -> bool:
        path = self.project.root / file
        return not path.exists() or digest(path.read_text(encoding="utf-8")) != known

    @functools.cache  # noqa: B019  one map lives as long as the run
    def _translation(self, file: str, known: str) -> dict[int, int] | None:
        """Lines of today's file by those of a recorded one; None where they are the same."""
        if not self._changed(file, known):
            return None
        old = (self.project.folder / "sources" / known).read_text(encoding="utf-8").splitlines()
        new = (self.project.root / file).read_text(encoding="utf-8").splitlines()
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        return {block.b + k + 1: block.a + k + 1 for block in blocks for k in range(block.size)}

    def _hits(self, name: str, site: Site) -> set[str]:
        """Contexts of one test file that run a statement; all that run the file where the statement is new."""
        record = self.records[name]
        if site.file not in record["lines"]:
            return set()
        contexts = record["lines"][site.file]
        lines = set(range(site.span[0], site.span[1] + 1))
        translation = self._translation(site.file, record["sources"][site.file])
        if translation is not None:
            lines = {translation[line] for line in lines if line in translation}
            if not lines:
                return set(contexts)
        return {context for context, text in contexts.items() if _meets(text, lines)}

    def covering(self, site: Site) -> Covering:
        """Tests that pass on the unchanged package, of the files that run the statement of a change.

        What importing runs may show in any test that runs something of the changed file.
        """
        seen, others, known = [], [], []
        for name, record in self.records.items():
            hits = self._hits(name, site)
            if IMPORT in hits:
                hits = set(record["lines"][site.file])
            if not hits - {IMPORT}:
                continue
            tests = {test: what for test, what in record["tests"].items() if what["outcome"] == "passed"}
            own = {test: what for test, what in tests.items() if _belongs(test, what["fixtures"], hits)}
            known += record["tests"]
            seen.append(self._portion(record, own))
            others.append(self._portion(record, {test: what for test, what in tests.items() if test not in own}))
        seen, others = (tuple(portion for portion in portions if portion.tests) for portions in (seen, others))
        return Covering(seen, others, tuple(known))

    def _portion(self, record: dict, tests: dict[str, dict]) -> Portion:
        shared = {name for what in tests.values() for name in what["fixtures"]} & set(record["fixtures"])
        cost = sum(what["cpu"] for what in tests.values()) + sum(record["fixtures"][name] for name in shared)
        return Portion(tuple(sorted(tests, key=lambda test: tests[test]["cpu"])), cost)


def _belongs(test: str, fixtures: list[str], hits: set[str]) -> bool:
    """True if a test runs in one of these contexts: its own, the import of its file, or a fixture."""
    shared = {context.removeprefix(FIXTURE) for context in hits if context.startswith(FIXTURE)}
    return test in hits or COLLECTION in hits or bool(shared & set(fixtures)) or bool(shared and "request" in fixtures)


def _meets(text: str, lines: set[int]) -> bool:
    for run in text.split(","):
        first, _, last = run.partition("-")
        if any(int(first) <= line <= int(last or first) for line in lines):
            return True
    return False


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]
