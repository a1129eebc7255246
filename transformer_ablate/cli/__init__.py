"""The one door: the command line. Nothing heavy is imported before it is needed, so that a mistake is told at once."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from transformer_ablate.errors import ConfigError, tell_in_one_line
from transformer_ablate.study.declarations import Study

OK, SOME_FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

tell_in_one_line()  # a study's file imports this module before it declares its study


def main(studies: Sequence[Study], argv: Sequence[str] | None = None, program: str = "experiments") -> NoReturn:
    """Runs studies as the command line says and exits with the contract's status; a study's file ends with it.

    The usage line begins as Python was started; with ``program`` where the words are given.
    """
    if argv is None:
        argv = sys.argv[1:]
        program = shlex.join(["python", *sys.orig_argv[1 : len(sys.orig_argv) - len(argv)]])
    sys.exit(run(studies, argv, program))


def run(studies: Sequence[Study], argv: Sequence[str], program: str) -> int:
    """Like :func:`main`, but returns the status."""

    def work() -> int:
        from transformer_ablate.cli.studies import run_studies

        return run_studies(studies, argv, program)

    return guarded(work)


def guarded(work: Callable[[], int]) -> int:
    """The status of a command: its own, 2 for a mistake of the user's (told in one line), 130 where interrupted."""
    # Explicitly, because a shell starts background jobs with Ctrl-C ignored and Python would leave it so.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return work()
    except ConfigError as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where this one stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, e.g. head, has seen enough
        sys.stderr.close()
        return OK


def _interrupt(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
