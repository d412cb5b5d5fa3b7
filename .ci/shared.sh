# Shared by .ci/run and .ci/nightly: a copy of the checkout, fresh virtual environments, stages.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
exec </dev/null

unset PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_QUIET=1 PIP_NO_COMPILE=1 NO_MKDOCS_2_WARNING=1 MPLBACKEND=Agg
export JAX_COMPILATION_CACHE_DIR=$work/cache JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
if [ -z "${JAXDYN_DATA:-}" ] && [ -d "$root/../shared/data" ]; then
    export JAXDYN_DATA=$root/../shared/data
fi

stage() { # title, command...: run the command, print its duration, stop if it fails
    local title=$1 start=$SECONDS code=0
    shift
    printf '\n== %s\n' "$title"
    "$@" || code=$?
    if [ "$code" -ne 0 ]; then
        printf '== %s: FAILED with exit code %d after %d s\n' "$title" "$code" $((SECONDS - start)) >&2
        exit 1
    fi
    printf '== %s: ok, %d s\n' "$title" $((SECONDS - start))
}

interpreter() { # version: the command of this version of Python, from PATH or from pyenv; fails if there is none
    local command
    for command in "python$1" "$(pyenv root 2>/dev/null)"/versions/"$1".*/bin/"python$1"; do
        if "$command" -c '' 2>/dev/null; then printf '%s\n' "$command" && return; fi
    done
    return 1
}

copy() { # all files that git does not ignore
    mkdir "$work/jaxdyn"
    if git -C "$root" rev-parse --git-dir >/dev/null 2>&1; then
        git -C "$root" ls-files -z --cached --others --exclude-standard --deduplicate >"$work/files"
    else
        (cd "$root" && find . -type f -print0) >"$work/files"
    fi
    tar -C "$root" --null --ignore-failed-read --files-from="$work/files" -cf - 2>/dev/null | tar -C "$work/jaxdyn" -xf -
}

within() { # name of a virtual environment, command...: run the command in the copy of the checkout
    local venv=$work/$1
    shift
    [ -d "$venv" ] || "${PYTHON:-python3}" -m venv "$venv" || return # not by set -e, which a stage turns off
    (cd "$work/jaxdyn" && PATH=$venv/bin:$PATH VIRTUAL_ENV=$venv "$@")
}

cd "$work"
copy
