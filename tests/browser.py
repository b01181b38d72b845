"""Drives a headless Chromium with one page, by the Chrome DevTools Protocol over pipes."""

import itertools
import json
import os
import select
import shutil
import subprocess

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TIMEOUT = 60  # seconds without an answer
OPTIONS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update"),
)
ARROWS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
KEY_CODES = {"Tab": 9, "Enter": 13, "End": 35, "Home": 36, **ARROWS}
SHIFT = 8


class Browser:
    """A context manager; `folder` is for the profile."""

    def __init__(self, folder):
        self.folder, self.numbers, self.session, self.events = folder, itertools.count(1), {}, []
        self.received = b""  # of messages that are not read yet

    def __enter__(self):
        commands, self.to_browser = os.pipe()
        from_browser, answers = os.pipe()
        self.answers = os.fdopen(from_browser, "rb", buffering=0)  # select sees all that is not read
        # Chromium reads commands from file descriptor 3, and writes answers to 4.
        renumbered = ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash"]
        self.process = subprocess.Popen(
            [*renumbered, CHROMIUM, *OPTIONS, f"--user-data-dir={self.folder}", "about:blank"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        try:
            self.attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def attach(self):
        """Opens a tab, to which all later commands go."""
        target = self.send("Target.createTarget", url="about:blank")
        attached = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)

    def __exit__(self, *error):
        self.process.terminate()
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.answers.close()
        os.close(self.to_browser)

    def read(self):
        """Returns the next message."""
        while b"\0" not in self.received:
            assert select.select([self.answers], [], [], TIMEOUT)[0], "the browser does not answer"
            part = self.answers.read(2**16)
            assert part, "the browser has ended"
            self.received += part
        message, _, self.received = self.received.partition(b"\0")
        return json.loads(message)

    def send(self, method, **params):
        """Returns the result of a command. Events that come before it are added to `events`."""
        number = next(self.numbers)
        command = {"id": number, "method": method, "params": params, **self.session}
        os.write(self.to_browser, json.dumps(command).encode() + b"\0")
        while (message := self.read()).get("id") != number:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, address):
        """Opens a page, and waits until it is loaded."""
        self.events.clear()
        self.send("Page.navigate", url=address)
        while not self.params_of("Page.loadEventFired"):
            self.events.append(self.read())

    def params_of(self, method):
        """Returns the parameters of all events with this name since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    def press(self, *keys):
        """Presses keys one after the other: "Tab", "Shift+Tab", "ArrowLeft", "7" ..."""
        for name in keys:
            key = name.removeprefix("Shift+")
            event = {"key": key, "modifiers": SHIFT * (name != key)}
            event["windowsVirtualKeyCode"] = KEY_CODES[key] if key in KEY_CODES else ord(key)
            text = {"text": "\r" if key == "Enter" else key} if key == "Enter" or len(key) == 1 else {}
            self.send("Input.dispatchKeyEvent", type="keyDown", **event, **text)
            self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def evaluate(self, expression):
        """Returns the value of a JavaScript expression."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")
