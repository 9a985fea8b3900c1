"""litdata: one of two workers is killed while it optimizes 200 inputs.

    pip install litdata==0.2.76
    python examples/peers/litdata_killed_worker.py OUT

Says the exit code, whether an index was written, and how many samples can be read.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np


def sample(n):
    if os.environ.get("KILL_AT") and n == int(os.environ["KILL_AT"]):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
    return {"n": n, "x": np.full(100, n, np.float32)}


def main(out):
    if os.environ.get("KILL_AT") is None:
        env = os.environ | {"KILL_AT": "130"}
        ended = subprocess.run([sys.executable, __file__, out], env=env, timeout=300)
        index = pathlib.Path(out) / "index.json"
        print("exit code", ended.returncode, "- index written:", index.exists())
        if index.exists():
            chunks = json.loads(index.read_text())["chunks"]
            print("samples in the index:", sum(chunk["chunk_size"] for chunk in chunks), "of 200")
        return
    from litdata import optimize

    optimize(sample, list(range(200)), out, num_workers=2, chunk_bytes="4KB")


if __name__ == "__main__":
    main(sys.argv[1])
