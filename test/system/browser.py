"""browser.py -- a headless Chromium for tests of pages: what a page asks of a network, what it says on the console, what
is on it. By the DevTools protocol over two pipes (--remote-debugging-pipe), so that no port and no package is needed."""
import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ("--headless --no-sandbox --disable-gpu --hide-scrollbars --no-first-run --disable-extensions --disable-sync "
           "--disable-dev-shm-usage --disable-background-networking --disable-component-update --no-proxy-server "
           "--remote-debugging-pipe").split()


def found():
    """The browser's path; who has none is told so, and the test ends well."""
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        print("skipped: no Chromium (CHROMIUM names one)")
        sys.exit(0)
    return path


class Browser:
    """One page of a browser whose profile goes with it. `requests`: addresses that were asked for, but the page's own text.
    `messages`: whatever would stand in the console, exceptions too."""

    def __init__(self, path, width=1200, height=1600):
        self.folder = tempfile.mkdtemp(prefix="browser.")
        ours, theirs = os.pipe(), os.pipe()
        line = 'in=$1 out=$2; shift 2; exec "$@" 3<&$in 4>&$out'
        self.log = open(os.path.join(self.folder, "log"), "w", encoding="utf-8")
        self.process = subprocess.Popen(
            ["bash", "-c", line, "bash", str(ours[0]), str(theirs[1]), path, *OPTIONS, "--user-data-dir=" + self.folder,
             "--window-size=%d,%d" % (width, height), "about:blank"], pass_fds=(ours[0], theirs[1]),
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(ours[0]), os.close(theirs[1])
        self.to, self.of, self.rest, self.number = ours[1], theirs[0], b"", 0
        self.requests, self.messages, self.session, self.events = [], [], None, []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.ask("Browser.close")
        except (OSError, EOFError, TimeoutError):
            self.process.kill()
        os.close(self.to), os.close(self.of), self.log.close()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- The protocol: JSON, with a byte 0 behind each message ----

    def ask(self, method, **params):
        self.number += 1
        said = {"id": self.number, "method": method, "params": params}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.to, json.dumps(said).encode() + b"\0")
        deadline = time.monotonic() + 120
        while True:
            answer = self.heard(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]

    def heard(self, deadline):
        while b"\0" not in self.rest:
            if not select.select([self.of], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer: %s" % self.said())
            more = os.read(self.of, 1 << 16)
            if not more:
                raise EOFError("Chromium has ended: %s" % self.said())
            self.rest += more
        text, self.rest = self.rest.split(b"\0", 1)
        heard = json.loads(text)
        self.note(heard.get("method"), heard.get("params", {}))
        return heard

    def said(self):
        with open(self.log.name, encoding="utf-8", errors="replace") as f:
            return f.read()[-2000:]

    def note(self, event, p):
        if event == "Network.requestWillBeSent" and p["type"] != "Document":
            self.requests.append(p["request"]["url"])
        elif event == "Runtime.consoleAPICalled":
            self.messages.append("%s: %s" % (p["type"], [a.get("value", a.get("description")) for a in p["args"]]))
        elif event == "Runtime.exceptionThrown":
            self.messages.append("exception: %s" % json.dumps(p["exceptionDetails"])[:400])
        elif event == "Log.entryAdded":
            self.messages.append("%(level)s: %(text)s" % p["entry"])
        elif event:
            self.events.append(event)

    # ---- The page ----

    def open(self, url):
        self.events.clear()
        answer = self.ask("Page.navigate", url=url)
        if answer.get("errorText"):
            raise RuntimeError("%s: %s" % (url, answer["errorText"]))
        deadline = time.monotonic() + 120
        while "Page.loadEventFired" not in self.events:
            self.heard(deadline)

    def value(self, script):
        """Of an expression, which may be a promise."""
        made = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in made:
            raise RuntimeError("%s: %s" % (script, json.dumps(made["exceptionDetails"])[:600]))
        return made["result"].get("value")

    def until(self, script, seconds=60):
        """The expression's value, once it is true."""
        deadline = time.monotonic() + seconds
        while True:
            made = self.value(script)
            if made:
                return made
            if time.monotonic() > deadline:
                raise TimeoutError("not true in %d s: %s\n%s" % (seconds, script, self.value("document.body.innerText")))
            time.sleep(0.02)

    def typed(self, text):
        """Keys into what has the focus."""
        for c in text:
            if c == "\n":
                key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
                self.ask("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
                self.ask("Input.dispatchKeyEvent", type="keyUp", **key)
            else:
                self.ask("Input.insertText", text=c)

    def clicked(self, selector):
        """By the mouse, where the element is."""
        x, y = self.value("(r => [r.x + r.width / 2, r.y + r.height / 2])(document.querySelector(%s)"
                          ".getBoundingClientRect())" % json.dumps(selector))
        for what in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=what, x=x, y=y, button="left", clickCount=1)

    def shot(self, path):
        """All of the page as a PNG."""
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
