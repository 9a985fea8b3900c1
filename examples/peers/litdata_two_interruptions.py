"""litdata: `optimize(use_checkpoint=True)` of 60 inputs is interrupted twice and run a third time.

    pip install litdata==0.2.76
    python examples/peers/litdata_two_interruptions.py OUT

Says the exit code of the last run, and how many samples and distinct ones the result has.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np


def sample(n):
    if n == int(os.environ["FAIL_AT"]):
        raise RuntimeError(f"interrupted at {n}")
    return {"n": n, "x": np.full(100, n, np.float32)}


def main(out):
    if os.environ.get("FAIL_AT") is None:
        for fail_at in (20, 40, -1):
            env = os.environ | {"FAIL_AT": str(fail_at)}
            ended = subprocess.run(
                [sys.executable, __file__, out], env=env, timeout=300, capture_output=True
            )
            print("failing at", fail_at, "- exit code", ended.returncode)
        if not (pathlib.Path(out) / "index.json").exists():
            print("there is no index")
            return
        from litdata import StreamingDataset

        read = [int(row["n"]) for row in StreamingDataset(out)]
        print(len(read), "samples,", len(set(read)), "distinct, of 60")
        return
    from litdata import optimize

    optimize(
        sample,
        list(range(60)),
        out,
        num_workers=1,
        chunk_size=10,
        use_checkpoint=True,
    )


if __name__ == "__main__":
    main(sys.argv[1])
