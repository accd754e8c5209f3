"""Tables and references in the documentation say what the code says."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]


def missing_settings(page: str, table: str) -> list[str]:
    """Return the lines of the generated table that the page does not hold in one piece."""
    if table.strip() in page:
        return []
    held = set(page.splitlines())
    return [line for line in table.strip().splitlines() if line not in held] or ["the lines stand in another order"]


def root_command() -> click.Group:
    """Return the click group behind the script `lakefmt`."""
    module = importlib.import_module("lakefmt._core.cli")
    groups = [
        value for value in (getattr(module, "main", None), *vars(module).values()) if isinstance(value, click.Group)
    ]
    assert groups, "lakefmt._core.cli shows no click group"
    return groups[0]


def all_commands(group: click.Group, path: str = "lakefmt") -> dict[str, click.Command]:
    """Return every command by its words, those of sub-groups included."""
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        words = f"{path} {name}"
        found |= all_commands(command, words) if isinstance(command, click.Group) else {words: command}
    return found


def undocumented(commands: dict[str, click.Command], page: str) -> list[str]:
    """Return commands without help or without a place on the page, and options without help."""
    said = [f"{words}: no help" for words, command in commands.items() if not (command.help or "").strip()]
    said += [f"{words}: not on the page" for words in commands if not re.search(rf"\b{re.escape(words)}\b(?!-)", page)]
    said += [
        f"{words} {option.opts[0]}: no help"
        for words, command in commands.items()
        for option in command.params
        if isinstance(option, click.Option) and not (option.help or "").strip()
    ]
    return said


def test_the_settings_table_is_the_generated_one():
    from lakefmt._core.config import settings

    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    missing = missing_settings(page, settings.settings_markdown())
    assert not missing, "docs/settings.md is out of date, run `make docs-write`:\n" + "\n".join(missing)


def test_every_command_is_documented():
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    said = undocumented(all_commands(root_command()), page)
    assert not said, "\n".join(said)


def test_a_generated_part_is_written_anew_and_the_rest_is_kept():
    tool = write_docs()
    page = "a\n<!-- generated: t -->\nold\n<!-- end of generated: t -->\nb\n"
    new = tool.renew(page, {"t": lambda: "| \\1 |\n", "other": lambda: "never"})
    assert new == "a\n<!-- generated: t -->\n| \\1 |\n<!-- end of generated: t -->\nb\n"
    assert tool.renew(new, {"t": lambda: "| \\1 |"}) == new


def test_a_changed_setting_is_seen():
    table = "| a | 1 |\n| b | 2 |\n"
    assert missing_settings(f"# Settings\n\n{table}\n", table) == []
    assert missing_settings("| a | 1 |\n| b | 3 |\n", table) == ["| b | 2 |"]
    assert missing_settings("| b | 2 |\n| a | 1 |\n", table) == ["the lines stand in another order"]


@pytest.mark.parametrize(
    ("help_text", "option_help", "page", "said"),
    [
        ("Make.", "How.", "`lakefmt make`", []),
        ("", "How.", "`lakefmt make`", ["lakefmt make: no help"]),
        ("Make.", None, "`lakefmt make`", ["lakefmt make --how: no help"]),
        ("Make.", "How.", "`lakefmt maker` and `lakefmt make-up`", ["lakefmt make: not on the page"]),
    ],
)
def test_a_mute_command_is_seen(help_text, option_help, page, said):
    command = click.Command("make", help=help_text, params=[click.Option(["--how"], help=option_help)])
    assert undocumented(all_commands(click.Group("lakefmt", commands={"make": command})), page) == said


def write_docs() -> ModuleType:
    """Return tools/write_docs.py as a module."""
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "tools" / "write_docs.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_speed_in_the_readme_is_that_of_the_page():
    readme, speed = ((ROOT / name).read_text("utf-8") for name in ("README.md", "docs/dev/speed.md"))
    table = write_docs().readme_speed(speed)
    assert missing_settings(readme, table) == [], "README.md is out of date, run `make docs-write`"
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert {"load 1,000,000 rows", "upsert 100 rows", "append 100 rows"} <= {row[0] for row in rows}
    assert all(re.fullmatch(r"\*\*[0-9.]+ m?s\*\*", row[1]) for row in rows)
    assert any(row[-1] != "–" for row in rows), "a row has Hudi on Spark"


def test_a_figure_that_changed_is_seen():
    tool, speed = write_docs(), (ROOT / "docs" / "dev" / "speed.md").read_text("utf-8")
    line = next(line for line in speed.splitlines() if line.startswith("| bulk load | ≤"))
    changed = speed.replace(line, re.sub(r"deltalake [0-9.]+ s", "deltalake 77.7 s", line), 1)
    assert "77.7 s" in tool.readme_speed(changed)
    assert "77.7 s" not in tool.readme_speed(speed)
    cold = "| 100-row append | – | – | lakefmt 88.8 ms (80.1 ms–90.2 ms)<br>pyarrow 2.0 ms | – |"
    marks = ("<!-- generated: measured cold -->\n", "<!-- end of generated: measured cold -->")
    with_cold = tool.readme_speed("".join([speed.split(marks[0])[0], marks[0], cold, "\n", marks[1]]))
    assert "| lakefmt | lakefmt, defaults, cold process | deltalake |" in with_cold
    assert any(line.startswith("| append 100 rows |") and "| 88.8 ms |" in line for line in with_cold.splitlines())
    assert tool.readme_speed("no figures").count("\n") == 1, "works that are not measured have no row"
