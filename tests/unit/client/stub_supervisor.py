"""In the place of the supervisor's program: says that it is ready, or does not, and obeys SIGTERM, or does not."""

import json
import os
import signal
import sys
import time
from pathlib import Path

arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
mode = os.environ["STUB_MODE"]
with open(os.environ["STUB_LOG"], "w") as log:
    status = Path(arguments["--config"]).stat()
    text = Path(arguments["--config"]).read_text()
    document = json.loads(text) if text.startswith("{") else None
    json.dump({"arguments": arguments, "mode": status.st_mode & 0o777, "document": document}, log)
if mode == "fails":
    sys.exit(7)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if mode != "slow":
    os.write(int(arguments["--ready-fd"]), b"ready\n")
while True:
    time.sleep(60)
