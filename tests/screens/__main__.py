"""Look at the pages of a built site as a reader does: ``python -m tests.screens SITE [--to FOLDER]``.

Eleven pages, or with ``--all`` every one, are opened by a Chromium without a window, at three widths, in light and
dark. What is wider than the window, pictures that are empty or have no words, text that hardly stands out, and errors
of a page's scripts are printed, and the exit status is 1. With ``--to`` the screens are kept, for a person to look at.
On all pages of the site, also without Chromium, pictures must have words and drawings must not be empty.
"""

import argparse
import base64
import functools
import http.server
import itertools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).parent
PAGES = (
    "index.html",
    "which.html",
    "faq.html",
    "compare.html",
    "api.html",
    "methods/table.html",
    "methods/years.html",
    "methods/sheets/residual.html",
    "methods/activation/token/rmsnorm.html",
    "methods/activation/batch/batchnorm.html",
    "methods/gradient/muon.html",
)
WIDTHS = (390, 768, 1280)
SCHEMES = ("light", "dark")
TALLEST = 8000  # pixels of a screen that is kept
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FRESH = """
localStorage.clear();
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "* { transition: none !important; animation: none !important; }";
  document.head.append(style);
});
"""  # no scheme is kept from the page before, and nothing is still on its way
SETTLED = "new Promise((done) => document.fonts.ready.then(() => requestAnimationFrame(() => setTimeout(done, 50))))"


DRAWN = """(() => {
  const style = document.createElement("style");
  style.textContent = "* { content-visibility: visible !important; }";
  document.head.append(style);
})()"""  # rows below the window too


class Browser:
    """A Chromium without a window, driven through a pair of pipes by its DevTools protocol."""

    def __init__(self, program: str):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self.out = os.pipe()
        self.back, theirs_out = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --remote-debugging-pipe"
        line = f'exec "$0" {flags} --user-data-dir="$1" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, program, self.profile.name],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.numbers, self.rest = itertools.count(1), b""
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=FRESH)

    def call(self, method: str, until: str = "", **params) -> dict:
        """Send a command; return its result, once an event of the name ``until`` has come too."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if hasattr(self, "session"):
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        result = None
        while result is None or until:
            answer = self.read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result = answer["result"]
            elif answer.get("method") == until:
                until = ""
            elif answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(answer["params"]["exceptionDetails"]["text"])
            elif answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
                entry = answer["params"]["entry"]
                self.errors.append(f"{entry['text']} {entry.get('url', '')}".strip())
        return result

    def read(self) -> dict:
        """Return the next message."""
        while b"\0" not in self.rest:
            more = os.read(self.back, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def value(self, script: str):
        """Return what a script of the open page comes to."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def open(self, address: str, width: int, scheme: str) -> None:
        """Open a page in a window of a width, as a reader does who prefers light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", until="Page.loadEventFired", url="about:blank")  # the last page keeps its scheme
        self.errors.clear()
        self.call("Page.navigate", until="Page.loadEventFired", url=address)
        self.value(SETTLED)

    def screen(self, path: pathlib.Path, width: int) -> None:
        """Keep the page as a picture, from its top to its end or as far as that is of use."""
        self.value(DRAWN)
        height = min(TALLEST, self.value("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(picture))

    def close(self) -> None:
        """End the browser."""
        os.write(self.out, b'{"id": 0, "method": "Browser.close"}\0')
        self.process.wait(60)
        os.close(self.out)
        os.close(self.back)
        self.profile.cleanup()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that prints nothing."""

    def log_message(self, *words):
        """Print nothing."""


def look(site: pathlib.Path, program: str, to: pathlib.Path | None, pages=PAGES, widths=WIDTHS, schemes=SCHEMES):
    """Return what is to be frowned at on the pages, at all widths and in all schemes, a sentence each."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=site))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser, check = Browser(program), (HERE / "check.js").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    try:
        for scheme, page, width in itertools.product(schemes, pages, widths):
            browser.open(f"http://127.0.0.1:{server.server_port}/{page}", width, scheme)
            problems = [*json.loads(browser.value(check)), *(f"an error: {text}" for text in browser.errors)]
            for problem in problems:
                found.setdefault(f"{page}: {problem}", []).append(f"{width} {scheme}")
            if to is not None:
                browser.screen(to / f"{page.removesuffix('.html').replace('/', '-')}-{width}-{scheme}.png", width)
    finally:
        browser.close()
        server.shutdown()
    return [f"{problem}  ({', '.join(views)})" for problem, views in found.items()]


def unseen(page: str) -> list[str]:
    """Return what of a page's pictures cannot be read aloud, or is empty, by its text alone.

    >>> unseen('<img src="a.png"><svg class="pic" role="img" aria-label="a line"><path d="M0 0h1"/></svg>')
    ['a picture without words: <img src="a.png">']
    >>> unseen('<svg class=pic role=img><path d="M0"/></svg><svg class=pic aria-label=all><path d="M0"/></svg>')
    ['a picture without words: <svg class=pic role=img>']
    >>> unseen('<svg class="pic" role="img" aria-label="all"></svg>')
    ['an empty picture: <svg class="pic" role="img" aria-label="all">']
    """
    images = [tag for tag in re.findall(r"<img\b[^>]*>", page) if not re.search(r'\balt=("[^"]+"|[^\s">]+)', tag)]
    drawings = re.findall(r'(<svg class="?pic\b[^>]*>)(.*?)</svg>', page, re.DOTALL)
    drawings = [(tag, inside) for tag, inside in drawings if "aria-hidden" not in tag]
    silent = [tag for tag, _ in drawings if not re.search(r'\baria-label=("[^"]+"|[^\s">]+)', tag)]
    empty = [tag for tag, inside in drawings if "<" not in inside]
    return [f"a picture without words: {tag}" for tag in images + silent] + [f"an empty picture: {t}" for t in empty]


def main(words: list[str]) -> int:
    """Print what is wrong; return 1 where anything is."""
    parser = argparse.ArgumentParser("python -m tests.screens", description="look at the pages of a built site")
    parser.add_argument("site", type=pathlib.Path, help="the folder that mkdocs built")
    parser.add_argument("--to", type=pathlib.Path, help="the folder to keep the screens in")
    parser.add_argument("--page", action="append", help="only this page, index.html for one")
    parser.add_argument("--all", action="store_true", help="every page, which takes the better part of an hour")
    options = parser.parse_args(words)
    files = sorted(options.site.rglob("*.html"))
    problems = [
        f"{file.relative_to(options.site)}: {problem}"
        for file in files
        for problem in unseen(file.read_text(encoding="utf-8"))
    ]
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        print("no Chromium is installed: the screens were not made")
    else:
        if options.to is not None:
            options.to.mkdir(parents=True, exist_ok=True)
        every = tuple(str(file.relative_to(options.site)) for file in files)
        problems += look(options.site, program, options.to, every if options.all else tuple(options.page or PAGES))
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(files)} pages, {len(problems)} problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
