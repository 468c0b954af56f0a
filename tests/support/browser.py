"""A real browser for tests of pages: Chromium without a window, driven by Selenium."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .waiting import HANG


def _program(*names: str) -> str | None:
    return next((found for name in names if (found := shutil.which(name))), None)


CHROMIUM = _program("chromium", "chromium-browser", "google-chrome")
DRIVER = _program("chromedriver", "/usr/lib/chromium/chromedriver", "/usr/lib/chromium-browser/chromedriver")
#: why a test is skipped where there is no browser
NO_BROWSER = "no browser: tests/services/chromium.sh installs Chromium"


def no_browser() -> str | None:
    """Return what is missing to drive a browser; ``None``: nothing."""
    if importlib.util.find_spec("selenium") is None:
        return "no selenium"
    return "no Chromium" if CHROMIUM is None or DRIVER is None else None


FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage "
    "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars"
)


class Browser:
    """A browser with one page."""

    def __init__(self, home: Path):
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service

        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in [*FLAGS.split(), f"--user-data-dir={home / 'data'}"]:
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.resize(1280, 900)

    def close(self) -> None:
        """End the browser."""
        self.driver.quit()

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the page in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def open(self, address: str) -> None:
        """Open an address, and wait until its document is read."""
        # (an address that differs in its fragment alone would not be read anew)
        self.driver.get("about:blank")
        self.errors()
        self.driver.get(address)
        self.wait("location.href !== 'about:blank' && document.readyState === 'complete'")

    def js(self, code: str, *arguments: Any) -> Any:
        """Return the value of an expression in the page."""
        return self.driver.execute_script(f"return {code}", *arguments)

    def wait(self, code: str) -> Any:
        """Return the value of an expression in the page as soon as it counts as true; the limit ends a hang."""
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, HANG, 0.05).until(
            lambda driver: driver.execute_script(f"return {code}")
        )

    def rows(self, table: str) -> list[dict[str, str]]:
        """Return the rows of a table (an expression in the page) by the titles of its columns, once it is there."""
        self.wait(table)
        head = self.js(f"[...{table}.querySelectorAll('thead th')].map(e => e.textContent)")
        body = self.js(
            f"[...{table}.querySelectorAll('tbody tr')].map(r => [...r.cells].map(e => e.textContent))"
        )
        return [dict(zip(head, row, strict=True)) for row in body]

    def errors(self) -> list[str]:
        """Return what the console has said since the last call: errors, warnings, refusals of the page's policy."""
        entries = self.driver.get_log("browser")
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path: Path, *, whole: bool = False, clip: Sequence[float] | None = None) -> None:
        """Write what is seen, the ``whole`` page, or the part of it at ``clip`` (x, y, width, height), as a PNG."""
        import base64

        wanted: dict[str, Any] = {"captureBeyondViewport": whole or clip is not None}
        if clip is not None:
            wanted["clip"] = {**dict(zip(("x", "y", "width", "height"), clip, strict=True)), "scale": 1}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", wanted)
        path.write_bytes(base64.b64decode(found["data"]))


def dark(browser: Browser, on: bool) -> None:
    """Say whether the reader prefers dark pages."""
    value = "dark" if on else "light"
    features = [{"name": "prefers-color-scheme", "value": value}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
