"""A headless Chromium that tests drive: DevTools messages over a pair of pipes, with nothing to install but itself."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

#: The names under which distributions install it.
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--mute-audio")


def find():
    """Return the path of the browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Chromium:
    """One browser with one page. Collects what goes wrong on it, and what it asks the network for."""

    def __init__(self, profile, width=1280, height=800):
        self.problems = []
        self.requests = []
        self._replies = {}
        self._number = 0
        self._rest = b""
        read_commands, self._commands = os.pipe()
        self._events, write_events = os.pipe()

        def use_three_and_four():
            # The browser reads from descriptor 3 and writes to 4, whatever numbers the pipes have here.
            ends = os.dup(read_commands), os.dup(write_events)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        size = f"--window-size={width},{height}"
        command = [find(), *FLAGS, size, "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            preexec_fn=use_three_and_four,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_events)
        self._session = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self.resize(width, height)

    def close(self):
        """End the browser and wait for it."""
        self._session = None
        self._call("Browser.close")
        self._process.wait(timeout=30)
        os.close(self._commands)
        os.close(self._events)

    def resize(self, width, height):
        """Give the page another size."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **metrics)

    def open(self, path, ready="document.querySelector('#graph').dataset.scale > 0"):
        """Show a file, and wait until it has drawn itself."""
        self.problems.clear()
        self.requests.clear()
        self._call("Page.navigate", url=path.absolute().as_uri())
        self.wait_until(f"document.readyState === 'complete' && location.href.endsWith('{path.name}') && {ready}")

    def run(self, expression):
        """Return the value of a JavaScript expression."""
        result = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_until(self, expression, seconds=15):
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({expression})"):
            assert time.monotonic() < end, f"still not true: {expression}"
            time.sleep(0.02)

    def settle(self):
        """Wait until what was asked for is on the screen."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")

    def click(self, x, y):
        """Press and release the mouse."""
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)
        self.settle()

    def click_on(self, selector):
        """Click in the middle of an element."""
        place = """(() => {
            const found = document.querySelector(%s);
            found.scrollIntoView({ block: "nearest" });
            const box = found.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2];
        })()"""
        self.click(*self.run(place.replace("%s", json.dumps(selector))))

    def drag(self, start, end):
        """Press at one place, move and release at another."""
        self._call("Input.dispatchMouseEvent", type="mousePressed", x=start[0], y=start[1], button="left", buttons=1)
        for share in (0.5, 1.0):
            x, y = (a + (b - a) * share for a, b in zip(start, end, strict=True))
            self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        self._call("Input.dispatchMouseEvent", type="mouseReleased", x=end[0], y=end[1], button="left")
        self.settle()

    def wheel(self, x, y, delta):
        """Turn the wheel."""
        self._call("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=delta)
        self.settle()

    def press(self, *keys, shift=False):
        """Press keys one after the other, by the names that JavaScript has for them."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        codes |= {"ArrowDown": 40, "Home": 36, "End": 35, "PageDown": 34}
        for key in keys:
            event = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0), "modifiers": 8 if shift else 0}
            text = {"text": key} if len(key) == 1 else {}
            self._call("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self._call("Input.dispatchKeyEvent", type="keyUp", **event)
        self.settle()

    def type(self, text):
        """Type into what has the focus."""
        self._call("Input.insertText", text=text)
        self.settle()

    def prefer(self, scheme):
        """Let the system prefer a colour scheme: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", features=features)
        self.settle()

    def screenshot(self, path=None):
        """Return the page as PNG, and write it to a file."""
        self.settle()
        png = base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])
        if path is not None:
            path.write_bytes(png)
        return png

    def _call(self, method, **params):
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while number not in self._replies:
            self._receive()
        reply = self._replies.pop(number)
        assert "error" not in reply, f"{method}: {reply['error']}"
        return reply["result"]

    def _receive(self):
        ready, _, _ = select.select([self._events], [], [], 60)
        assert ready, "the browser is silent"
        received = os.read(self._events, 1 << 20)
        assert received, "the browser is gone"
        *messages, self._rest = (self._rest + received).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._replies[message["id"]] = message
            else:
                self._note(message["method"], message["params"])

    def _note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
