"""Proof by other people's software: `run.py --program PATH --installed DIR --scratch DIR [NAME…]`, as `cargo xtask peers`
calls it. Prints a table and ends with 1 when anything in it failed."""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time

import bridges
import check_wire
import conversations
import live_calls
import processes
import server_events
from conversations import Peer
from processes import Failed

# One file each in peers/. Another protocol needs its facts in conversations.py and its types in check_wire.py.
PEERS = (
    Peer("openai", "python", "openai_python.py", "audio/pcmu", errors=("response_cancel_not_active",)),
    Peer("livekit", "python", "livekit_realtime.py", "audio/pcm", errors=("response_cancel_not_active",)),
    Peer("pipecat", "pipecat", "pipecat_realtime.py", "audio/pcm"),
    Peer("agents-js", "js", "agents_realtime.mjs", "audio/pcmu"),
    Peer("openai-live", "python", "openai_live.py", "audio/pcmu", errors=("invalid_value",), protocol="live"),
    Peer("livekit-live", "python", "livekit_live.py", "audio/pcm", protocol="live"),
)
OTHERS = ("server-events", "live-events", "live-calls", "bridge")


class Table:
    def __init__(self):
        self.rows = []

    def add(self, name, proves, outcome, seconds=None):
        took = "" if seconds is None else f"{seconds:.0f} s"
        self.rows.append((name, proves, took, outcome))
        print(f"peers: {name}: {outcome}", file=sys.stderr, flush=True)

    def fail(self, name, proves, why):
        self.add(name, proves, f"FAILED: {why}")

    def has_failed(self):
        return any(row[3].startswith("FAILED") for row in self.rows)

    def markdown(self):
        head = "| | what it proves | took | outcome |\n|---|---|---:|---|"
        return "\n".join([head] + [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in self.rows])


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--program", required=True)
    arguments.add_argument("--installed", required=True)
    arguments.add_argument("--scratch", required=True)
    arguments.add_argument("--cargo", default="cargo")
    arguments.add_argument("--report", required=True, type=pathlib.Path)
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_args()
    known = [*(peer.name for peer in PEERS), *OTHERS]
    if unknown := [name for name in given.names if name not in known]:
        arguments.error(f"no peer is called {', '.join(unknown)}; there are {', '.join(known)}")
    place = processes.Place(given.program, given.installed, given.scratch)
    wanted = set(given.names or known)
    began = time.monotonic()
    table, extra = Table(), []
    if missed := check_wire.faults_are_found():
        table.fail("check_wire", "the check finds known faults", "; ".join(missed))
    logs = play_all(place, given.cargo, wanted, table)
    if "live-calls" in wanted:
        call_live_service(place, table)
    if "bridge" in wanted:
        logs["realtime"] += compare_bridges(place, table, extra)
    for protocol, found in logs.items():
        if found:
            check_model(protocol, found, table)
    report = "\n\n".join([table.markdown(), *extra, versions(place), f"{time.monotonic() - began:.0f} seconds in all."])
    given.report.write_text(report + "\n", encoding="utf-8")
    print(report)
    return 1 if table.has_failed() else 0


def play_all(place, cargo, wanted, table):
    """All conversations at once, then the scenarios, and the simulators' tests beside both: all of them mostly wait."""
    logs = {"realtime": [], "live": []}
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(PEERS) + 1) as pool:
        talking = [(p, pool.submit(conversations.converse, place, p)) for p in PEERS if p.name in wanted]
        # One after the other: cargo builds one thing at a time.
        testing = pool.submit(adapter_tests, place, cargo) if "live-events" in wanted else None
        for peer, conversation in talking:
            proves = f"a whole {peer.protocol} conversation with the simulated model in {peer.format}"
            if result := outcome(table, peer.name, proves, conversation.result):
                table.add(peer.name, proves, result[0], result[1])
                logs[peer.protocol].append(result[2])
        # Not before: scenarios hold calls to times that a machine which starts everything at once does not keep.
        if "server-events" in wanted:
            proves = "every event that our server sends a model is valid"
            if result := outcome(table, "server-events", proves, lambda: server_events.play(place)):
                words, seconds, by_protocol = result
                for protocol, found in by_protocol.items():
                    logs[protocol] += found
                    add_commands(table, "server-events", proves, protocol, f"{len(found)} {words}", seconds, found)
        if testing:
            proves = "every event that our adapter sends a Live model is valid"
            if result := outcome(table, "live-events", proves, testing.result):
                adapter, others = result[2][:1], result[2][1:]
                logs["live"] += adapter + others[:1]
                logs["realtime"] += others[1:]
                add_commands(table, "live-events", proves, "live", result[0], result[1], adapter)
    return logs


