"""The rules of the house as functions over a source tree: they read text and return sentences, nothing is imported.

Every rule takes the folder that holds the package (so that a test can hand it a small fake house) and returns its
violations; an empty list means that the rule is kept. Run as a script it prints the size report.
"""

from __future__ import annotations

import ast
import fnmatch
import functools
import re
import statistics
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "lakefmt"
#: Where everything lies that is not promised. Its packages have floors, as those beside it have.
CORE = f"{PACKAGE}._core"

#: Package → floor. A package imports only from floors below its own; its subpackages count as the package.
FLOORS: dict[str, int] = {
    "data_classes": 0,
    "errors": 0,
    "arrays": 0,
    "notebook": 0,  # values as notebooks show them
    "events": 2,  # log records and hooks
    "values": 3,
    "arguments": 4,
    "options": 4,  # the keyword arguments that verbs share, as types
    "schema": 5,
    "arrow_texts": 5,  # columns as JSON, CSV and cells
    "drawing": 5,  # pictures of tables
    "storage": 10,
    "config": 10,
    "keys": 10,
    "formats": 15,
    "sorting": 17,
    "timeline": 20,
    "filegroups": 30,
    "metadata": 35,
    "segments": 35,  # files of rows that a stream has flushed and not yet committed
    "index": 40,
    "read": 40,
    "transactions": 40,
    "catalogs": 45,  # entries of tables in Hive and Glue
    "compaction": 50,
    "create": 50,
    "write": 50,
    "consumers": 55,  # a table read as a stream
    "check": 60,
    "undo": 60,
    "upgrade": 60,
    "producers": 65,  # streams of rows into a table, append tables
    "advice": 70,  # which index, table type and services a table should have
    "erase": 70,  # rows for good, and the proof
    "table_verbs": 70,  # the verbs that other packages carry out
    "table_accessors": 70,  # the verbs of `table.index` and `table.alter`, the pictures of `table.plot`
    "table": 80,
    "telemetry": 82,  # events as metrics of OpenTelemetry
    "create_and_write": 82,  # the two calls of a table in one
    "lowlevel": 82,  # the steps of a write as single calls, begun from an open table
    PACKAGE: 85,  # lakefmt/__init__.py: the public names, gathered from below
    "locks": 85,  # the protocol of a lock, for those who write one
    "page": 92,  # the page of tables and its report
    "builders": 90,  # reads and writes under the names of Paimon's Python package
    "realtime": 90,  # streams under the names of the real-time SDK
    "find_tables": 60,  # the tables below a folder
    "task_writes": 84,  # what Daft and Ray share: writes of rows that lie in tasks of an engine
    "dlt": 90,  # the destination of dlt
    "daft": 90,  # DataFrames of Daft
    "ray": 90,  # datasets of Ray Data
    "cdc": 83,  # tables that follow the tables of a database
    "ingest": 84,  # rows of files, topics, other tables and databases on their way into tables
    "loads": 84,  # two-phase loads over HTTP
    "services": 90,  # one process that runs the table services of many tables
    "spark": 90,
    "bench": 90,
    "demo": 90,
    "server": 90,
    "client": 90,  # of a server of loads
    "cli": 95,  # starts the other entry points: `lakefmt bench`, `lakefmt serve`
    "__main__": 96,  # `python -m lakefmt`
}
#: The published test kit stands beside the floors: it may import every part, and only these import it.
BESIDE = "testing"
MAY_IMPORT_BESIDE = frozenset({"cli", "bench", "demo", BESIDE})

ROW_LOOPS = frozenset({"to_pylist", "as_py", "iterrows", "itertuples", "tolist", "to_pydict", "iter_rows"})
ROW_LOOPS_OF_NUMPY = frozenset({"vectorize", "frompyfunc", "fromiter"})

IMPURE_MODULES = frozenset(
    {
        *("os", "time", "random", "secrets", "socket", "subprocess", "tempfile", "shutil", "fsspec", "glob"),
        *("threading", "multiprocessing", "concurrent", "asyncio", "mmap", "importlib", "pkgutil"),
    }
)
IMPURE_CALLS = frozenset(
    {
        "datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
        "uuid.uuid1",
        "uuid.uuid4",
        "open",
        "input",
        "print",
        "np.random",
        "numpy.random",
    }
)

