"""Count vague local names and figurative phrases per package; wording.toml has the most that each may have."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Local names that do not say what they hold.
VAGUE_NAMES = frozenset(
    {"found", "at", "one", "known", "said", "told", "mine", "theirs", "gone", "homes", "piece", "pieces"}
)

#: Phrases that stand for a number, a standard term or a named subject.
PHRASES = re.compile(
    r"\bso many\b|(?-i:\bOf (?:fewer|few|many|text)\b)|\bwhoever\b|\bnobody\b|\bsomebody\b|\broads?\b|\brules of residence\b"
    r"|\bcarr(?:y|ies|ied|ying) (?:\w+ )?out\b|\b(?:is|are|was|were) told\b|\btwins?\b|\bdeeds?\b|\bgive way\b",
    re.IGNORECASE,
)


def package_of(name: str) -> str:
    """Return the package of a module's path: ``lakefmt/read``, or the module itself outside of packages."""
    return "/".join(name.split("/")[:2])


def vague_names(source: str) -> list[str]:
    """Return the vague names that functions of a module bind, each once per function."""
    bound: dict[ast.AST, set[str]] = {}
    waiting: list[tuple[ast.AST, ast.AST | None]] = [(ast.parse(source), None)]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            function = node
        name = node.arg if isinstance(node, ast.arg) else None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        if function is not None and name in VAGUE_NAMES:
            bound.setdefault(function, set()).add(name)
        waiting += [(child, function) for child in ast.iter_child_nodes(node)]
    return sorted(name for names in bound.values() for name in names)


def figurative_phrases(source: str) -> list[str]:
    """Return the phrases in a module's docstrings and comments."""
    if not PHRASES.search(re.sub(r"[\s#]+", " ", source)):
        return []  # most modules: tokenizing is slow
    texts = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            texts.append(ast.get_docstring(node, clean=True) or "")
    return [match for text in texts for match in PHRASES.findall(re.sub(r"\s+", " ", text))]


def measured(root: Path) -> dict[str, dict[str, int]]:
    """Return measure → package → count for the library, packages without any left out."""
    names: Counter[str] = Counter()
    phrases: Counter[str] = Counter()
    for path in sorted((root / "lakefmt").rglob("*.py")):
        source, package = path.read_text("utf-8"), package_of(path.relative_to(root).as_posix())
        names[package] += len(vague_names(source))
        phrases[package] += len(figurative_phrases(source))
    return {
        "names": {package: count for package, count in sorted(names.items()) if count},
        "phrases": {package: count for package, count in sorted(phrases.items()) if count},
    }


def as_toml(counts: dict[str, dict[str, int]]) -> str:
    """Return the content of wording.toml for the counts of today."""
    lines = [
        "# The most vague local names and figurative phrases that each package may have; absent: none.",
        "# Numbers only fall: `python tests/architecture/wording.py` prints those of today.",
    ]
    for measure, packages in counts.items():
        lines += ["", f"[{measure}]", *(f'"{package}" = {count}' for package, count in packages.items())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_toml(measured(ROOT)))