def adapter_tests(place, cargo):
    """Of the other two, what the model sends is looked at: what they send it is wrong on purpose."""
    began = time.monotonic()
    logs = [server_events.sim_tests(place, cargo, target) for target in ("live_adapter", "live_model", "model")]
    return "the tests of the adapter", time.monotonic() - began, logs


def call_live_service(place, table):
    """By itself: it is real time for nine servers."""
    proves = "what is owed with a Live service that is not ours: B1 to B9 in whole calls"
    if result := outcome(table, "live-calls", proves, lambda: live_calls.play(place)):
        words, seconds, logs = result
        if checked := outcome(table, "live-calls", proves, lambda: server_events.sound_commands(logs, "live")):
            table.add("live-calls", proves, f"{words}; all {checked.total()} events of ours are valid", seconds)


def add_commands(table, name, proves, protocol, words, seconds, logs):
    if checked := outcome(table, name, proves, lambda: server_events.our_commands(logs, protocol)):
        told = f"{checked.total()} events in {len(checked.counts)} forms, all valid; {words}"
        table.add(name, proves, told, seconds)


def compare_bridges(place, table, extra):
    """By itself: what is measured here is time."""
    proves = "what is told as heard is what was played"
    began = time.monotonic()
    calls = outcome(table, "bridge", proves, lambda: bridges.compare(place))
    if not calls:
        return []
    us, them = calls
    extra.append(bridges.table(us, them, "agents-extensions"))
    for problem in bridges.broken_promises(us):
        table.fail("bridge", proves, problem)
    if not bridges.broken_promises(us):
        told = f"at most {max(abs(t - p) for t, p in zip(us.told, us.played))} ms off, never more than was played"
        table.add("bridge", proves, told, time.monotonic() - began)
    bridge_checked = outcome(table, "bridge", proves, lambda: server_events.sound_commands([us.wire_log]))
    return [us.wire_log, them.wire_log] if bridge_checked else []


def check_model(protocol, logs, table):
    proves = f"every {protocol} event that the simulated model sends is valid"
    if checked := outcome(table, "model-events", proves, lambda: server_events.model_events(logs, protocol)):
        table.add("model-events", proves, f"{checked.total()} events in {len(checked.counts)} forms, all valid")


def outcome(table, name, proves, ask):
    try:
        return ask()
    except Failed as why:
        table.fail(name, proves, str(why))
    except Exception as error:  # A peer's own fault is a finding like any other, and the rest is still worth knowing.
        table.fail(name, proves, f"{type(error).__name__}: {error}")
    return None


def versions(place):
    """Of what was installed, from the tools that installed it."""
    found = []
    for kind in ("python", "pipecat"):
        told = subprocess.run(
            [*place.interpreter(kind), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"],
            capture_output=True, text=True, check=True,
        )
        wanted = ("openai", "livekit-agents", "livekit-plugins-openai", "pipecat-ai")
        found += [f"{p['name']} {p['version']}" for p in json.loads(told.stdout) if p["name"] in wanted]
    lock = json.loads((place.installed / "js/package-lock.json").read_text(encoding="utf-8"))
    names = lock["packages"][""]["dependencies"]
    found += [f"{name} {lock['packages'][f'node_modules/{name}']['version']}" for name in names]
    return "Versions: " + ", ".join(dict.fromkeys(found)) + "."


if __name__ == "__main__":
    sys.exit(main())
