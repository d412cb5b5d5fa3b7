"""Shell completion: the script that `jaxdyn completion` prints, used by a shell."""

import shutil
import subprocess
import sys

import pytest

from jaxdyn.cli import COMMANDS, main

NAMES = [command.__name__.rpartition(".")[2] for command in COMMANDS]


def completed(script: str, *words: str) -> list[str]:
    """Completions that bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    run = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_jaxdyn; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_and_files(tmp_path, capsys, monkeypatch):
    pytest.importorskip("shtab")
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.urdf").write_text("")
    assert set(NAMES) <= set(completed(script, "jaxdyn", ""))
    assert completed(script, "jaxdyn", "identify", "--set") == ["--settings"]
    assert completed(script, "jaxdyn", "identify", "--model", "ar") == ["arm.urdf"]
    assert completed(script, "jaxdyn", "completion", "z") == ["zsh"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh", "fish"])
def test_other_shells_get_every_command(shell, capsys):
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in NAMES)


def test_the_missing_extra_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 1
    assert 'pip install "jaxdyn[completion]"' in capsys.readouterr().err
