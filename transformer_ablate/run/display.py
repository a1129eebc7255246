"""What a person sees while runs train: a live line a run and a bar for the whole, or plain lines in a log."""

from __future__ import annotations

import time
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from transformer_ablate.study.plan import PlannedRun


class Display:
    """Shows the progress of runs; a context manager.

    Args:
        total: runs to train.
        workers: how many run at a time, for the estimate of what is left.
        stream: where to write; standard output by default.
    """

    def __init__(self, total: int, workers: int, stream: TextIO | None = None) -> None:
        self.console = Console(file=stream, highlight=False, soft_wrap=True)
        self.total, self.workers = total, workers
        self._seconds: list[float] = []  # of the runs that ended well
        self._began: dict[str, float] = {}
        self._last: dict[str, tuple[int, float]] = {}
        self._lines: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self._whole = self._progress.add_task("[bold]all runs[/]", total=total, note="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, planned: PlannedRun) -> None:
        """A run has begun."""
        self._began[planned.fingerprint] = time.monotonic()
        self._lines[planned.fingerprint] = self._progress.add_task(
            escape(f"  {planned.study} {planned.name}"), total=planned.recipe.train.max_steps, note="starting"
        )

    def progress(self, planned: PlannedRun, step: int, loss: float) -> None:
        """A run has reached an update."""
        self._last[planned.fingerprint] = step, loss
        elapsed = time.monotonic() - self._began[planned.fingerprint]
        left = elapsed / max(1, step) * (planned.recipe.train.max_steps - step)
        self._progress.update(
            self._lines[planned.fingerprint], completed=step, note=f"loss {loss:.3f}, {left:.0f} s left"
        )

    def ended(self, planned: PlannedRun, error: str, done: int) -> None:
        """A run has ended, ``error`` empty if well; with it ``done`` have."""
        seconds = time.monotonic() - self._began.pop(planned.fingerprint)
        self._progress.remove_task(self._lines.pop(planned.fingerprint))
        if error:
            reason = error.strip().splitlines()[-1]
            self.console.print(f"[red][{done}/{self.total}] FAILED {escape(planned.name)}: {escape(reason)}[/]")
        else:
            self._seconds.append(seconds)
            last = self._last.get(planned.fingerprint)  # None where nothing was trained
            told = "" if last is None else f", loss {last[1]:.3f}"
            self.console.print(f"[dim][{done}/{self.total}][/] {escape(planned.name)} {seconds:.1f} s{told}")
        left = sum(self._seconds) / max(1, len(self._seconds)) * (self.total - done) / self.workers
        self._progress.update(self._whole, completed=done, note=f"about {duration(left)} left")


def duration(seconds: float) -> str:
    """``45 s``, ``7 min`` or ``1 h 05 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
