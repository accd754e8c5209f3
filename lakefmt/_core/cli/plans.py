"""Commands of one shape: show a plan, ask where data is removed, run it with a progress bar, print what was done (effects).

The bar is on stderr, for commands that take more than a second.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from lakefmt._core.cli.formatters import print_json, printable
from lakefmt._core.cli.options import open_for, table_argument, table_options
from lakefmt.errors import StateError

if TYPE_CHECKING:
    from rich.progress import Progress

    from lakefmt._core.table import Table
    from lakefmt._core.upgrade import UpgradePlan

__all__ = [
    "PlannedCall",
    "confirm",
    "dry_run_option",
    "plan_as_json",
    "planned",
    "progress",
    "show_plan",
    "unneeded_yes_option",
    "yes_option",
]


_BAR_DELAY_SECONDS = 1.0
yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
#: For commands that remove nothing and so do not ask: scripts may pass --yes to every command.
unneeded_yes_option = click.option(
    "--yes", "-y", is_flag=True, hidden=True, expose_value=False, help="Accepted; the command does not ask."
)
dry_run_option = click.option(
    "--plan", "--dry-run", "only_plan", is_flag=True, help="Show the plan and exit; nothing is changed."
)


class _ProgressBar:
    """Counts rows from the start; appears after `_BAR_DELAY_SECONDS`."""

    def __init__(self, title: str, total: int | None, unit: str) -> None:
        self._title, self._total, self._done, self._unit = title, total, 0, unit
        self._lock = threading.Lock()
        self._shown: Progress | None = None
        self._ended = False
        self._timer = threading.Timer(_BAR_DELAY_SECONDS, self._show)
        self._timer.daemon = True
        self._timer.start()

    def advance(self, amount: int) -> None:
        """Count `amount` more."""
        with self._lock:
            self._done += amount
            if self._shown is not None:
                self._shown.update(self._shown.task_ids[0], completed=self._done)

    def end(self) -> None:
        """Remove the bar."""
        self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._shown is not None:
                self._shown.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            *((BarColumn(),) if self._total else ()),
            TextColumn(f"{{task.completed:,}} {self._unit}"),
            TimeElapsedColumn(),
        )
        with self._lock:
            if self._ended:
                return
            self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
            self._shown.add_task(self._title, total=self._total, completed=self._done)
            self._shown.start()


@contextmanager
def progress(title: str, total: int | None = None, unit: str = "rows") -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs, if stderr is a terminal; yields a function that counts rows.

    Args:
        title: text beside the bar.
        total: number of rows, if known.
        unit: what is counted, if not rows.
    """
    if not sys.stderr.isatty():
        yield lambda _amount: None
        return
    bar = _ProgressBar(title, total, unit)
    try:
        yield bar.advance
    finally:
        bar.end()


def show_plan(plan: object) -> None:
    """Print a plan: its title, then one indented line for each step."""
    title, *steps = str(plan).split("\n")
    click.echo("\n".join([printable(title), *(f"  {printable(step.strip())}" for step in steps)]))


def confirm() -> None:
    """Ask on the terminal whether to proceed.

    Raises:
        StateError: the answer is no, or there is no terminal to ask on.
    """
    if not (sys.stdin.isatty() and click.confirm("Proceed?", err=True)):
        raise StateError("aborted, nothing was changed: confirm, or pass --yes")


_Result = TypeVar("_Result")
_Command = Callable[..., None]


def _list_of(name: str, *keys: str, **computed: Callable[[Any], object]) -> Callable[[Any], object]:
    """Return what makes a list of objects of an attribute; `keys` are attributes of each."""
    getters: dict[str, Callable[[Any], object]] = {**{key: attrgetter(key) for key in keys}, **computed}
    items = attrgetter(name)
    return lambda plan: [{key: get(item) for key, get in getters.items()} for item in items(plan)]


def _times(name: str) -> Callable[[Any], object]:
    return lambda plan: [str(instant.time) for instant in getattr(plan, name)]


def _history(plan: UpgradePlan) -> dict[str, int]:
    from lakefmt._core.upgrade import NEW_HISTORY

    return {f"{NEW_HISTORY}/{part.name}": len(part.instants) for part in plan.history}


