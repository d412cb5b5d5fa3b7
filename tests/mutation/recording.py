"""Plugins of pytest for the processes in which tests run: which tests to run and what became of them; which lines each runs."""

import importlib
import json
import os
from pathlib import Path

import pytest

IMPORT = "import"  # context of what importing the package runs
COLLECTION = "collection"  # of what importing a test file runs
FIXTURE = "fixture "  # of a fixture that several tests share, before its name


class Selection:
    """Runs the chosen tests in the order given, and those of the same files that the map does not know."""

    def __init__(self, chosen: list[str], known: list[str]):
        self.order = {name: place for place, name in enumerate(chosen)}
        self.known = set(known)
        self.failed: str | None = None
        self.passed = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        left = [item for item in items if item.nodeid in self.known and item.nodeid not in self.order]
        items[:] = [item for item in items if item not in set(left)]
        items.sort(key=lambda item: self.order.get(item.nodeid, len(self.order)))
        config.hook.pytest_deselected(items=left)

    def pytest_runtest_logreport(self, report):
        self.passed += report.when == "call" and report.passed
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report):
        if report.failed and self.failed is None:
            self.failed = f"{report.nodeid} (importing it)"

    def result(self) -> dict:
        return {"failed": self.failed, "passed": self.passed}


class Recorder:
    """Lines of the package that each test of a file runs, in a process in which no other file has run.

    JAX traces a function once in a process, and only the test that is first to call it is seen to run its lines: tests of
    one file are told apart as a hint, files for certain. Fixtures of a module are set up once; what they run counts for
    every test that uses them.
    """

    def __init__(self, package: Path, folder: Path):
        import coverage

        self.package, self.folder = package, folder
        self.tests: dict[str, dict] = {}
        self.fixtures: dict[str, float] = {}
        self.contexts: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / "coverage.ini"
        lines = ["[run]", f"source = {package}", f"data_file = {folder / 'part'}", "parallel = true"]
        settings.write_text("\n".join([*lines, "context = ${MUTATION_CONTEXT}", ""]))
        os.environ["COVERAGE_CORE"] = "ctrace"  # others have no contexts
        self.coverage = coverage.Coverage(data_file=None, source=[str(package)], config_file=False)
        self.coverage.start()
        self._enter(IMPORT)
        importlib.import_module(package.name)
        self._enter(COLLECTION)
        os.environ["COVERAGE_PROCESS_START"] = str(settings)  # for the processes that tests start

    def _enter(self, context: str) -> None:
        self.contexts.append(context)
        self._switch()

    def _leave(self) -> None:
        self.contexts.pop()
        self._switch()

    def _switch(self) -> None:
        self.coverage.switch_context(self.contexts[-1])
        os.environ["MUTATION_CONTEXT"] = self.contexts[-1]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        start, shared = _processor_seconds(), sum(self.fixtures.values())
        self._enter(item.nodeid)
        result = yield
        self._leave()
        of_fixtures = sum(self.fixtures.values()) - shared
        self.tests[item.nodeid]["cpu"] = round(_processor_seconds() - start - of_fixtures, 3)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        if fixturedef.scope == "function":
            return (yield)
        start, inner = _processor_seconds(), sum(self.fixtures.values())
        self._enter(FIXTURE + fixturedef.argname)
        try:
            return (yield)
        finally:
            self._leave()
            inner = sum(self.fixtures.values()) - inner
            taken = self.fixtures.get(fixturedef.argname, 0.0) + _processor_seconds() - start - inner
            self.fixtures[fixturedef.argname] = round(taken, 3)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        for item in items:
            self.tests[item.nodeid] = {"outcome": "passed", "fixtures": sorted(item.fixturenames)}

    def pytest_runtest_logreport(self, report):
        if not report.passed:
            self.tests[report.nodeid]["outcome"] = report.outcome

    def result(self) -> dict:
        from coverage import CoverageData

        self.coverage.stop()
        lines: dict[str, dict[str, set[int]]] = {}
        parts = []
        for path in self.folder.glob("part.*"):
            parts.append(CoverageData(str(path)))
            parts[-1].read()
        for data in (self.coverage.get_data(), *parts):
            for file in data.measured_files():
                name = Path(file).relative_to(self.package.parent).as_posix()
                for line, contexts in data.contexts_by_lineno(file).items():
                    for context in contexts:
                        lines.setdefault(name, {}).setdefault(context, set()).add(line)
        compact = {file: {c: ranges(found) for c, found in contexts.items()} for file, contexts in lines.items()}
        return {"tests": self.tests, "fixtures": self.fixtures, "lines": compact}


def ranges(lines: set[int]) -> str:
    """Line numbers as text: 3-5,9."""
    runs: list[list[int]] = []
    for line in sorted(lines):
        if runs and line == runs[-1][1] + 1:
            runs[-1][1] = line
        else:
            runs.append([line, line])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def write_json(path: Path, value: object) -> None:
    """A file that is whole or not there."""
    draft = path.with_suffix(f".{os.getpid()}.part")
    draft.write_text(json.dumps(value))
    os.replace(draft, path)
