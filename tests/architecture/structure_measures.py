"""Measures of the structure: what one upsert and one read pass through, folders, names, imports.

``python tests/architecture/structure_measures.py`` prints them; ``test_structure.py`` holds the goals.
"""

from __future__ import annotations

import ast
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
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
    return name if name.split(".")[0] == rules.PACKAGE else ""


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


def code_lines(root: Path = ROOT) -> int:
    """Return the lines of the package without blank lines, comments and docstrings."""
    total = 0
    for path in rules.modules(root).values():
        text = path.read_text("utf-8")
        documented: set[int] = set()
        for node in ast.walk(ast.parse(text)):
            is_owner = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if is_owner and ast.get_docstring(node) is not None:
                documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        total += sum(
            bool(line.strip()) and not line.lstrip().startswith("#") and number not in documented
            for number, line in enumerate(text.splitlines(), 1)
        )
    return total


def deferred_imports(root: Path = ROOT) -> list[str]:
    """Return the imports of modules of the package inside functions, ``file:line``."""
    return [
        f"{path.relative_to(root).as_posix()}:{node.lineno}"
        for path in rules.modules(root).values()
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in function.body
        for node in ast.walk(node)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == rules.PACKAGE
    ]


def circles_of_any_kind(root: Path = ROOT) -> list[list[str]]:
    """Return the circles of modules, imports for types and in functions included."""
    targets: defaultdict[str, set[str]] = defaultdict(set)
    for found in rules.imports(root):
        targets[found.importer].add(found.imported)
    order: list[str] = []
    _visit_all(targets, targets, order)
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for importer, imported in targets.items():
        for each in imported:
            sources[each].add(importer)
    components = _visit_all(reversed(order), sources, [])
    return [sorted(each) for each in components if len(each) > 1]


def _visit_all(starts: Iterable[str], edges: Mapping[str, set[str]], order: list[str]) -> list[list[str]]:
    """Visit what is reached from each start and was not visited before; append modules to `order` as they are left."""
    seen: set[str] = set()
    components: list[list[str]] = []
    for start in list(starts):
        if start in seen:
            continue
        seen.add(start)
        component, stack = [start], [(start, iter(sorted(edges.get(start, ()))))]
        while stack:
            module, rest = stack[-1]
            following = next((each for each in rest if each not in seen), None)
            if following is None:
                order.append(module)
                stack.pop()
                continue
            seen.add(following)
            component.append(following)
            stack.append((following, iter(sorted(edges.get(following, ())))))
        components.append(component)
    return components


def handed_on(root: Path = ROOT) -> list[str]:
    """Return functions that take a client and a state as two arguments, where a ``TableAt`` or ``WriteAt`` is both."""
    found = []
    for module, path in rules.modules(root).items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                types = {ast.unparse(a.annotation) for a in (*node.args.args, *node.args.kwonlyargs) if a.annotation}
                if "TableState" in types and types & {"TableClient", "WriteClient"}:
                    found.append(f"{module}.{node.name}")
    return found


def uses_of_any(root: Path = ROOT) -> int:
    """Return how many times the package names ``Any``, its imports left out."""
    trees = (ast.parse(path.read_text("utf-8")) for path in rules.modules(root).values())
    return sum(isinstance(node, ast.Name) and node.id == "Any" for tree in trees for node in ast.walk(tree))


def handlers_of_exception(root: Path = ROOT) -> list[str]:
    """Return the handlers of ``Exception`` itself, ``file:line``."""
    return [
        f"{path.relative_to(root).as_posix()}:{node.lineno}"
        for path in rules.modules(root).values()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception"
    ]


def words_of_pages(root: Path = ROOT) -> int:
    """Return the words of the pages in docs, those for developers (docs/dev) left out."""
    pages = [page for page in (root / "docs").rglob("*.md") if (root / "docs/dev") not in page.parents]
    return sum(len(page.read_text("utf-8").split()) for page in pages)


def report(root: Path = ROOT) -> str:
    """Return all measures as text."""
    folder, size = folder_sizes(root).most_common(1)[0]
    rows = [f"{name}: {seen}" for name, seen in traces().items()]
    rows += [
        f"{len(rules.modules(root))} modules; largest folder {folder} with {size}",
        f"{len(imported_once(root))} modules are imported by one other module",
        f"{code_lines(root)} code lines",
        f"{public_names(root)} public names of the top level",
        f"{len(handed_on(root))} functions take a client and a state",
        f"{len(deferred_imports(root))} imports of own modules in functions",
        f"{1000 * uses_of_any(root) / code_lines(root):.1f} uses of Any per 1,000 code lines",
        f"{len(handlers_of_exception(root))} handlers of Exception",
        f"{words_of_pages(root)} words in docs outside docs/dev",
        f"{len(circles_of_any_kind(root))} circles of modules, imports for types and in functions included",
        f"{len(names_defined_twice(root))} public names are defined in several modules: "
        + ", ".join(names_defined_twice(root)),
        f"{len(rules.circles(root))} circles of modules, {len(rules.mutual_parts(root))} of packages",
    ]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.stdout.write(report() + "\n")
