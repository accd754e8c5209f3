"""What the pages show is what runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from documentation_blocks import Block, Page, PageError, blocks, commands, make_targets, pages

from lakefmt._core.storage import memory

ROOT = Path(__file__).resolve().parents[2]
TARGETS = make_targets((ROOT / "Makefile").read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.timeout(400)  # the page of the commands starts a process for each of them
@pytest.mark.parametrize("path", [pytest.param(p, id=p.relative_to(ROOT).as_posix()) for p in pages(ROOT)])
def test_the_blocks_of_a_page_run(path, tmp_path, monkeypatch, record_property):
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(memory, "_spaces", {})  # memory:// as in a new process: other tests use the same plain names
    page = Page(path.relative_to(ROOT).as_posix(), folder, TARGETS)
    page.run(path.read_text("utf-8"))
    for line in page.did:
        if " not run: " in line:
            record_property("block not run", line)  # tests/conftest.py names them at the end


def test_the_readme_shows_the_two_commands_and_a_start():
    found = blocks((ROOT / "README.md").read_text("utf-8"))
    shown = [
        command
        for block in found
        if block.language in {"console", "bash", "sh", "shell"}
        for command in commands(block)
    ]
    assert "make demo" in shown
    assert "make test" in shown
    assert any(block.language == "python" and block.not_run is None for block in found)


# ------------------------------------------------------------------------------------------- the runner can say no


@pytest.fixture
def read(tmp_path, monkeypatch):
    """Return a function that runs a page's text and gives back what was done."""

    def run(text: str) -> list[str]:
        folder = tmp_path / "page"
        folder.mkdir()
        monkeypatch.chdir(folder)
        page = Page("page.md", folder, frozenset({"demo"}))
        page.run(text)
        return page.did

    return run


def test_blocks_share_their_names_and_their_folder(read):
    text = "```python\na = 1\nopen('x', 'w').close()\n```\ntext\n```python\nassert a == 1\nopen('x').close()\n```\n"
    assert read(text) == ["page.md:2 python", "page.md:7 python"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```python\na = 1\n\nraise ValueError('no')\n```\n", "page.md:2: ValueError: no"),
        ("```python\nassert 1 == 2\n```\n", "page.md:2: AssertionError"),
        ("<!-- not run: -->\n```python\n1 / 0\n```\n", "gives no reason"),
        ("<!-- not run: needs a bucket -->\n\ntext between\n\n```python\n1 / 0\n```\n", "ZeroDivisionError"),
        ("```console\n$ rm -r x\n```\n", "`rm` is not run here"),
        ("```sh\nmake tea\n```\n", "no target tea"),
        ("```console\n$ lakefmt no-such-verb\n```\n", "`lakefmt no-such-verb` ended with"),
        (
            "```console\n$ lakefmt --version\n$ lakefmt read 'no table'\n```\n",
            "page.md:2: `lakefmt read 'no table'` ended with 1",
        ),
        ("```console\n$ lakefmt --version\n$ lakefmt --version | grep 'x y'\n```\n", "ended with 1"),
        ("```python\na = 1\n", "never closed"),
    ],
)
def test_a_wrong_page_is_seen(read, text, said):
    with pytest.raises(PageError, match=said):
        read(text)


def test_a_marked_block_is_named_and_not_run(read):
    assert read("<!-- not run: needs a bucket -->\n```python\n1 / 0\n```\n") == ["page.md:3 not run: needs a bucket"]


def test_a_line_number_of_a_failure_is_that_of_the_page(read):
    with pytest.raises(PageError) as caught:
        read("# Title\n\n```python\na = 1\n1 / 0\n```\n")
    assert caught.value.__cause__.__traceback__.tb_next.tb_lineno == 5


def test_commands_of_a_console_block():
    prompted = Block("console", "$ lakefmt a \\\n    --b\noutput\n$ make demo  # x\n", 1)
    assert commands(prompted) == ["lakefmt a --b", "make demo"]
    assert commands(Block("sh", "# words\nlakefmt a\n\nlakefmt b\n", 1)) == ["lakefmt a", "lakefmt b"]


def test_other_blocks_are_left_alone(read):
    assert read("```text\n$ rm\n```\n```\nx\n```\n~~~toml\na=1\n~~~\n") == []


def test_make_targets_are_read():
    assert {"demo", "test", "lint", "types", "docs", "bench", "clean", "help"} <= TARGETS
