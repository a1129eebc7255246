#!/usr/bin/env bash
# The full ablation: set-up (nothing to do the second time), then all studies and the overview.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: bash run_all.sh [--setup-only] [OPTION...]

Makes .venv from requirements.lock where needed, then runs  python -m experiments run all OPTION...
The default preset is quick; a second call reuses every run that is already in MLflow.

  --setup-only   stop after the set-up
  --help         this text, and the options of the experiments once the set-up is done
  PYTHON=...     environment: the Python (3.11 to 3.13) that a new .venv is made with

Exit status: 0 all ok, 1 some run failed, 2 usage or set-up error, 130 interrupted.
TEXT
}

root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
python="$root/.venv/bin/python"

setup_only=false help=false options=()
for option in "$@"; do
    case $option in
        --setup-only) setup_only=true ;;
        -h | --help) help=true ;;
        *) options+=("$option") ;;
    esac
done

# A PYTHONPATH meant for another environment would put its packages before ours.
unset PYTHONPATH PYTHONHOME
export DO_NOT_TRACK="${DO_NOT_TRACK-1}" MLFLOW_DISABLE_TELEMETRY="${MLFLOW_DISABLE_TELEMETRY-true}"

if $help; then
    usage
    if bash "$root/scripts/setup.sh" --check; then
        echo
        exec "$python" -P -m experiments run all --help
    fi
    exit 0
fi

bash "$root/scripts/setup.sh"
if $setup_only; then
    echo "set-up complete: $root/.venv"
    exit 0
fi

# exec: signals reach Python itself and its exit status is ours. The folder stays the caller's, so that relative paths in
# the options mean what they say; -P keeps a folder called experiments that happens to be there from being taken for ours.
exec "$python" -P -m experiments run all ${options[@]+"${options[@]}"}
