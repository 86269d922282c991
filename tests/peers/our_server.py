"""Our server in a process of its own, and the booking system that it books with."""

import contextlib
import dataclasses
import pathlib
import shutil

import processes

PUBLIC_URL = "https://bridge.example"
AUTH_TOKEN = "the token of whoever calls"
ADMIN_TOKEN = "the token of whoever looks"
SHIPPED_BACKEND = "127.0.0.1:9300"


@dataclasses.dataclass(frozen=True)
class Serving:
    # HOST:PORT
    address: str
    # One booking a line; it is not there before the first.
    bookings: pathlib.Path


@contextlib.contextmanager
def serving(place, name, model_url, commit_ms=0, env=None):
    """With the shipped config. `name` is that of its folder and of its logs."""
    folder = place.scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place.root / "config", folder / "config")
    bookings = folder / "bookings.jsonl"
    command = [str(place.program), "sim", "booking", "--listen", "127.0.0.1:0", "--file", str(bookings)]
    command += ["--delay-before-commit-ms", str(commit_ms)]
    log = place.scratch / f"{name}.booking.log"
    with processes.running(command, r"^booking backend at http://([\d.:]+)/", log) as backend:
        for tool in (folder / "config/tools").glob("*.toml"):
            tool.write_text(tool.read_text(encoding="utf-8").replace(SHIPPED_BACKEND, backend), encoding="utf-8")
        env = {
            "ANSWERBACK__SERVER__BIND": "127.0.0.1:0",
            "ANSWERBACK__SERVER__PUBLIC_URL": PUBLIC_URL,
            "ANSWERBACK__SERVER__DATA_DIR": str(folder / "data"),
            "ANSWERBACK__SERVER__DRAIN_GRACE_S": "2",
            "ANSWERBACK__SERVER__ADMIN_TOKEN": ADMIN_TOKEN,
            "ANSWERBACK__TWILIO__AUTH_TOKEN": AUTH_TOKEN,
            "ANSWERBACK__MODEL__BASE_URL": model_url,
            "ANSWERBACK__MODEL__API_KEY": "peer",
        } | (env or {})
        command = [str(place.program), "serve", "--config", str(folder / "config")]
        with processes.running(command, r"^ready at http://([\d.:]+)", place.scratch / f"{name}.serve.log", env) as address:
            yield Serving(address, bookings)