#: Who is handed one of these reads and writes; the values of the same module (names, sizes, outcomes) are harmless.
HANDS_ON_A_STORE = frozenset({f"{CORE}.storage.api.ObjectStore", f"{CORE}.storage.api.ObjectWriter"})

FUNCTION_LINES = 60
MODULE_LINES = 900


@dataclass(frozen=True)
class Import:
    """One import of a module of the package by another one."""

    importer: str
    imported: str
    line: int
    for_types: bool

    def __str__(self) -> str:
        kind = " (for types only)" if self.for_types else ""
        return f"{self.importer} imports {self.imported}{kind} at line {self.line}"


@dataclass(frozen=True)
class Exception_:  # noqa: N801  (a builtin has the plain word)
    """One entry of an exceptions file: where the rule does not hold, for which names, and why."""

    where: str
    reason: str
    names: tuple[str, ...] = ()
    lines: int = 0


@dataclass
class Exceptions:
    """The entries of an exceptions file; remembers which of them were needed."""

    entries: list[Exception_] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    @classmethod
    def load(cls, path: Path) -> Exceptions:
        """Read ``[[allowed]]`` tables with ``where``, ``reason`` and, by rule, ``names`` or ``lines``."""
        rows = tomllib.loads(path.read_text("utf-8")).get("allowed", [])
        return cls([Exception_(r["where"], r["reason"], tuple(r.get("names", ())), r.get("lines", 0)) for r in rows])

    def allows(self, where: str, name: str = "", lines: int = 0) -> bool:
        """Say whether `where` (``file::function``, patterns allowed in the entry) may use `name` or be `lines` long."""
        found = False
        for number, entry in enumerate(self.entries):
            if not fnmatch.fnmatchcase(where, entry.where):
                continue
            if (not name or name in entry.names) and lines <= entry.lines:
                self.used.add(number)
                found = True
        return found

    def complaints(self) -> list[str]:
        """Return entries that nothing needs any more and entries without a real reason."""
        said = [f"{e.where}: a reason of {len(e.reason.split())} words" for e in self.entries if _is_short(e.reason)]
        said += [f"{e.where}: not needed any more" for n, e in enumerate(self.entries) if n not in self.used]
        return said


def _is_short(reason: str) -> bool:
    return len(reason.split()) < 4


def check(violations: Iterable[str]) -> None:
    """Fail with every violation on a line of its own."""
    rows = list(violations)
    if rows:
        raise AssertionError(f"{len(rows)} violations:\n  " + "\n  ".join(rows))


# ------------------------------------------------------------------------------------------------- reading the tree


