"""The page on a table of ten thousand commits and a hundred thousand files: first paint, interactions, memory.

Usage::

    python -m benchmarks.page.bench_page [--commits 10000] [--files 100000]

The page is served by a process of its own, and opened in Chromium (``make page-env``). First paint is Chromium's
first-contentful-paint of a new tab; an interaction is a request of the page's script from its start until its markup is in the page
(zoom, move, a page of the list, a partition); memory is the largest the serving process had. Files have sizes and no content.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.harness.machine import describe
from benchmarks.page.large_table import make_large_table
from tests.page.browser import Browser, chromium

_PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_LOAD = """
const done = arguments[arguments.length - 1], begun = performance.now(), place = document.createElement('div');
fetch(arguments[0], {credentials: 'same-origin'}).then(a => a.text()).then(text => {
  place.innerHTML = text; document.body.append(place); place.getBoundingClientRect();
  const took = performance.now() - begun; place.remove(); done(took);
});
"""


def _paint(browser: Browser, address: str) -> float:
    browser.driver.get("about:blank")
    browser.driver.get(address)
    paint = None
    while paint is None:
        paint = browser.run(_PAINT)
        time.sleep(0.01)
    return float(paint)


def _interactions(browser: Browser, base: str) -> dict[str, list[float]]:
    begin = 1767225600.0
    year = 365 * 86400.0
    windows = [(begin + year * n / 7, begin + year * (n + 1.5) / 7) for n in range(5)]
    near = [(begin + year * n / 11, begin + year * n / 11 + 5 * 86400) for n in range(1, 9)]
    asked = {
        "zoom and move, numbers per column": [
            f"timeline?part=timeline&start={a}&end={b}&width=1200" for a, b in windows
        ],
        "zoom and move, single instants": [f"timeline?part=timeline&start={a}&end={b}&width=1200" for a, b in near],
        "a page of the list": [f"timeline?part=instants&before=2026{month:02}01000000000" for month in range(2, 10)],
        "layout": ["files?part=layout&width=1200", "files?part=layout&by=file_groups&width=1200"],
        "a partition": [f"partition?partition=day%3Dp{n:04}" for n in range(3, 10)],
    }
    return {
        name: [float(browser.driver.execute_async_script(_LOAD, f"{base}/{path}")) for path in paths]
        for name, paths in asked.items()
    }


def _largest_memory(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(describe(Path(folder))))
        make_large_table(Path(folder) / "large", given.commits, max(1, given.files // given.commits))
        command = [sys.executable, "-m", "lakefmt", "ui", f"{folder}/large", "--port", "0", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as page, chromium(Path(folder) / "profile") as browser:
            try:
                told = json.loads(page.stdout.readline()) if page.stdout is not None else {}
                browser.driver.get(told["url"])
                origin = told["url"].partition("/?")[0]
                table = browser.run("return document.querySelector('tbody a').getAttribute('href')").rpartition("/")[0]
                for view in ("timeline", "files", "rows", "services", "health"):
                    if view != "health":  # it would check files that are not there
                        print(f"first paint, {view}, first time: {_paint(browser, f'{origin}{table}/{view}'):.0f} ms")
                        browser.settle()  # late parts, too: what is measured next is not beside them
                print(f"first paint, tables: {_paint(browser, origin):.0f} ms")
                print(f"first paint, timeline, again: {_paint(browser, f'{origin}{table}/timeline'):.0f} ms")
                for name, times in _interactions(browser, f"{origin}{table}").items():
                    print(f"{name}: median {median(times):.0f} ms, longest {max(times):.0f} ms of {len(times)}")
                print(f"memory of the serving process, largest: {_largest_memory(page.pid):.0f} MiB")
            finally:
                page.kill()


if __name__ == "__main__":
    main()
