"""A real browser for the tests of the page: Chromium, driven by its own driver, one per session."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / ".cache" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


def missing() -> str:
    """Return what the browser's tests lack; empty: nothing."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    lacking += [] if AXE.is_file() else ["axe-core"]
    return f"{', '.join(lacking)} missing: make page-env" if lacking else ""


class Browser:
    """Chromium with what the tests ask of it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Open an address, and wait until its late parts have come."""
        self.driver.get(address)
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is under way."""
        from selenium.webdriver.support.wait import WebDriverWait

        WebDriverWait(self.driver, 60, poll_frequency=0.02).until(
            lambda driver: driver.execute_script(
                "return document.readyState === 'complete' && !document.querySelector('[aria-busy]')"
                " && !document.querySelector('[data-src]:not(.filled)') && !document.querySelector('[data-main]')"
            )
        )

    def run(self, script: str, *arguments: object) -> Any:
        """Run a script in the page and return its value."""
        return self.driver.execute_script(script, *arguments)

    def text(self) -> str:
        """Return the text that is seen."""
        return str(self.run("return document.body.innerText"))

    def errors(self) -> list[str]:
        """Return what the console said of errors and refused scripts or styles since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def resize(self, width: int, height: int = 900) -> None:
        """Give the page a size, as a phone's or a desk's."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def scheme(self, name: str) -> None:
        """Prefer light or dark colours."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def violations(self) -> list[str]:
        """Return what axe finds serious or critical."""
        self.run(AXE.read_text("utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']}).then(r => done(JSON.stringify(r.violations)))"
        )
        return [
            f"{each['id']} ({each['impact']}): {[node['html'][:160] for node in each['nodes'][:3]]}"
            for each in json.loads(found)
            if each["impact"] in ("serious", "critical")
        ]

    def keep(self, name: str) -> Path:
        """Keep a screenshot of the whole page among the artefacts of the run."""
        folder = Path(os.environ.get("LAKEFMT_PAGE_SHOTS") or ROOT / ".cache" / "page-shots")
        folder.mkdir(parents=True, exist_ok=True)
        width = self.run("return document.documentElement.clientWidth")
        height = min(6000, self.run("return document.documentElement.scrollHeight"))
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {
                "format": "png",
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1},
            },
        )
        import base64

        path = folder / f"{name}.png"
        path.write_bytes(base64.b64decode(shot["data"]))
        return path


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own; it ends with the block."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(60)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