def modules(root: Path) -> dict[str, Path]:
    """Return every module of the package below `root`, dotted name → file."""
    found = {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def part_of(module: str) -> str:
    """Return the top-level package, or module of the root, that a module belongs to.

    Example:
        >>> part_of("lakefmt._core.timeline.locks.api"), part_of("lakefmt.errors"), part_of("lakefmt")
        ('timeline', 'errors', 'lakefmt')
    """
    if module in (PACKAGE, CORE):
        return PACKAGE
    return module.removeprefix(f"{PACKAGE}.").removeprefix("_core.").split(".")[0]


def imports(root: Path) -> list[Import]:
    """Return every import inside the package, those within functions and those for types included."""
    known = modules(root)
    # A package without __init__.py is a package still.
    names = frozenset(known) | {name.rpartition(".")[0] for name in known} | {PACKAGE}
    return [
        found
        for module, path in known.items()
        for found in _imports_of(module, path.name == "__init__.py", _parse(path), names)
    ]


def _parse(path: Path) -> ast.Module:
    return _parse_text(path.read_text("utf-8"))


@functools.cache
def _parse_text(text: str) -> ast.Module:
    return ast.parse(text)


@functools.cache  # every rule asks for them
def _imports_of(module: str, is_package: bool, tree: ast.Module, known: frozenset[str]) -> list[Import]:
    for_types = set(_nodes_for_types(tree))
    return [
        Import(module, target, getattr(node, "lineno", 0), node in for_types)
        for node in ast.walk(tree)
        for target in _targets(node, module, is_package, known)
        if target.split(".")[0] == PACKAGE and target != module
    ]


def _nodes_for_types(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.body:
                yield from ast.walk(child)


def _targets(node: ast.AST, module: str, is_package: bool, known: frozenset[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = module.split(".")[: len(module.split(".")) - node.level + is_package]
            base = ".".join([*above, *([base] if base else [])])
        for alias in node.names:
            whole = f"{base}.{alias.name}"
            yield whole if whole in known else base
    elif isinstance(node, ast.Call) and _last_name(node.func) in {"import_module", "__import__"}:
        yield from (a.value for a in node.args[:1] if isinstance(a, ast.Constant) and isinstance(a.value, str))


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# ---------------------------------------------------------------------------------------------------------- floors


def without_floor(root: Path, floors: Mapping[str, int] = FLOORS) -> list[str]:
    """Return the parts that have no floor: a new part needs one before it needs code."""
    parts = {part_of(module) for module in modules(root)}
    return sorted(f"{part} has no floor" for part in parts - set(floors) - {BESIDE})


def upward_imports(root: Path, *, for_types: bool, floors: Mapping[str, int] = FLOORS) -> list[str]:
    """Return the imports that do not go down: at run time, or those for types only."""
    return [
        f"{found}: floor {floors.get(part_of(found.importer), '?')} may not see floor "
        f"{floors.get(part_of(found.imported), '?')}"
        for found in dict.fromkeys(imports(root))  # `from x import a, b` is one import of x
        if found.for_types is for_types and not _goes_down(found, floors)
    ]


def _goes_down(found: Import, floors: Mapping[str, int]) -> bool:
    importer, imported = part_of(found.importer), part_of(found.imported)
    if imported == BESIDE:
        return importer in MAY_IMPORT_BESIDE
    if importer in (imported, BESIDE):
        return True
    return floors.get(imported, sys.maxsize) < floors.get(importer, -1)


def mutual_parts(root: Path) -> list[str]:
    """Return the pairs of parts that import each other, whatever their floors say."""
    pairs = {(part_of(found.importer), part_of(found.imported)) for found in imports(root)}
    return sorted(f"{a} and {b} import each other" for a, b in pairs if a < b and (b, a) in pairs)


def circles(root: Path) -> list[str]:
    """Return the rings of modules that import each other at run time, within one part too."""
    graph: dict[str, set[str]] = {}
    for found in imports(root):
        if not found.for_types:
            graph.setdefault(found.importer, set()).add(found.imported)
    rings = {frozenset(ring) for module in sorted(graph) if (ring := _ring_through(module, graph))}
    return sorted(" ⇄ ".join(sorted(ring)) for ring in rings)


def _ring_through(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return the modules that `start` reaches and that reach it: empty when no import leads back."""
    forward = _reachable(start, graph)
    return {module for module in forward if start in _reachable(module, graph)} if start in forward else set()


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for following in graph.get(waiting.pop(), ()):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return seen


def private_imports(root: Path) -> list[str]:
    """Return the imports of modules whose name begins with an underscore from outside their package."""
    return [
        str(found)
        for found in dict.fromkeys(imports(root))
        if found.imported.rpartition(".")[2].startswith("_")
        and not found.importer.startswith(found.imported.rpartition(".")[0])
        and not found.importer.startswith(f"{PACKAGE}.{BESIDE}")
    ]


def unreadable_imports(root: Path) -> list[str]:
    """Return dynamic imports whose target cannot be read from the source: they would go round the floors."""
    return [
        f"{module} line {node.lineno}: import_module of something computed"
        for module, path in modules(root).items()
        for node in ast.walk(_parse(path))
        if isinstance(node, ast.Call)
        and _last_name(node.func) in {"import_module", "__import__"}
        and not (node.args and isinstance(node.args[0], ast.Constant))
    ]


# ---------------------------------------------------------------------------------------- row loops, purity, sizes


def _with_owner(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node, in the order of the text, with the dotted name of the function or class around it."""
    waiting = [(child, "") for child in reversed(list(ast.iter_child_nodes(tree)))]
    while waiting:
        node, owner = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            owner = f"{owner}.{node.name}" if owner else node.name
        yield owner or "<module>", node
        waiting += [(child, owner) for child in reversed(list(ast.iter_child_nodes(node)))]


def _places(root: Path, only: Iterable[str] = ("*",)) -> Iterator[tuple[str, str, ast.AST]]:
    patterns = tuple(only)
    for module, path in modules(root).items():
        if any(fnmatch.fnmatchcase(module, pattern) for pattern in patterns):
            for owner, node in _with_owner(_parse(path)):
                yield f"{path.relative_to(root).as_posix()}::{owner}", module, node


def row_loops(root: Path, allowed: Exceptions) -> list[str]:
    """Return the places that turn columns into Python rows and are not on the list of exceptions."""
    return [
        f"{where} line {node.lineno}: {name}"
        for where, _, node in _places(root)
        if isinstance(node, ast.Attribute) and (name := _row_loop(node)) and not allowed.allows(where, name)
    ]


def _row_loop(node: ast.Attribute) -> str:
    if node.attr in ROW_LOOPS:
        return node.attr
    of_numpy = isinstance(node.value, ast.Name) and node.value.id in {"np", "numpy"}
    return node.attr if of_numpy and node.attr in ROW_LOOPS_OF_NUMPY else ""


def impurities(
    root: Path, pure: Iterable[str], allowed: Exceptions, acting: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """Return what modules that are called pure take from outside: clock, randomness, files, processes, stores.

    Args:
        root: of the repository.
        pure: patterns over dotted names of modules.
        allowed: single places, with a reason.
        acting: functions and classes of pure modules that act on what is outside: these modules may import for them.
    """
    acting = acting or {}
    imported = {module: _impure_imports(modules(root)[module]) for module in acting if module in modules(root)}
    found, used = [], set()
    for where, module, node in _places(root, pure):
        owner = where.partition("::")[2]
        actor = next((name for name in acting.get(module, ()) if owner == name or owner.startswith(f"{name}.")), None)
        if module in acting and owner == "<module>" and isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = _impure_names(module, node)
        if isinstance(node, ast.Name) and node.id in imported.get(module, {}):
            names = [imported[module][node.id]]
        if names and actor is not None:
            used.add((module, actor))
        elif names:
            found += [
                f"{where} line {getattr(node, 'lineno', 0)}: {name}"
                for name in names
                if not allowed.allows(where, name)
            ]
    idle = [(module, name) for module, names in acting.items() for name in names if (module, name) not in used]
    return found + [f"{module}.{name} takes nothing from outside: it is no exception" for module, name in idle]


def _impure_imports(path: Path) -> dict[str, str]:
    """Return the names that a module binds to something impure."""
    bound: dict[str, str] = {}
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.Import):
            bound |= {
                (alias.asname or alias.name.split(".")[0]): alias.name
                for alias in node.names
                if _is_impure_import(alias.name)
            }
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            bound |= {
                (alias.asname or alias.name): f"{base}.{alias.name}"
                for alias in node.names
                if _is_impure_import(base) or _is_impure_import(f"{base}.{alias.name}")
            }
    return bound


def _impure_names(module: str, node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if _is_impure_import(alias.name)]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        wholes = [f"{base}.{alias.name}" for alias in node.names]
        return [base] if _is_impure_import(base) else [whole for whole in wholes if _is_impure_import(whole)]
    if isinstance(node, ast.Attribute):
        short = ".".join(ast.unparse(node).split(".")[-2:])
        return [short] if short in IMPURE_CALLS else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return [node.func.id] if node.func.id in IMPURE_CALLS else []
    return []


def _is_impure_import(name: str) -> bool:
    if name.split(".")[0] in IMPURE_MODULES or name in IMPURE_CALLS or name in HANDS_ON_A_STORE:
        return True
    store = f"{CORE}.storage."
    return name.startswith(store) and not name.startswith(f"{store}api")


def absent(root: Path, pure: Iterable[str]) -> list[str]:
    """Return the patterns of pure modules that fit no module."""
    return [p for p in pure if not any(fnmatch.fnmatchcase(module, p) for module in modules(root))]


@functools.cache
def function_sizes(root: Path) -> dict[str, int]:
    """Return the length in lines of every function, decorators and docstring left out, ``file::name`` → lines."""
    return {
        where: _code_lines(node)
        for where, _, node in _places(root)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    whole = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is None:
        return whole
    return whole - ((first.end_lineno or first.lineno) - first.lineno + 1)


def module_sizes(root: Path) -> dict[str, int]:
    """Return the length in lines of every module, file → lines."""
    return {
        path.relative_to(root).as_posix(): len(path.read_text("utf-8").splitlines()) for path in modules(root).values()
    }


def oversized(root: Path, allowed: Exceptions) -> list[str]:
    """Return functions and modules that are longer than the house allows."""
    rows = [(where, lines, FUNCTION_LINES) for where, lines in function_sizes(root).items()]
    rows += [(where, lines, MODULE_LINES) for where, lines in module_sizes(root).items()]
    return [
        f"{where}: {lines} lines, {limit} are allowed"
        for where, lines, limit in rows
        if lines > limit and not allowed.allows(where, lines=lines)
    ]


def size_report(root: Path) -> str:
    """Return figures on the size of functions and modules, and the longest of each."""
    functions, files = function_sizes(root), module_sizes(root)
    if not functions:
        return "no functions"
    lengths = sorted(functions.values())
    rows = [
        f"{len(files)} modules, median {statistics.median(files.values()):.0f} lines, longest {max(files.values())}",
        f"{len(lengths)} functions, median {statistics.median(lengths):.0f} lines, nine in ten under "
        f"{lengths[int(len(lengths) * 0.9)] + 1}, {sum(n > FUNCTION_LINES for n in lengths)} over {FUNCTION_LINES}",
    ]
    for sizes in (functions, files):
        rows += [f"  {lines:5} {where}" for where, lines in sorted(sizes.items(), key=lambda i: -i[1])[:10]]
    return "\n".join(rows)


# ------------------------------------------------------------------------------------------------ words in the files


def forbidden_words() -> dict[str, re.Pattern[bytes]]:
    """Return what no file of the project may hold, assembled from parts so that this file does not hold it either."""

    def either(*words: str) -> re.Pattern[bytes]:
        return re.compile("|".join(words).encode(), re.IGNORECASE)

    return {
        "a path of somebody's machine": either(
            r"(?<![\w.])/" + "work/", "/" + "root/", r"(?<![\w.])/" + r"home/\w", "/" + r"Users/\w", "/tmp" + "/w/"
        ),
        "a file of one machine's temporary folder": either(r"""\b(Path|open)\(f?["']/(tmp|var)""" + "/"),
        "a package registry's host": either(
            "pythonhosted" + r"\.org",
            "pypi" + r"\.org/simple",
            r"repo1?\." + "maven",
            "registry" + r"\.npmjs",
            "artifact" + "ory",
            r"--(extra-)?index" + r"-url[ =]http",
        ),
        "a word of the workplace": either(
            "anthrop" + "ic",
            "clau" + "de",
            "chat" + "gpt",
            "style-" + "anchors",
            "shared/" + "(design|spec|fixtures)",
            "jvm-" + r"judge\.md",
        ),
    }


def words_found(files: Mapping[str, bytes]) -> list[str]:
    """Return where a forbidden word stands, as ``file: what``, never the word itself."""
    patterns = forbidden_words()
    return [
        f"{name}: {what} (at byte {match.start()})"
        for name, content in files.items()
        for what, pattern in patterns.items()
        if (match := pattern.search(content))
    ]


if __name__ == "__main__":
    sys.stdout.write(size_report(Path(__file__).resolve().parents[2]) + "\n")
