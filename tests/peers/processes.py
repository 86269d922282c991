"""Child processes: started on free ports, read until they say where they listen, ended by their own id."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import threading
import time

START_S = 30.0
# A program that does not end when it is asked to is killed after this long.
END_S = 10.0


class Failed(Exception):
    """What went wrong, in words for the table."""


class Place:
    """Where things are: the program that is tested, the folder of these files, and what the peers were installed into."""

    def __init__(self, program, installed, scratch):
        self.program = pathlib.Path(program).resolve()
        self.sources = pathlib.Path(__file__).resolve().parent
        self.root = self.sources.parent.parent
        self.voices = self.root / "crates/sim/assets"
        self.installed = pathlib.Path(installed).resolve()
        self.scratch = pathlib.Path(scratch).resolve()
        self.scratch.mkdir(parents=True, exist_ok=True)

    def interpreter(self, kind):
        return ["node"] if kind == "js" else [str(self.installed / kind / "bin/python")]

    def script(self, kind, name):
        # Modules of node are looked for from where a script lies.
        folder = self.installed / "js/scripts" if kind == "js" else self.sources / "peers"
        return str(folder / name)


def clean_environment(extra=None):
    """Ours alone: a key, a config or a proxy of whoever runs this is for other servers."""
    foreign = ("ANSWERBACK__", "OPENAI_", "AZURE_", "LIVEKIT_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return env | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "PYTHONUNBUFFERED": "1"} | (extra or {})


@contextlib.contextmanager
def running(command, says, log, env=None):
    """A child, and the first group of `says` in the line of its output that tells that it is ready."""
    found, ready = [], threading.Event()
    with open(log, "w", encoding="utf-8") as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, env=clean_environment(env)
        )

    def read():
        for line in child.stdout:
            if not found and (match := re.search(says, line)):
                found.append(match.group(1))
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        ready.wait(START_S)
        if not found:
            raise Failed(f"{pathlib.Path(command[0]).name} {command[1]} did not start: {last_line(log)}")
        yield found[0]
    finally:
        end(child)
        reader.join(END_S)


def end(child):
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def run(command, timeout_s, log, env=None):
    """Runs to the end; returns the exit code, standard output and the seconds it took."""
    began = time.monotonic()
    with open(log, "w", encoding="utf-8") as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, env=clean_environment(env)
        )
        try:
            told, _ = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"not over after {timeout_s} s: {last_line(log)}") from None
        finally:
            end(child)
    return child.returncode, told, time.monotonic() - began


def last_line(log):
    with open(log, encoding="utf-8", errors="replace") as text:
        lines = [line.strip() for line in text if line.strip()]
    return lines[-1][:300] if lines else f"nothing in {log}"


def model(place, script, wire_log, speed):
    """The simulated model; yields its address, `ws://127.0.0.1:PORT/v1`."""
    wire_log.unlink(missing_ok=True)
    command = [str(place.program), "sim", "model", "--listen", "127.0.0.1:0", "--script", str(script)]
    command += ["--speed", str(speed), "--wire-log", str(wire_log)]
    return running(command, r"^model at (ws://\S+)", wire_log.with_suffix(".log"))