_of_slice: Final[dict[str, Callable[[Any], object]]] = {
    "base": attrgetter("base_name"),
    "logs": lambda operation: list(operation.log_names),
}
#: The parts of a plan's JSON object, by the plan's class: an attribute, or a function of the plan.
_PARTS: Final[Mapping[str, Mapping[str, str | Callable[[Any], object]]]] = {
    "ArchivePlan": {"instants": _times("instants"), "commits": "num_commits", "barrier": "barrier"},
    "CleanPlan": {
        "policy": "rules.policy.value",
        "earliest": lambda plan: None if plan.earliest is None else plan.earliest.time,
        "files": "paths",
        "bytes": "num_bytes",
    },
    "ClusteringPlan": {
        "groups": _list_of(
            "groups",
            "partition",
            slices=_list_of("slices", "file_id", **_of_slice),
            bytes=attrgetter("num_bytes"),
            files=attrgetter("num_outputs"),
        ),
        "columns": lambda plan: list(plan.order.columns),
        "order": "order.layout.value",
        "left": "left",
        "due": "due",
    },
    "CompactionPlan": {
        "operations": _list_of("operations", "partition", "file_id", **_of_slice),
        "log_bytes": "log_bytes",
        "left": "left",
        "due": "due",
    },
    "RollbackPlan": {
        "target": "target",
        "action": "action.value",
        "files": lambda plan: [name for names in plan.files.values() for name in names],
        "logs": lambda plan: [name for logs in plan.shared for name in logs.sizes],
    },
    "Savepoint": {
        "instant": "instant",
        "user": "user",
        "comment": "comment",
        "created": lambda kept: None if kept.created is None else kept.created.isoformat(),
        "files": lambda kept: list(kept.files),
    },
    "RestorePlan": {
        "target": "target",
        "savepoint": "is_savepoint",
        "instants": _times("instants"),
        "files": lambda plan: list(plan.paths),
    },
    "UpgradePlan": {
        "source": "source.value",
        "target": "target.value",
        "pending": _times("pending"),
        "drops_metadata_table": "drops_metadata_table",
        "indexes": lambda plan: [request.partition for request in plan.indexes],
        "stale": lambda plan: list(plan.stale),
        "moves": lambda plan: {move.source: move.target for move in plan.moves},
        "history": _history,
        "properties": lambda plan: dict(plan.properties),
        "leftovers": lambda plan: list(plan.leftovers),
    },
    "VacuumPlan": {
        "files": _list_of("items", "path", bytes=attrgetter("size"), why=attrgetter("why")),
        "bytes": "num_bytes",
        "younger": "younger",
    },
}


def plan_as_json(plan: object) -> dict[str, object]:
    """Return a plan, or a savepoint, as a JSON object."""
    parts = _PARTS[type(plan).__name__]
    return {key: attrgetter(part)(plan) if isinstance(part, str) else part(plan) for key, part in parts.items()}


class PlannedCall:
    """One call of a command that shows a plan before it runs.

    Attributes:
        name: of the command, beside the progress bar.
        as_json: print JSON.
        only_plan: exit after the plan.
    """

    def __init__(self, name: str, path: str, asks: bool, arguments: dict[str, Any]) -> None:
        self.name = name
        self.path = path
        self.as_json: bool = arguments.pop("as_json")
        self.only_plan: bool = arguments.pop("only_plan")
        self._asks = asks and not arguments.pop("yes")
        self._options = arguments.pop("options")
        self._storage_options = arguments.pop("storage_options")

    @cached_property
    def table(self) -> Table:
        """The table of the command."""
        return open_for(self.path, self._options, self._storage_options)

    def run(
        self,
        plan: object,
        run: Callable[[], _Result],
        *,
        planned: Callable[[_Result], object] = lambda result: getattr(result, "plan", result),
        key: str = "plan",
        undone: Mapping[str, object],
        done: Callable[[_Result], Mapping[str, object]],
        says: Callable[[_Result], str] = str,
        is_empty: bool = False,
        shown: object = None,
    ) -> None:
        """Show a plan, ask for confirmation, run it, and print what was done.

        Args:
            plan: its text is the plan, one step per line; its class has parts in JSON.
            run: runs the plan.
            planned: returns the plan that was run.
            key: of the plan in JSON.
            undone: the rest of the JSON object when nothing was run.
            done: returns the rest of it from the result.
            says: returns the line for people; an empty one is not printed.
            is_empty: the plan has no steps.
            shown: what people see in the place of the plan; None: the plan.

        Raises:
            StateError: the user did not confirm.
        """
        if not self.as_json:
            show_plan(plan if shown is None else shown)
        if self.only_plan or is_empty:
            if self.as_json:
                print_json({key: plan_as_json(plan), **undone})
            return
        if self._asks:
            confirm()
        with progress(self.name):
            result = run()
        if self.as_json:
            print_json({key: plan_as_json(planned(result)), **done(result)})
        elif line := says(result):
            click.echo(line)


def planned(*, asks: bool) -> Callable[[_Command], _Command]:
    """Add the table and the options of a command with a plan; the function gets a :class:`PlannedCall` for them.

    Args:
        asks: the command removes data: it asks before it runs, unless ``--yes`` is given.
    """

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def called(table: str, **arguments: Any) -> None:
            name = click.get_current_context().info_name or ""
            command(PlannedCall(name, table, asks, arguments), **arguments)

        parameters = list(getattr(command, "__click_params__", ()))
        called.__dict__["__click_params__"] = []
        for add in (table_options, dry_run_option, yes_option if asks else unneeded_yes_option):
            called = add(called)
        called.__dict__["__click_params__"] += parameters  # between the table and the options that all have
        return table_argument(called)

    return decorate
