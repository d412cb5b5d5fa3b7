"""The package as a whole: which way imports go, what importing it does, what is documented, and that what we show runs."""

import ast
import dataclasses
import importlib
import inspect
import json
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from data_paths import ROOT
from helpers import coverage_check
from jaxdyn import ModelError
from users_programs.environment import environment as user_environment

PACKAGE = ROOT / "jaxdyn"
ROWS = (
    *(
        "version",
        "exports",
        "jax_compat",
        "summary",
        "errors",
        "source",
        "spatial",
        "model",
        "textbook",
        "io",
        "dynamics",
        "geometry",
        "symbolic",
        "simulation",
        "contact",
    ),
    *(
        "mechanisms",
        "trajectory",
        "control",
        "parallel",
        "deployment",
        "identification",
        "report",
        "view",
        "commands",
        "cli",
    ),
)
MODULES = sorted(path for path in PACKAGE.rglob("*.py"))
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted(path.name for path in (ROOT / "examples" / "notebooks").glob("*.ipynb"))
PAGES = (
    "README.md",
    "docs/index.md",
    "docs/quickstart.md",
    "docs/migration.md",
    "docs/equations_of_motion.md",
    "docs/mechanisms.md",
    "docs/particles.md",
    "docs/rollouts.md",
    "docs/control.md",
    "docs/paths.md",
    "docs/scaling.md",
    "docs/shapes.md",
    "docs/deployment.md",
)


