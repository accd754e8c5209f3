"""Measures of the structure: what one upsert and one read pass through, folders, names, imports.

``python tests/architecture/structure_measures.py`` prints them; ``test_structure.py`` holds the goals.
"""

from __future__ import annotations

import ast
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import architecture_rules as rules

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Trace:
    """What one call passed through.

    Attributes:
        modules: modules of the package whose code ran.
        functions: (module, qualified name) of functions that ran.
        calls: calls of these functions.
        crossings: calls from one module of the package into another one.
        depth: frames of the package on the deepest stack.
    """

    modules: set[str] = field(default_factory=set)
    functions: set[tuple[str, str]] = field(default_factory=set)
    calls: int = 0
    crossings: int = 0
    depth: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.modules)} modules, {len(self.functions)} functions, {self.calls} calls, "
            f"{self.crossings} crossings between modules, deepest stack {self.depth}"
        )


def trace(work: Callable[[], object]) -> Trace:
    """Run `work` and return what it passed through, in every thread that begins meanwhile."""
    seen = Trace()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        del argument
        module = _module(frame)
        # A comprehension is no function of its own to a reader (and none at all from Python 3.12 on).
        if event != "call" or not module or frame.f_code.co_name.endswith("comp>"):
            return
        seen.modules.add(module)
        seen.functions.add((module, frame.f_code.co_qualname))
        seen.calls += 1
        callers = list(_callers(frame))
        seen.crossings += bool(callers) and callers[0] != module
        seen.depth = max(seen.depth, len(callers) + 1)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return seen


def _module(frame: FrameType) -> str:
    name = str(frame.f_globals.get("__name__", ""))
    return name if name.split(".")[0] == rules.PACKAGE and name not in _AS_LIBRARIES else ""


#: No modules that a reader has to open: methods that are given to a class, and functions in the place of PyArrow's and NumPy's.
_AS_LIBRARIES = ("lakefmt.data_classes", "lakefmt.arrays")


def _callers(frame: FrameType) -> Iterable[str]:
    above = frame.f_back
    while above is not None:
        if (module := _module(above)) and not above.f_code.co_name.endswith("comp>"):
            yield module
        above = above.f_back


def traces() -> dict[str, Trace]:
    """Return the traces of a warm upsert of seven rows into two partitions, and of a read with one filter."""
    import pyarrow as pa

    import lakefmt

    rows = pa.table(
        {
            "uuid": [f"k{number}" for number in range(7)],
            "city": ["sf", "oslo", "sf", "oslo", "sf", "oslo", "sf"],
            "fare": [float(number) for number in range(7)],
            "ts": list(range(7)),
        }
    )
    found = {}
    for kind in ("cow", "mor"):
        with tempfile.TemporaryDirectory() as folder:
            table = lakefmt.create_table(
                f"{folder}/t", data=rows, record_key="uuid", partition_by="city", ordering="ts", table_type=kind
            )
            for _ in range(4):
                table.upsert(rows)
                table.read(filter=[("city", "=", "sf")])
            found[f"{kind} upsert"] = trace(lambda table=table: table.upsert(rows))  # type: ignore[misc]
            found[f"{kind} read"] = trace(lambda table=table: table.read(filter=[("city", "=", "sf")]))  # type: ignore[misc]
    return found


def folder_sizes(root: Path = ROOT) -> Counter[str]:
    """Return how many modules each folder holds, those of the test kit left out."""
    return Counter(
        path.parent.relative_to(root).as_posix() for path in rules.modules(root).values() if path.name != "__init__.py"
    )


def names_defined_twice(root: Path = ROOT) -> dict[str, list[str]]:
    """Return public functions and classes of the top level that several modules define, name → modules."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, path in rules.modules(root).items():
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(module)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def imported_once(root: Path = ROOT) -> list[str]:
    """Return modules that exactly one other module imports."""
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for found in rules.imports(root):
        importers[found.imported].add(found.importer)
    return sorted(module for module, users in importers.items() if len(users) == 1)


def public_names(root: Path = ROOT) -> int:
    """Return how many names of the top level, in modules that are public by name, begin without an underscore."""
    total = 0
    for module, path in rules.modules(root).items():
        if any(part.startswith("_") for part in module.split(".")):
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            names = [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            total += sum(not name.startswith("_") for name in names)
    return total


def report(root: Path = ROOT) -> str:
    """Return all measures as text."""
    folder, size = folder_sizes(root).most_common(1)[0]
    rows = [f"{name}: {seen}" for name, seen in traces().items()]
    rows += [
        f"{len(rules.modules(root))} modules; largest folder {folder} with {size}",
        f"{len(imported_once(root))} modules are imported by one other module",
        f"{public_names(root)} public names of the top level",
        f"{len(names_defined_twice(root))} public names are defined in several modules: "
        + ", ".join(names_defined_twice(root)),
        f"{len(rules.circles(root))} circles of modules, {len(rules.mutual_parts(root))} of packages",
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
