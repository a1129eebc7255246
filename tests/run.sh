#!/usr/bin/env bash
# Set-up, then every check: formatting, lint, types, tests. All parts run; the exit status is non-zero if any failed.
# --slow adds the tests that take minutes (models trained to their known level, a million lines, every arm of every
# study). Other arguments go to pytest:  bash tests/run.sh -k rotary -x
set -euo pipefail

root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
cd -- "$root"
unset PYTHONPATH PYTHONHOME
export DO_NOT_TRACK=1 MLFLOW_DISABLE_TELEMETRY=true HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export OMP_NUM_THREADS=1 # one test process a core

bash scripts/setup.sh
python="$root/.venv/bin/python"

slow=(-m "not slow")
if [[ ${1-} == --slow ]]; then
    slow=()
    shift
fi

failed=()
types="$(mktemp)" # what mypy says, which runs beside the tests: they wait for processes, it fills the gaps
trap 'exit 130' INT
trap 'kill "${mypy-}" 2>/dev/null || true; rm -f "$types"' EXIT
part() { # NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    printf '== %s\n' "$name"
    "$@" || failed+=("$name (exit status $?)")
    printf -- '-- %s: %d s\n' "$name" $((SECONDS - start))
}

types_are_right() {
    local status=0
    wait "$mypy" || status=$?
    cat "$types"
    return "$status"
}

part "ruff format" "$python" -m ruff format --check .
part "ruff check" "$python" -m ruff check .
"$python" -m mypy >"$types" 2>&1 &
mypy=$!
part "pytest" "$python" -m pytest -n 2 --dist loadfile ${slow[@]+"${slow[@]}"} "$@"
part "mypy, begun before pytest" types_are_right

if ((${#failed[@]})); then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "all parts passed"