def row_of(name: str) -> int:
    """Row of a dotted module name like jaxdyn.io.urdf; the package's own names and __main__ stand below all."""
    parts = name.split(".")
    if len(parts) == 1 or parts[1] in ("_public", "__main__"):
        return len(ROWS)
    row = parts[1].removeprefix("_")
    assert row in ROWS, f"{name} is in no row of the import order {ROWS}; give it one"
    return ROWS.index(row)


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path, functions: bool = True) -> set[str]:
    """Dotted names of everything of jaxdyn that a file imports, also inside its functions unless `functions` is False."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    found = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if functions else tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            target = [*base, *(node.module.split(".") if node.module else [])]
            # `from .. import x` names a module, `from ..x import y` something in it
            found |= {".".join([*target, alias.name]) if len(target) == 1 else ".".join(target) for alias in node.names}
    return {name for name in found if name.split(".")[0] == "jaxdyn"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    own = row_of(module_name(path))
    wrong = [name for name in sorted(imports_of(path)) if row_of(name) > own]
    assert not wrong, f"{module_name(path)} imports {', '.join(wrong)}, which stand below it in {' < '.join(ROWS)}"


def test_imports_among_modules_have_no_cycle():
    known = {module_name(path): path for path in MODULES if path.name != "__init__.py"}
    ahead: dict[str, set[str]] = {
        name: {x for x in imports_of(path, functions=False) if x in known} for name, path in known.items()
    }
    while ready := {name for name, needed in ahead.items() if not needed & ahead.keys()}:
        ahead = {name: needed for name, needed in ahead.items() if name not in ready}
    assert not ahead, f"these modules import one another: {', '.join(sorted(ahead))}"


def test_no_module_has_the_name_of_what_its_package_exports():
    """Otherwise `jaxdyn.io.load` would be a function or a module, depending on who asks; the documentation finds the module."""
    twice = []
    for folder in {path.parent for path in MODULES} - {PACKAGE}:
        exported = vars(importlib.import_module(".".join(folder.relative_to(ROOT).parts)))
        names = {path.stem for path in folder.glob("*.py")} & exported.keys() - {"__init__"}
        twice += [f"{folder.name}.{name}" for name in names if not inspect.ismodule(exported[name])]
    assert not twice, f"rename these modules: {', '.join(sorted(twice))}"


def test_what_jax_may_change_is_imported_in_one_place():
    unstable = re.compile(
        r"jax\._src|jax\.core|jax\.interpreters|jax\.experimental|jax\.custom_batching|jax\.custom_derivatives|jax\.extend"
    )
    code = lambda path: "\n".join(x for x in path.read_text().splitlines() if re.match(r"\s*(from|import) ", x))
    found = {path.name for path in MODULES if unstable.search(code(path))}
    assert found == {"_jax_compat.py"}


def test_the_import_check_sees_all_forms(tmp_path, monkeypatch):
    folder = tmp_path / "jaxdyn" / "model"
    folder.mkdir(parents=True)
    path = folder / "x.py"
    path.write_text(
        "from ..io.urdf import load\nfrom .. import dynamics\nfrom . import chain\nimport jaxdyn.cli\nimport numpy\n"
        "def f():\n    from jaxdyn.report import html\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    expected = {"jaxdyn.io.urdf", "jaxdyn.dynamics", "jaxdyn.model", "jaxdyn.cli", "jaxdyn.report"}
    assert imports_of(path) == expected
    assert {name for name in expected if row_of(name) > row_of(module_name(path))} == expected - {"jaxdyn.model"}


def test_no_file_is_longer_than_a_subject():
    long = {str(path.relative_to(ROOT)): n for path in MODULES if (n := len(path.read_text().splitlines())) > 900}
    assert not long, f"files of more than 900 lines: {long}"


def test_the_map_of_the_package_names_files_that_exist():
    page = (ROOT / "docs" / "contributing.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| (.*) \|$", page[page.index("## Where to look") : page.index("## Words")], re.M)
    files = {name.rsplit("/", 1)[-1] for row in rows for name in re.findall(r"`([a-z_/]+\.py)`", row)}
    assert len(files) > 15 and files <= {path.name for path in MODULES}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_arguments_described_in_a_docstring_are_those_of_the_signature(path):
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(function)):
            section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
            described = re.findall(r"^ {4}([*\w][^:]*):", section[1], re.MULTILINE) if section else []
            given = function.args
            names = {x.arg for x in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
            names |= {f"{stars}{x.arg}" for x in (given.vararg, given.kwarg) if x for stars in ("", "*", "**")}
            assert set(described) <= names, f"{function.name}: {set(described) - names}"


def test_every_public_name_is_documented():
    found = coverage_check().problems()
    assert not found, "\n".join(found)


SHOWN = ("jaxdyn", *(f"jaxdyn.{name}" for name in (*coverage_check().NAMESPACES, *coverage_check().EXTRAS, "textbook")))


@pytest.mark.parametrize("name", SHOWN)
def test_dir_and_help_show_what_users_can_call_and_nothing_else(name):
    package = importlib.import_module(name)
    documented = coverage_check().exported(importlib.import_module("jaxdyn._public") if name == "jaxdyn" else package)
    assert dir(package) == package.__all__ == documented
    text = pydoc.plain(pydoc.render_doc(package))
    public = {x: value for x in documented if not isinstance(value := getattr(package, x), ModuleType)}
    assert all(f" {x}" in text for x, value in public.items() if inspect.isroutine(value) or inspect.isclass(value))
    assert not re.search(r"^    _\w+ \(package\)$|TYPE_CHECKING", text, re.MULTILINE)


def test_a_docstring_that_nobody_wrote_does_not_count():
    @dataclasses.dataclass
    class Bare:
        x: int

        def method(self): ...

    check = coverage_check()
    assert Bare.__doc__ and not check.has_docstring(Bare)
    assert list(check.public_members(Bare)) == ["method"] and not check.has_docstring(Bare.method)
    assert check.has_docstring(check.problems)


IMPORT = """
import sys
import jaxdyn.cli
assert not {"jax", "numpy", "scipy", "rich"} & set(sys.modules), "help needs what takes seconds to import"
import jax
before = dict(jax.config.values)
jaxdyn.robots, jaxdyn.inverse_dynamics, jaxdyn.load, jaxdyn.rollout
assert not {"scipy", "jaxdyn.identification", "jaxdyn.trajectory"} & set(sys.modules), "not needed by what was used"
from jaxdyn import *
import jaxdyn._public
public = {name: value for name, value in vars(jaxdyn._public).items() if not name.startswith("_")}
assert {"Chain", "aba", "dynamics", "view"} <= public.keys() <= set(dir(jaxdyn))
assert all(globals()[name] is value for name, value in public.items())
assert not hasattr(jaxdyn, "no_such_name") and not hasattr(jaxdyn, "_origin")
changed = {k: v for k, v in jax.config.values.items() if before.get(k) != v}
assert not changed, f"importing jaxdyn changed JAX's configuration: {changed}"
assert not jax.config.jax_enable_x64
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "importing jaxdyn started a JAX backend"
heavy = {"matplotlib", "pyarrow", "rosbags", "pinocchio", "mujoco", "pytest", "beartype", "sympy", "diffrax"}
heavy |= {"viser", "trimesh", "PIL", "optax"}
unneeded = heavy & set(sys.modules)
assert not unneeded, f"importing jaxdyn imports {unneeded}"
"""


def run(*arguments: str, cwd: Path, optimised: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**user_environment(), "MPLBACKEND": "Agg", **environment}
    if not optimised:
        env["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "")
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=600)


@pytest.mark.ci
def test_importing_has_no_effect(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("JAX_")]:
        monkeypatch.delenv(name)
    done = run("-W", "always", "-c", IMPORT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")


def test_long_quotations_are_cut_and_the_words_around_them_kept():
    long = "x" * 1000
    for message in (
        f"/home/{long}: it is 'small'",
        f"a name='{long}' is used twice",
        f"robot.urdf:1: {long} is no number",
    ):
        text = str(ModelError(message))
        assert len(text) < 280 and "x..." in text and text[-11:] == message[-11:]
        assert text.count("'") == message.count("'")
    assert len(str(ModelError("link, " * 10_000))) < 2000


def test_there_are_examples():
    assert EXAMPLES


def shown(names):
    """Programs that we show: in continuous integration compiled as the tests are, which takes half the time."""
    quick = [pytest.param(name, False, id=name, marks=pytest.mark.ci) for name in names]
    return quick + [pytest.param(name, True, id=f"{name} optimised", marks=pytest.mark.nightly) for name in names]


@pytest.mark.examples
@pytest.mark.parametrize(("name", "optimised"), shown(EXAMPLES))
def test_example_runs(name, optimised, tmp_path):
    done = run(str(ROOT / "examples" / name), cwd=tmp_path, optimised=optimised, JAXDYN_EXAMPLES_FAST="1")
    assert done.returncode == 0, f"{name} failed:\n{done.stdout}\n{done.stderr}"
    assert done.stdout, f"{name} shows nothing"


def cells_of(name, kind):
    """Cells of a notebook of one kind, each as text."""
    cells = json.loads((ROOT / "examples" / "notebooks" / name).read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_can_be_opened(name):
    """Jupyter's format 4.5, without the outputs of a run."""
    notebook = json.loads((ROOT / "examples" / "notebooks" / name).read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    identities = [cell["id"] for cell in notebook["cells"]]
    assert len({*identities}) == len(identities) and all(re.fullmatch(r"[\w-]{1,64}", x) for x in identities)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {} and isinstance(cell["source"], list)
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), f"{cell['id']}: remove its outputs"
    assert cells_of(name, "markdown")[0].startswith("# ")
    assert cells_of(name, "code")[0] == "%pip install -q jaxdyn"


@pytest.mark.examples
@pytest.mark.nightly
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_runs(name, tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(cells_of(name, "code")[1:]))  # the first installs the package
    done = run(str(script), cwd=tmp_path, optimised=True)
    assert done.returncode == 0, f"{name} failed:\n{done.stdout}\n{done.stderr}"
    assert done.stdout, f"{name} shows nothing"


@pytest.mark.examples
@pytest.mark.parametrize(("page", "optimised"), shown(PAGES))
def test_code_on_page_runs(page, optimised, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} shows no Python"
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks))
    done = run(str(script), cwd=tmp_path, optimised=optimised)
    assert done.returncode == 0, f"the code on {page} failed:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]), ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    dead = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not dead, f"{page.relative_to(ROOT)} links to {dead}"
