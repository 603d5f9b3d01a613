"""What the README points to runs as it is."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_quickstart_prints_its_squares(home):
    command = [sys.executable, str(EXAMPLES / "quickstart.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=home)
    assert (done.returncode, done.stdout) == (0, "[0, 1, 4, 9, 16, 25, 36, 49, 64, 81]\n"), done.stderr
