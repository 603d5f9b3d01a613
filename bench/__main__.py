"""`python -m bench [NAME ...] [--short] [--check]`: runs benchmarks and prints JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from bench.common import machine

NAMES = ("throughput", "add", "latency", "efficiency", "recovery", "backlog", "idle")
BASELINE = Path(__file__).with_name("baseline.json")
#: What is compared with the baseline: (benchmark, ratio, whether more is better, how much worse may be).
WATCHED = (
    ("throughput", "ratio", True, 0.75),
    ("add", "single_ratio", True, 0.75),
    ("add", "sixteen_ratio", True, 0.75),
    ("latency", "ratio", False, 1.35),
    ("efficiency", "of_bare_processes", True, 0.85),
    ("recovery", "of_bare_fork", False, 1.6),
    ("backlog", "add_ratio", True, 0.75),
    ("backlog", "dispatch_ratio", True, 0.75),
    ("backlog", "restart_ratio", False, 1.35),
    ("backlog", "private_mb", False, 1.35),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="which (default: all)")
    parser.add_argument("--short", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--check", action="store_true", help=f"short, and compare with {BASELINE.name}")
    parser.add_argument("--write-baseline", action="store_true", help=f"short, and write {BASELINE.name}")
    options = parser.parse_args()
    short = options.short or options.check or options.write_baseline
    report: dict[str, object] = {"machine": machine(), "short": short}
    for name in options.names or NAMES:
        sys.stderr.write(f"{name} ...\n")
        report[name] = importlib.import_module(f"bench.{name}").run(short)
    worse = _compare(report) if options.check else []
    if options.check:
        report["worse_than_baseline"] = worse
    if options.write_baseline:
        BASELINE.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))
    failed = [name for name in NAMES if isinstance(report.get(name), dict) and not report[name]["ok"]]  # type: ignore[index]
    if worse:
        sys.stderr.write(f"worse than the baseline: {', '.join(worse)}\n")
    if failed:
        sys.stderr.write(f"below what is required: {', '.join(failed)}\n")
    return 1 if worse or (failed and not options.check) else 0


def _compare(report: dict[str, object]) -> list[str]:
    baseline = json.loads(BASELINE.read_text())
    worse = []
    for name, key, more_is_better, tolerance in WATCHED:
        if name not in report:
            continue
        now, before = report[name][key], baseline[name][key]  # type: ignore[index]
        change = now / before
        if change < tolerance if more_is_better else change > tolerance:
            worse.append(f"{name}.{key}: {now:.3g} against {before:.3g}")
    return worse


if __name__ == "__main__":
    sys.exit(main())
