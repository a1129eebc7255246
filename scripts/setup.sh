#!/usr/bin/env bash
# Makes .venv, the project's own environment, from requirements.lock. Nothing to do (some 50 ms) when it is up to date.
#
#   bash scripts/setup.sh [--verbose]         make or update .venv
#   bash scripts/setup.sh --check             only tell, by the exit status, whether it is up to date
#   PYTHON=python3.12 bash scripts/setup.sh   the Python that a new .venv is made with (remove .venv to change it)
#
# .venv/.installed is written last and names what was installed, with which Python and where. .venv/.installing stands
# while the work goes on: where it is found at the start, that work was interrupted and .venv is made anew, because pip
# takes a package whose files were only partly written for an installed one. Exit status: 0 done, 2 not possible.
set -euo pipefail

root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv"
cd -- "$root"

# Another environment's settings must neither leak into this one nor be changed by it.
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV PIP_PYTHON PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT

say() { printf '[setup] %s\n' "$*" >&2; }
die() { say "$*"; exit 2; }

in_range() { # PYTHON...: does it run, and is it 3.11, 3.12 or 3.13?
    "$@" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' >/dev/null 2>&1
}

version_of() { "$1" -I -S -c 'import sys; print(sys.version.split()[0])'; }

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

wanted_stamp() {
    printf 'root %s\npython %s\nsha256 %s\n' "$root" "$(version_of "$venv/bin/python")" \
        "$(cat requirements.lock pyproject.toml | sha256 | cut -d ' ' -f 1)"
}

up_to_date() {
    [[ -f $venv/.installed && -x $venv/bin/python && ! -e $venv/.installing ]] || return 1
    [[ "$(cat "$venv/.installed")" == "$(wanted_stamp 2>/dev/null)" ]]
}

find_python() {
    local name
    if [[ -n ${PYTHON:-} ]]; then
        in_range "$PYTHON" || die "PYTHON=$PYTHON is no working Python >= 3.11 and < 3.14; name another or unset it"
        echo "$PYTHON"
        return
    fi
    for name in python3.11 python3.12 python3.13 python3 python; do # 3.11 first: the lock was made with it
        if command -v "$name" >/dev/null && in_range "$name"; then
            echo "$name"
            return
        fi
    done
    die "no Python >= 3.11 and < 3.14 found; install one (Debian: apt install python3-venv) or set PYTHON=/path/to/one"
}

must_be_remade() { # .venv exists: can it not be built on? Says why.
    if [[ -e $venv/.installing ]]; then
        echo "an earlier set-up was interrupted"
    elif ! in_range "$venv/bin/python" || ! "$venv/bin/python" -I -c 'import pip' 2>/dev/null; then
        echo "its Python does not work"
    elif [[ -f $venv/.installed && "$(head -n 1 "$venv/.installed")" != "root $root" ]]; then
        echo "it was made in another folder"
    else
        return 1
    fi
}

make_venv() {
    local python
    python="$(find_python)"
    say "making .venv with Python $(version_of "$python")"
    mkdir -p "$venv"
    touch "$venv/.installing"
    if "$python" -I -c 'import ensurepip' 2>/dev/null; then
        "$python" -I -m venv --prompt transformer-ablate "$venv" || die "could not make .venv"
    elif "$python" -I -m pip --version >/dev/null 2>&1; then # Debian without python3-venv, but with pip
        "$python" -I -m venv --without-pip --prompt transformer-ablate "$venv" || die "could not make .venv"
        "$python" -I -m pip "$quiet" --python "$venv/bin/python" install pip || die "could not install pip into .venv"
    else
        die "$python has neither ensurepip nor pip; on Debian and Ubuntu: apt install python3-venv"
    fi
}

pip() { "$venv/bin/python" -I -m pip "$quiet" --disable-pip-version-check --no-input "$@"; }

failed() { # pip gave up in good order. Where no package lies half-written (RECORD comes last), keep what there is.
    local info
    for info in "$venv"/lib/python*/site-packages/*.dist-info; do
        [[ -f $info/RECORD ]] || die "$1"
    done
    rm -f -- "$venv/.installing"
    die "$1"
}

quiet=-qq # errors only
case ${1:-} in
    '') ;;
    --check) if up_to_date; then exit 0; else exit 1; fi ;;
    --verbose) quiet=-v ;;
    *) die "unknown option '$1'; use --check or --verbose" ;;
esac

if up_to_date; then exit 0; fi

trap 'say "interrupted; the next call starts afresh"; exit 130' INT
trap 'say "terminated; the next call starts afresh"; exit 143' TERM

# One set-up at a time. What is started below inherits the lock, so a pip that outlives a killed script still holds it.
if command -v flock >/dev/null; then
    exec 9<>pyproject.toml
    if ! flock -n 9; then
        say "another set-up of this folder is running; waiting for it"
        flock 9
        if up_to_date; then exit 0; fi
    fi
fi

if [[ -e $venv || -L $venv ]] && why="$(must_be_remade)"; then
    say "removing .venv: $why"
    rm -rf -- "$venv.old"
    mv -- "$venv" "$venv.old" # first out of the way: half of it, removed, could pass for a whole one
fi
rm -rf -- "$venv.old"
[[ -d $venv ]] || make_venv
touch "$venv/.installing"
rm -f -- "$venv/.installed"

say "installing $(grep -c '^[a-zA-Z]' requirements.lock) packages from requirements.lock (some minutes the first time)"
# pip compiles on one core, which takes half of the whole time: compileall does it on all of them.
pip install --no-compile -r requirements.lock ||
    failed "pip could not install requirements.lock (for more: bash scripts/setup.sh --verbose)"
pip install --no-deps --no-build-isolation -e . || failed "pip could not install the project itself (see above)"
# Half of all code is packages' own tests and what is hardly ever imported: Python compiles that when it is. Some packages
# ship templates that are no Python: their errors mean nothing.
"$venv/bin/python" -I -m compileall -q -j 0 -x '/(tests|testing|transformers|databricks)/' "$venv/lib" >/dev/null 2>&1 || true

wanted_stamp >"$venv/.installed.new"
mv -f -- "$venv/.installed.new" "$venv/.installed"
rm -f -- "$venv/.installing"
say "done in $SECONDS s"
