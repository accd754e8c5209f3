"""What notebooks show of values: tables of HTML without scripts, whose texts are data and never markup. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["NotebookText", "facts_html", "rows_html", "text_html"]

#: Lines and characters of one value; more would hide the cells below it.
_MOST_LINES = 60
_MOST_CHARACTERS = 300


def _cut(line: str) -> str:
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}…"


def _cell(value: object) -> str:
    return f"<bdi>{escape(_cut(str(value)))}</bdi>"


def text_html(title: str, text: str) -> str:
    """Return lines of text under a title; a long text is cut, and says so.

    Example:
        >>> text_html("plan", "a < b")
        '<div class="lakefmt"><b>plan</b><pre>a &lt; b</pre></div>'
    """
    lines = text.split("\n")
    shown = [escape(_cut(line)) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append(f"… and {len(lines) - _MOST_LINES:,} more lines")
    return f'<div class="lakefmt"><b>{escape(_cut(title))}</b><pre>{chr(10).join(shown)}</pre></div>'


def facts_html(title: str, facts: Iterable[tuple[str, object]], below: str = "") -> str:
    """Return names and values, one row each.

    Args:
        title: above them.
        facts: the names with their values.
        below: HTML that follows, such as a picture.

    Example:
        >>> facts_html("t", [("rows", "<3")])
        '<div class="lakefmt"><b><bdi>t</bdi></b><table><tr><th>rows</th><td><bdi>&lt;3</bdi></td></tr></table></div>'
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in facts)
    return f'<div class="lakefmt"><b>{_cell(title)}</b><table>{rows}</table>{below}</div>'


def rows_html(title: str, names: Sequence[str], rows: Sequence[Sequence[object]], below: str = "") -> str:
    """Return a table with a line of names; of many rows the newest, which are the last ones.

    Example:
        >>> rows_html("t", ["a"], [[1]]).count("<tr>")
        2
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    left = len(rows) - _MOST_LINES
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows[-_MOST_LINES:])
    more = f"<p>and {left:,} older</p>" if left > 0 else ""
    return f'<div class="lakefmt"><b>{_cell(title)}</b><table><tr>{head}</tr>{body}</table>{more}{below}</div>'


class NotebookText:
    """Values that notebooks show as they print."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        title, _, rest = str(self).partition("\n")
        return text_html(title, rest) if rest else facts_html(title, ())
