"""Progress bar for long commands."""

import contextlib
from collections.abc import Iterator


class Progress:
    """A progress bar with one line per stage, shown on standard error if this is a terminal."""

    def __init__(self, quiet: bool):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._tasks: dict = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._tasks[stage], completed=done, total=total)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Context manager for a stage with a single step."""
        self(name, 0, 1)
        yield
        self(name, 1, 1)
